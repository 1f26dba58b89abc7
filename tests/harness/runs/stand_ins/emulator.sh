#!/bin/sh
# An emulator that emulates nothing: it is called like QEMU, and can fail like it.
if [ "$1" = --version ]; then
    echo "qemu-aarch64 version ${STAND_IN_QEMU:-8.2.0}"
    exit 0
fi
for last; do :; done # OUT_DIR
case $STAND_IN_FAULT in
emulator)
    echo "qemu-aarch64: Unable to reserve 0x10000 bytes of virtual address space" >&2
    exit 1
    ;;
emulator-assertion)
    echo "qemu-aarch64: ../tcg/tcg.c:3220: tcg_gen_code: Assertion \`s->gen_insn_end_off' failed." >&2
    kill -ABRT $$
    ;;
emulator-once)
    if [ ! -e "$last/../../../../failed" ]; then
        : >"$last/../../../../failed"
        echo "QEMU internal SIGSEGV {code=MAPERR, addr=0x20}" >&2
        kill -SEGV $$
    fi
    ;;
wrong-isa)
    if [ "$2" = small ]; then
        echo "cuvil-run: 'libmlp.so': needs V (vectors), which this machine lacks" >&2
        exit 4
    fi
    ;;
emulator-hang) sleep 600 ;;
emulator-exit-*) exit "${STAND_IN_FAULT#emulator-exit-}" ;;
esac
shift $(($# - 4)) # -cpu CPU -L SYSROOT
STAND_IN_EMULATED=1 "$@"
code=$?
if [ "$STAND_IN_FAULT" = emulator-truncated ]; then
    for file in "$last"/ordinary/*.bin; do
        head -c 4 "$file" >"$file.short"
        mv "$file.short" "$file"
    done
fi
exit $code
