"""64-bit RISC-V without vectors (rv64gc, ABI lp64d)."""

from cuvil.targets.target import Target

TARGET = Target(
    name="riscv64-linux",
    platform="riscv64-linux",
    triple="riscv64-unknown-linux-gnu",
    cpu="generic-rv64",
    features=("+m", "+a", "+f", "+d", "+c"),
    isa=("m", "a", "f", "d", "c"),
    abi_name="lp64d",
    vector_bits=32,
    vector_registers=32,
    l2_bytes=512 << 10,
    emulator="qemu-riscv64",
    emulator_arguments=("-cpu", "rv64"),
    sysroot="/usr/riscv64-linux-gnu",
)
