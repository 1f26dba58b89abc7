"""64-bit Arm, tuned for the Cortex-A78 (armv8.2-a, NEON)."""

from cuvil.targets.target import Target

TARGET = Target(
    name="aarch64-linux",
    platform="aarch64-linux",
    triple="aarch64-unknown-linux-gnu",
    cpu="cortex-a78",
    features=(),
    isa=("neon", "crc", "lse", "rdm", "fullfp16", "dotprod", "rcpc"),
    abi_name="",
    vector_bits=128,
    vector_registers=32,
    l2_bytes=512 << 10,
    emulator="qemu-aarch64",
    emulator_arguments=("-cpu", "cortex-a76"),
    sysroot="/usr/aarch64-linux-gnu",
)
