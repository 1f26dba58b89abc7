"""64-bit RISC-V, tuned for the SiFive U74 (rv64gc, in order, two wide: VisionFive 2, HiFive Unmatched)."""

from dataclasses import replace

from cuvil.targets import riscv64_linux

TARGET = replace(
    riscv64_linux.TARGET,
    name="riscv64-linux-u74",
    cpu="sifive-u74",
    features=(),
    l2_bytes=2 << 20,
    # QEMU's closest relative: the same instruction set and no more.
    emulator_arguments=("-cpu", "sifive-u54"),
)
