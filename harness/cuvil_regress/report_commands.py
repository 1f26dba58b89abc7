"""The commands that make no results of their own: `report`, `matrix plan` and `matrix gather`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from cuvil_regress.errors import EXIT_CLEAN, EXIT_FINDINGS, UsageError

FORMAT_NAMES = ("html", "junit", "markdown", "json", "csv")


def add_report(parser: argparse.ArgumentParser) -> None:
    """The arguments of `report`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument(
        "--format",
        choices=FORMAT_NAMES,
        help="print this one (default: write all into the run's folder)",
    )
    parser.set_defaults(command=_report)


def add_plan(parser: argparse.ArgumentParser) -> None:
    """The arguments of `matrix plan`."""
    parser.add_argument("matrix", type=Path, metavar="MATRIX", help="the matrix file")
    parser.add_argument(
        "--shards", type=int, metavar="N", help="how many (default: one a group, at most 256)"
    )
    parser.add_argument("--github", action="store_true", help="print the matrix of a GitHub job, as JSON")
    parser.set_defaults(command=_plan)


def add_gather(parser: argparse.ArgumentParser) -> None:
    """The arguments of `matrix gather`."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a shard's run")
    parser.add_argument(
        "--expect", type=Path, required=True, metavar="MATRIX", help="the matrix whose cells must be there"
    )
    parser.add_argument(
        "--output-dir", type=Path, required=True, metavar="DIR", help="folder of the gathered run"
    )
    parser.set_defaults(command=_gather)


def _report(options: argparse.Namespace) -> int:
    from cuvil_regress.reports import documents
    from cuvil_regress.reports import json as report_json
    from cuvil_regress.workspace import RESULTS, Workspace

    report = report_json.read(options.run / RESULTS)
    workspace = Workspace(options.run.resolve())
    if options.format:
        sys.stdout.write(documents.render(options.format, report, workspace))
        return EXIT_CLEAN
    try:
        paths = documents.write_all(report, workspace)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise UsageError(f"{options.run}: can't be written to: {reason}") from error
    for path in paths:
        print(options.run / path.name)
    return EXIT_CLEAN


def _plan(options: argparse.Namespace) -> int:
    from cuvil_regress import matrix, models, policy, shards
    from cuvil_regress.reports.terminal import counted

    loaded = matrix.load(options.matrix, models=models.names(), policies=policy.names())
    planned = shards.split(loaded, options.shards)
    if options.github:
        print(json.dumps(shards.github_matrix(planned), separators=(",", ":")))
        return EXIT_CLEAN
    for shard in planned:
        print(f"{shard.name}: {counted(len(shard.cells), 'cell')}: {' '.join(shard.groups)}")
    return EXIT_CLEAN


def _gather(options: argparse.Namespace) -> int:
    from cuvil_regress import gather, matrix, models, policy, runner
    from cuvil_regress.reports import documents, terminal

    expected = matrix.load(options.expect, models=models.names(), policies=policy.names())
    folder = runner.fresh_folder(options.output_dir)
    gathered = gather.gather(options.runs, expected, folder)
    for fault in gathered.faults:
        print(fault, file=sys.stderr)
    terminal.print_report(terminal.open_console(), gathered.report, options.output_dir)
    documents.append_summary(gathered.report)
    if gathered.faults:
        return gathered.report.exit_code or EXIT_FINDINGS
    return gathered.report.exit_code
