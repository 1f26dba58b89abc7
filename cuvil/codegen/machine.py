"""LLVM: IR text to object files for any target, and object code into this process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import llvmlite.binding as llvm

from cuvil.errors import CuvilError
from cuvil.targets.target import Target

_PIPELINE_LEVEL = 1
"""LLVM's O1 passes: kernels come unrolled and vectorized, so O2 takes twice as long for the same loops."""

_CODEGEN_LEVEL = 2


def llvm_version() -> str:
    return ".".join(map(str, llvm.llvm_version_info))


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _target_machine(target: Target) -> llvm.TargetMachine:
    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=",".join(target.features),
        opt=_CODEGEN_LEVEL,
        reloc="pic",
        codemodel="small",
        abiname=target.abi_name,
    )


def _optimized(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CuvilError(f"codegen: LLVM rejects the generated code: {error}") from error
    options = llvm.create_pipeline_tuning_options(speed_level=_PIPELINE_LEVEL)
    # Vectors and unrolling are chosen by the schedules; LLVM's own choices would only grow the code.
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def compile_object(text: str, target: Target) -> bytes:
    """LLVM IR text to a relocatable object file."""
    machine = _target_machine(target)
    return bytes(machine.emit_object(_optimized(text, machine)))


def compile_assembly(text: str, target: Target) -> str:
    """LLVM IR text to assembly, for dumps and for tests of the inner loops."""
    machine = _target_machine(target)
    return str(machine.emit_assembly(_optimized(text, machine)))


class LoadedObject:
    """Object code linked into this process; it lives as long as this object does."""

    def __init__(self, object_code: bytes, target: Target, symbols: tuple[str, ...]) -> None:
        self._jit = llvm.create_lljit_compiler(_target_machine(target), use_jit_link=True)
        builder = llvm.JITLibraryBuilder().add_object_img(object_code)
        for symbol in symbols:
            builder = builder.export_symbol(symbol)
        self._tracker = builder.link(self._jit, "model")
        self.addresses: Mapping[str, int] = {symbol: self._tracker[symbol] for symbol in symbols}
