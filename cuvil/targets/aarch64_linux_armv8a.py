"""Any 64-bit Arm (armv8-a, NEON): the Cortex-A53 and A72, and all that came after."""

from dataclasses import replace

from cuvil.targets import aarch64_linux

TARGET = replace(
    aarch64_linux.TARGET,
    name="aarch64-linux-armv8a",
    cpu="generic",
    isa=("neon",),
    emulator_arguments=("-cpu", "cortex-a53"),
)
