"""64-bit RISC-V with vectors (rv64gcv, zvl128b), for any vector length from 128 bits up.

Vectors are 128 bits wide (LMUL 1 on the smallest machine): longer registers are filled in part, so that one
library serves all machines.
"""

from dataclasses import replace

from cuvil.targets import riscv64_linux

_SCALAR = riscv64_linux.TARGET
_MACHINES = {f"vlen={bits}": ("-cpu", f"rv64,v=true,vlen={bits},vext_spec=v1.0") for bits in (128, 256, 512)}

TARGET = replace(
    _SCALAR,
    name="riscv64-linux-v",
    features=(*_SCALAR.features, "+v", "+zvl128b"),
    isa=(*_SCALAR.isa, "v"),
    min_vlen_bits=128,
    vector_bits=128,
    emulator_arguments=_MACHINES["vlen=128"],
    machines=_MACHINES,
)
