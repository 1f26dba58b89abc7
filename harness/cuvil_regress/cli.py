"""The command `cuvil-regress`. Each command imports what it needs, so that `--help` is immediate."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from cuvil_regress import report_commands
from cuvil_regress.errors import (
    EXIT_CLEAN,
    EXIT_FINDINGS,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    HarnessError,
    ToolMissingError,
    UsageError,
)

EPILOG = "exit codes: 0 clean, 1 findings, 2 usage, 3 environment, 70 internal, 130 interrupted"
EXTRA_MODULES = ("rich", "jsonschema", "elftools", "pandas", "jinja2", "markupsafe")
"""What the extra `regress` of the distribution brings."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code, and prints every error without a traceback."""
    try:
        options = _parser().parse_args(arguments)
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except HarnessError as error:
        return _fail(error)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA_MODULES:
            return _internal(error)
        hint = "pip install 'cuvil-compiler[regress]'"
        return _fail(ToolMissingError(f"python: the module {error.name!r} is not installed", hint=hint))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FINDINGS
    except Exception as error:  # a fault of ours: one line, and the traceback in a log
        return _internal(error)


def _fail(error: HarnessError) -> int:
    print(error.render(), file=sys.stderr)
    return error.exit_code


def _internal(error: Exception) -> int:
    """An error that no one foresaw: one line, and the traceback in a file."""
    handle, path = tempfile.mkstemp(prefix="cuvil-regress-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as log:
        traceback.print_exception(error, file=log)
    words = " ".join(str(error).split())
    print(f"internal error: {type(error).__name__}: {words}; the traceback is in {path}", file=sys.stderr)
    return EXIT_INTERNAL


class _Parser(argparse.ArgumentParser):
    """A parser whose errors look like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", hint=f"{self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="cuvil-regress",
        description="Runs compiled models across PyTorch releases and targets, and judges what they compute.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_matrix(commands.add_parser("matrix", help="run a matrix of cells, or list it", epilog=EPILOG))
    _add_compare(
        commands.add_parser("compare", help="compare two releases, or two finished runs", epilog=EPILOG)
    )
    report_commands.add_report(
        commands.add_parser("report", help="render a run's reports again", epilog=EPILOG)
    )
    _add_golden(commands.add_parser("golden", help="refresh or verify the golden tensors", epilog=EPILOG))
    _add_abi(commands.add_parser("abi", help="scan libraries for ABI conflicts", epilog=EPILOG))
    return parser


def _version() -> str:
    try:
        return importlib.metadata.version("cuvil-compiler")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _add_matrix(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run all cells into a run folder", epilog=EPILOG)
    run.add_argument("matrix", type=Path, metavar="MATRIX", help="the matrix file")
    run.add_argument(
        "--output-dir", type=Path, metavar="DIR", help="folder of the run (default: a new one in ./runs)"
    )
    run.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="continue the run of this folder: keep what is done and clean",
    )
    run.add_argument(
        "--compiler", metavar="CMD", help="the compiler's command (default: the cuvil beside this Python)"
    )
    _add_selection(run)
    run.add_argument("--shard", metavar="I/N", help="only part I of N, as `matrix plan` splits the matrix")
    _add_run_options(run)
    run.set_defaults(command=_matrix_run)
    listing = commands.add_parser("list", help="print the ids of all cells", epilog=EPILOG)
    listing.add_argument("matrix", type=Path, metavar="MATRIX", help="the matrix file")
    _add_selection(listing)
    listing.set_defaults(command=_matrix_list)
    plan = commands.add_parser("plan", help="split a matrix over machines", epilog=EPILOG)
    report_commands.add_plan(plan)
    gather = commands.add_parser("gather", help="merge the runs of all shards", epilog=EPILOG)
    report_commands.add_gather(gather)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-k",
        dest="selection",
        metavar="EXPRESSION",
        help="only cells whose id has these words, e.g. 'lstm and not riscv64'",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    for name, what in (("baseline", "what was"), ("candidate", "what is to be")):
        meaning = f"{what}: a finished run's folder, a wheel, or a git ref"
        parser.add_argument(name, metavar=name.upper(), help=meaning)
    parser.add_argument(
        "--policy",
        default="release",
        metavar="NAME",
        help="tolerance policy, by name or by file (default: release)",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write compare.json here")
    parser.add_argument("--models", default="*", metavar="GLOB", help="only these models, e.g. 'resnet*'")
    parser.add_argument("--targets", default="", metavar="T,T", help="only these targets")
    parser.add_argument("--keep", action="store_true", help="keep both runs, in a new folder in ./runs")
    builds = parser.add_argument_group("what is built and run")
    builds.add_argument(
        "--matrix",
        type=Path,
        default=Path("matrices/default.toml"),
        metavar="FILE",
        help="the matrix to run (default: matrices/default.toml)",
    )
    builds.add_argument(
        "--repository", type=Path, default=Path(), metavar="DIR", help="where refs are looked up (default: .)"
    )
    _add_run_options(builds)
    parser.set_defaults(command=_compare)


def _add_run_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="the Python that has the PyTorch (default: this one)",
    )
    parser.add_argument(
        "--workers", type=_positive, default=2, metavar="N", help="cells at a time (default: 2)"
    )


def _add_golden(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    refresh = commands.add_parser("refresh", help="show the drift, and write what is accepted", epilog=EPILOG)
    refresh.add_argument("--reason", required=True, metavar="TEXT", help="why; it is kept in the record")
    refresh.add_argument("--yes", action="store_true", help="accept without being asked")
    refresh.set_defaults(command=_golden_refresh)
    verify = commands.add_parser("verify", help="check the goldens against their records", epilog=EPILOG)
    verify.set_defaults(command=_golden_verify)
    for command in (refresh, verify):
        command.add_argument(
            "--model", action="append", metavar="M", help="only this model (may be repeated)"
        )
        command.add_argument(
            "--golden",
            type=Path,
            default=Path("golden"),
            metavar="DIR",
            help="their folder (default: ./golden)",
        )


def _add_abi(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    scan = commands.add_parser("scan", help="scan shared libraries", epilog=EPILOG)
    scan.add_argument("libraries", type=Path, nargs="+", metavar="LIB", help="a shared library")
    scan.add_argument("--target", metavar="T", help="what they are built for (default: this machine)")
    scan.add_argument(
        "--torch-dir",
        type=Path,
        action="append",
        metavar="D",
        help="folder of PyTorch's libraries; may be repeated (default: those of this Python)",
    )
    scan.add_argument("--json", action="store_true", help="print JSON")
    scan.set_defaults(command=_abi_scan)
    checks = commands.add_parser("checks", help="print every check: what, why, how to fix", epilog=EPILOG)
    checks.set_defaults(command=_abi_checks)


def _positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 256, got {text!r}")
    return int(text)


def _matrix_run(options: argparse.Namespace) -> int:
    from cuvil_regress import environment, matrix, models, policy, runner, shards
    from cuvil_regress.reports import documents, terminal

    others = {"--output-dir": options.output_dir, "-k": options.selection, "--shard": options.shard}
    given = next((name for name, value in others.items() if value is not None), None)
    if options.resume and given:
        raise UsageError(f"--resume: does not go with {given}; the run's folder and its cells are given")
    loaded = matrix.load(options.matrix, models=models.names(), policies=policy.names())
    if options.shard is not None:
        loaded = shards.select(loaded, options.shard)
    if options.selection is not None:
        loaded = loaded.select(options.selection)
    loaded.require_golden()
    compiler = options.compiler or environment.default_compiler()
    console = terminal.open_console()
    with _ending_on_sigterm(), terminal.ProgressObserver(console) as observer:
        folder = options.resume or options.output_dir or _new_folder(options.matrix)
        settings = runner.Options(
            folder, compiler, options.python, options.workers, resume=options.resume is not None
        )
        report = runner.run(loaded, settings, observer)
    terminal.print_report(console, report, folder)
    documents.append_summary(report)
    return report.exit_code


def _new_folder(matrix: Path) -> Path:
    from cuvil_regress import runner

    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return runner.make_folder(Path("runs"), f"{matrix.stem}-{stamp}")


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """A CI system that cancels a job asks by SIGTERM: end as on Ctrl-C.

    The first of them ends the run. Those that follow change nothing, for the end is under way, and short:
    they are ignored until the process is gone.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    former = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            if signal.getsignal(number) is interrupt:
                signal.signal(number, handler)


def _matrix_list(options: argparse.Namespace) -> int:
    from cuvil_regress import matrix, models, policy

    loaded = matrix.load(options.matrix, models=models.names(), policies=policy.names())
    for cell in (loaded if options.selection is None else loaded.select(options.selection)).cells:
        print(cell.id)
    return EXIT_CLEAN


def _compare(options: argparse.Namespace) -> int:
    from cuvil_regress import builds, policy, releases
    from cuvil_regress.reports import pairs, terminal
    from cuvil_regress.runs import Selection

    console = terminal.open_console()
    audience = releases.Audience(
        lambda line: console.print(line, soft_wrap=True), lambda: terminal.ProgressObserver(console)
    )
    targets = tuple(filter(None, options.targets.split(",")))
    with _ending_on_sigterm(), _runs_folder(keep=options.keep) as folder:
        settings = releases.Settings(
            folder,
            builds.default_folder(),
            options.matrix,
            options.repository,
            Selection(options.models, targets),
            policy.load(options.policy),
            options.python,
            options.workers,
        )
        comparison = releases.compare_releases((options.baseline, options.candidate), settings, audience)
    pairs.print_comparison(console, comparison)
    if options.keep:
        console.print(f"  {folder}", soft_wrap=True)
    elif comparison.exit_code != EXIT_CLEAN:
        console.print("  --keep keeps both runs, with their logs")
    if options.output is not None:
        _write(options.output, pairs.render(comparison))
        console.print(f"  {options.output}", soft_wrap=True)
    return comparison.exit_code


@contextmanager
def _runs_folder(*, keep: bool) -> Iterator[Path]:
    """The folder of the runs that a comparison makes; it goes away with the comparison unless it is kept."""
    if keep:
        from cuvil_regress.runner import make_folder

        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        yield make_folder(Path("runs"), f"compare-{stamp}")
        return
    with tempfile.TemporaryDirectory(prefix="cuvil-regress-compare-") as folder:
        yield Path(folder)


def _write(path: Path, document: Mapping[str, object]) -> None:
    from cuvil_regress.workspace import write_json

    try:
        write_json(path, document)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise UsageError(f"--output {str(path)!r}: can't be written: {reason}") from error


def _golden_refresh(options: argparse.Namespace) -> int:
    from cuvil_regress import golden, models
    from cuvil_regress.reports import drift, terminal

    chosen = tuple(models.load(name).name for name in options.model or models.names())
    console = terminal.open_console()
    drifts = golden.refresh(chosen, options.reason, options.golden, accept=False)
    drift.print_drifts(console, drifts)
    if all(found.state == "unchanged" for found in drifts) and not golden.verify(options.golden, chosen):
        console.print("nothing has changed, and nothing was written")
        return EXIT_CLEAN
    if not options.yes and not _confirmed():
        console.print("nothing was written")
        return EXIT_FINDINGS
    golden.refresh(chosen, options.reason, options.golden)
    console.print(f"written: {options.golden}", soft_wrap=True)
    return EXIT_CLEAN


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("golden refresh: can't ask without a terminal", hint="accept by --yes")
    try:
        return input("accept these goldens? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _golden_verify(options: argparse.Namespace) -> int:
    from cuvil_regress import golden

    if not options.golden.is_dir():
        raise UsageError(
            f"--golden {str(options.golden)!r}: no such folder; expected the one that holds the goldens",
            hint="run this where the folder 'golden' is, or name it by --golden",
        )
    golden.require_names(options.golden, options.model or ())
    findings = golden.verify(options.golden, options.model)
    for finding in findings:
        print(f"{finding.file}: {finding.message} ({finding.check})")
        if finding.hint:
            print(f"hint: {finding.hint}")
    plural = "" if len(findings) == 1 else "s"
    print(f"{options.golden}: {len(findings) or 'no'} fault{plural}")
    return EXIT_FINDINGS if findings else EXIT_CLEAN


def _abi_scan(options: argparse.Namespace) -> int:
    import json

    from cuvil_regress.reports import abi, terminal
    from cuvil_regress.scan import scan
    from cuvil_regress.torch_libs import find_torch_lib_dirs

    folders = options.torch_dir or find_torch_lib_dirs()
    report = scan(options.libraries, target=options.target or _native_target(), torch_lib_dirs=folders)
    if options.json:
        print(json.dumps(abi.to_json(report), indent=2))
    else:
        terminal.open_console().print(abi.render_scan(report))
    return EXIT_CLEAN if report.clean else EXIT_FINDINGS


def _native_target() -> str:
    from cuvil_regress.model import MACHINES

    for machine in MACHINES.values():
        if machine.architecture == platform.machine():
            return machine.target
    raise UsageError(
        f"--target: is needed on a {platform.machine()!r} machine; expected one of {list(MACHINES)}"
    )


def _abi_checks(options: argparse.Namespace) -> int:
    from cuvil_regress.checks import describe_checks

    print(describe_checks())
    return EXIT_CLEAN


if __name__ == "__main__":
    sys.exit(main())
