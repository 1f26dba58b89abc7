#!/bin/sh
# An emulator that emulates nothing: it is called like QEMU, and can fail like it.
if [ "$1" = --version ]; then
    echo "qemu-aarch64 version ${STAND_IN_QEMU:-8.2.0}"
    exit 0
fi
if [ "$STAND_IN_FAULT" = emulator ]; then
    echo "qemu-aarch64: Unable to reserve 0x10000 bytes of virtual address space" >&2
    exit 1
fi
if [ "$STAND_IN_FAULT" = wrong-isa ] && [ "$2" = small ]; then
    echo "cuvil-run: 'libmlp.so': needs V (vectors), which this machine lacks" >&2
    exit 4
fi
while [ "${1#-}" != "$1" ]; do shift 2; done # -cpu NAME -L SYSROOT
STAND_IN_EMULATED=1 exec "$@"
