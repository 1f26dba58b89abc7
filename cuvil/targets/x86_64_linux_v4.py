"""x86-64 with AVX-512 (psABI level x86-64-v4: Skylake-SP, Zen 4 and newer), 512 bits wide.

The CPU model is the bare level: those of real processors let LLVM use `vcvtneps2bf16`, which flushes
subnormals.
"""

from dataclasses import replace

from cuvil.targets import x86_64_linux

_V3 = x86_64_linux.TARGET

TARGET = replace(
    _V3,
    name="x86_64-linux-v4",
    cpu="x86-64-v4",
    isa=(*_V3.isa, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    vector_bits=512,
    vector_registers=32,
    l2_bytes=1 << 20,
)
