"""x86-64 with AVX2 and FMA (psABI level x86-64-v3: Haswell, Zen and newer)."""

from cuvil.targets.target import Target

TARGET = Target(
    name="x86_64-linux",
    platform="x86_64-linux",
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64-v3",
    features=(),
    isa=(
        *("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf"),
        *("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
    ),
    abi_name="",
    vector_bits=256,
    vector_registers=16,
    l2_bytes=512 << 10,
    emulator="qemu-x86_64",
    emulator_arguments=("-cpu", "max"),
    sysroot="/",
)
