"""The command line: cuvil compile | run | dump-ir | doctor."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cuvil import __version__
from cuvil.errors import EXIT_INTERNAL, CuvilError, UsageError

if TYPE_CHECKING:
    from cuvil.driver import Options, Stages
    from cuvil.ir.types import Array
    from cuvil.session import CompiledModel

DUMP_STAGES = ("import", "graph", "loops", "llvm", "assembly")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0, or that of the error."""
    try:
        args = _parser().parse_args(argv)
        run = args.run
        code: int = run(args)
    except CuvilError as error:
        print(f"cuvil: {error.render()}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception:
        traceback.print_exc()
        print("cuvil: internal error; please report it with the lines above", file=sys.stderr)
        return EXIT_INTERNAL
    return code


class _Parser(argparse.ArgumentParser):
    """Reports usage errors like all others: one line, exit code 2."""

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse declares that it exits
        raise UsageError(f"{self.prog}: {message}", hint=f"{self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="cuvil", description="Compile ONNX models to native code with the same bits everywhere."
    )
    parser.add_argument("--version", action="version", version=f"cuvil {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    _add_compile(commands.add_parser("compile", help="compile a model to a library"))
    _add_run(commands.add_parser("run", help="run a model, or a compiled library, on tensors from files"))
    _add_dump(commands.add_parser("dump-ir", help="print the forms of a model between ONNX and assembly"))
    doctor = commands.add_parser("doctor", help="say what this installation can compile, link and run")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(run=_doctor)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="FILE", help="the ONNX model")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1,3,224,224",
        help="fix the shape of an input that the model leaves open; may be repeated",
    )


def _add_compile(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("--target", metavar="NAME", help="default: this machine's")
    parser.add_argument("--output", required=True, metavar="FILE.so", help="the library to write")
    parser.add_argument(
        "--enable-fp16",
        choices=("true", "false"),
        default="false",
        help="allow half precision inside; not available yet, so only false is accepted",
    )
    parser.set_defaults(run=_compile)


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy", help="may be repeated"
    )
    parser.add_argument("--output-dir", required=True, metavar="DIR", help="where NAME.npy files go")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="0: one for each processor")
    parser.set_defaults(run=_run)


def _add_dump(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("--target", metavar="NAME", help="default: this machine's")
    parser.add_argument(
        "--stage", choices=DUMP_STAGES, default="graph", help="default: graph, after all passes"
    )
    parser.set_defaults(run=_dump)


def _options(args: argparse.Namespace, target: str | None) -> Options:
    from cuvil import toolchain
    from cuvil.driver import Options

    return Options(target or toolchain.host_target(), dict(map(_shape, args.shape)))


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, separator, extents = text.rpartition("=")
    try:
        shape = tuple(int(extent) for extent in extents.split(",") if extent)
    except ValueError:
        separator = ""
        shape = ()
    if not separator or not name or any(extent < 0 for extent in shape):
        raise UsageError(f"--shape: expected NAME=1,3,224,224, got {text!r}")
    return name, shape


def _compile(args: argparse.Namespace) -> int:
    from cuvil.driver import compile_model

    if args.enable_fp16 == "true":
        raise UsageError("--enable-fp16: half precision is not available yet; expected false, got true")
    compile_model(args.model, _options(args, args.target)).save(args.output)
    return 0


def _run(args: argparse.Namespace) -> int:
    import numpy as np

    model = _load(args)
    folder = Path(args.output_dir)
    inputs = dict(_input(text) for text in args.input)
    outputs = model.run(inputs)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in outputs.items():
        path = folder / f"{_file_name(name)}.npy"
        np.save(path, array, allow_pickle=False)
        print(f"{name}: {array.dtype}{list(array.shape)} -> {path}")
    return 0


def _load(args: argparse.Namespace) -> CompiledModel:
    from cuvil.driver import compile_model
    from cuvil.session import load, load_artifact

    if args.model.endswith(".so"):
        return load(args.model, args.threads)
    return load_artifact(compile_model(args.model, _options(args, None)), args.threads)


def _input(text: str) -> tuple[str, Array]:
    import numpy as np

    name, separator, file = text.partition("=")
    if not separator:
        raise UsageError(f"--input: expected NAME=FILE.npy, got {text!r}")
    try:
        return name, np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"--input {name!r}: {file!r} can't be read: {error}") from error


def _file_name(name: str) -> str:
    """An output's name without characters that a file name can't have."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name) or "output"


def _dump(args: argparse.Namespace) -> int:
    from cuvil.driver import run_stages

    stages = run_stages(args.model, _options(args, args.target))
    print(_text_of(stages, args.stage))
    return 0


def _text_of(stages: Stages, stage: str) -> str:
    from cuvil.driver import assembly
    from cuvil.ir.text import format_graph
    from cuvil.loops.text import format_kernel

    match stage:
        case "import":
            return format_graph(stages.graphs[0][1])
        case "graph":
            return format_graph(stages.graphs[-1][1])
        case "loops":
            return "\n".join(format_kernel(call.kernel) for call in stages.program.calls)
        case "llvm":
            return stages.llvm
        case _:
            return assembly(stages)


def _doctor(args: argparse.Namespace) -> int:
    from cuvil.doctor import examine, render

    report = examine()
    print(json.dumps(report, indent=2) if args.json else render(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
