"""The command line: cuvil compile | run | dump-ir | bisect | inspect | doctor."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from cuvil import __version__
from cuvil.errors import CuvilError, InternalError, LimitError, UsageError

if TYPE_CHECKING:
    from cuvil.driver import Options, Stages
    from cuvil.ir.types import Array
    from cuvil.session import CompiledModel

T = TypeVar("T")

EPILOG = "exit codes: 0 done, 2 usage, 3 model, 4 limit, 5 toolchain, 70 internal error"
EXIT_INTERRUPTED = 130
MAX_THREADS = 1024  # the runtime's own limit
EXIT_CHANGED = 1
BISECT_EPILOG = "exit codes: 0 no stage changes the result, 1 one does, else as `cuvil --help` says"
DUMP_STAGES = ("import", "graph", "loops", "llvm", "assembly")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0, or that of the error."""
    try:
        args = _parser().parse_args(argv)
        run = args.run
        code: int = run(args)
        sys.stdout.flush()
    except CuvilError as error:
        return _fail(error)
    except MemoryError as error:
        return _fail(LimitError(f"memory: there is not enough for this model: {error}"))
    except BrokenPipeError:
        # The reader has seen enough; nor may Python's own flush at exit complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # a fault of ours: one line, and the traceback in a log
        return _fail(_internal(error))
    return code


def _fail(error: CuvilError) -> int:
    print(f"cuvil: {error.render()}", file=sys.stderr)
    return error.exit_code


def _internal(error: Exception) -> InternalError:
    """An error that no one foresaw: one line, and the traceback in a file."""
    handle, path = tempfile.mkstemp(prefix="cuvil-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as log:
        traceback.print_exception(error, file=log)
    what = " ".join(str(error).split())
    return InternalError(
        f"internal error: {type(error).__name__}: {what}", hint=f"please report it, with the file {path}"
    )


class _Parser(argparse.ArgumentParser):
    """Reports usage errors like all others: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("cuvil").strip()
        raise UsageError(f"{command}: {message}" if command else message, hint=f"{self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="cuvil",
        description="Compile ONNX models to native code with the same bits everywhere.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"cuvil {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    def add(name: str, what: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=what, description=f"{what.capitalize()}.", allow_abbrev=False)

    _add_compile(add("compile", "compile a model to a library"))
    _add_run(add("run", "run a model, or a compiled library, on tensors from files"))
    _add_dump(add("dump-ir", "print the forms of a model between ONNX and assembly"))
    _add_bisect(add("bisect", "find the stage of the compiler that changes what a model computes"))
    _add_inspect(add("inspect", "describe a compiled model, and check it"))
    doctor = add("doctor", "say what this installation can compile, link and run")
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
        help="fix the shape of an input that the model leaves open, or name dimensions; may be repeated",
    )
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=1..128",
        help="bounds of a named dimension that every run chooses anew; may be repeated",
    )


def _add_compile(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="default: the portable one of this machine; native: its best; may be repeated for a .cuv file",
    )
    parser.add_argument(
        "--output", "-o", required=True, metavar="FILE", help="the library NAME.so, or NAME.cuv, to write"
    )
    parser.add_argument(
        "--enable-fp16",
        choices=("true", "false"),
        default="false",
        help="allow half precision inside; not available yet, so only false is accepted",
    )
    parser.set_defaults(run=_compile)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy", help="may be repeated"
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    _add_inputs(parser)
    parser.add_argument("--output-dir", required=True, metavar="DIR", help="where NAME.npy files go")
    parser.add_argument("--threads", type=_threads, default=1, metavar="N", help="0: one for each processor")
    parser.set_defaults(run=_run)


def _add_dump(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("--target", metavar="NAME", help="default: this machine's")
    parser.add_argument(
        "--stage", choices=DUMP_STAGES, default="graph", help="default: graph, after all passes"
    )
    parser.set_defaults(run=_dump)


def _add_bisect(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    _add_inputs(parser)
    parser.add_argument(
        "--target", metavar="NAME", help="default: this machine's; others run up to the loops"
    )
    parser.add_argument(
        "--against",
        choices=("reference", "onnxruntime"),
        default="reference",
        help="what is right: the model as imported, by its operators' definitions (default), or ONNX Runtime",
    )
    parser.add_argument(
        "--rtol",
        type=_share,
        default=1e-5,
        metavar="R",
        help="allowed difference, as a share of an output's largest element (default: 1e-5); 0: no bit",
    )
    parser.epilog = BISECT_EPILOG
    parser.set_defaults(run=_bisect)


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a .cuv file, or a library with its metadata beside it")
    parser.add_argument("--verify", action="store_true", help="read all of it and compare every checksum")
    parser.add_argument("--nodes", action="store_true", help="list every node of the model")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_inspect)


def _options(args: argparse.Namespace, target: str | None) -> Options:
    from cuvil import toolchain
    from cuvil.driver import Options

    shapes = _by_name("--shape", map(_shape, args.shape))
    dims = _by_name("--dim", map(_dim, args.dim))
    return Options(toolchain.host_target() if target is None else target, shapes, dims)


def _by_name(option: str, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    for name, value in pairs:
        if name in found:
            raise UsageError(f"{option}: {name!r} is given twice; expected each name once")
        found[name] = value
    return found


def _shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """`x=1,3`, or `x=batch,3` with a named dimension; `x=` is the shape of a scalar."""
    name, separator, extents = text.rpartition("=")
    words = extents.split(",") if extents else []
    if not separator or not name or not all(re.fullmatch(r"\d+|[A-Za-z_][\w.]*", word) for word in words):
        raise UsageError(f"--shape: expected NAME=1,3,224,224, got {text!r}")
    return name, tuple(int(word) if word.isdecimal() else word for word in words)


def _dim(text: str) -> tuple[str, tuple[int, int]]:
    """`seq=1..128`, or `seq=24` for one value."""
    name, separator, bounds = text.rpartition("=")
    ends = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", bounds, re.ASCII)
    if not separator or not name or not ends:
        raise UsageError(f"--dim: expected NAME=1..128, got {text!r}")
    return name, (int(ends[1]), int(ends[2] or ends[1]))


def _threads(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= MAX_THREADS):
        raise argparse.ArgumentTypeError(f"expected a number from 0 to {MAX_THREADS}, got {text!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to below 1, got {text!r}")
    return value


def _compile(args: argparse.Namespace) -> int:
    from cuvil import container
    from cuvil.driver import compile_model

    if args.enable_fp16 == "true":
        raise UsageError("--enable-fp16: half precision is not available yet; expected false, got true")
    targets: list[str | None] = args.target or [None]
    container.verify_output(Path(args.output), len(targets))
    artifacts = [compile_model(args.model, _options(args, target)) for target in targets]
    container.save(artifacts, args.output)
    return 0


def _run(args: argparse.Namespace) -> int:
    from cuvil.npy import write_arrays

    inputs = _by_name("--input", map(_input, args.input))
    outputs = _load(args).run(inputs)
    for name, path in write_arrays(Path(args.output_dir), outputs).items():
        print(f"{name}: {outputs[name].dtype}{list(outputs[name].shape)} -> {path}")
    return 0


def _load(args: argparse.Namespace) -> CompiledModel:
    from cuvil.container import SUFFIX
    from cuvil.driver import compile_model
    from cuvil.session import load, load_artifact
    from cuvil.targets.target import NATIVE

    if args.model.endswith((".so", SUFFIX)):
        for option, given in (("--shape", args.shape), ("--dim", args.dim)):
            if given:
                raise UsageError(f"{option}: a compiled library has its shapes; expected an ONNX model")
        return load(args.model, args.threads)
    return load_artifact(compile_model(args.model, _options(args, NATIVE)), args.threads)


def _input(text: str) -> tuple[str, Array]:
    from cuvil.npy import read_array

    name, separator, file = text.rpartition("=")
    if not separator or not name or not file:
        raise UsageError(f"--input: expected NAME=FILE.npy, got {text!r}")
    return name, read_array(Path(file))


def _dump(args: argparse.Namespace) -> int:
    from cuvil.driver import run_stages

    stages = run_stages(args.model, _options(args, args.target))
    print(_text_of(stages, args.stage))
    return 0


def _text_of(stages: Stages, stage: str) -> str:
    from cuvil.driver import assembly, format_program
    from cuvil.ir.text import format_graph

    match stage:
        case "import":
            return format_graph(stages.graphs[0][1])
        case "graph":
            return format_graph(stages.graphs[-1][1])
        case "loops":
            return format_program(stages.program)
        case "llvm":
            return stages.llvm
        case _:
            return assembly(stages)


def _bisect(args: argparse.Namespace) -> int:
    from cuvil.bisection import bisect, render
    from cuvil.frontends.onnx import load_onnx
    from cuvil.native import resolve_target
    from cuvil.trial import complete_inputs, run_onnxruntime

    options = _options(args, args.target)
    graph = load_onnx(args.model, options.shapes, options.dims).graph
    inputs = complete_inputs(graph.inputs, _by_name("--input", map(_input, args.input)))
    reference = None
    if args.against == "onnxruntime":
        named = {value.name: array for value, array in zip(graph.inputs, inputs, strict=True)}
        reference = run_onnxruntime(Path(args.model), named)
    found = bisect(graph, resolve_target(options.target), inputs, reference=reference, rtol=args.rtol)
    print(render(found, args.rtol))
    return EXIT_CHANGED if found.culprit else 0


def _inspect(args: argparse.Namespace) -> int:
    from cuvil.inspection import inspect, render

    report = inspect(Path(args.file), args.verify)
    print(json.dumps(report, indent=2) if args.json else render(report, args.nodes))
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from cuvil.doctor import examine, render

    report = examine()
    print(json.dumps(report, indent=2) if args.json else render(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
