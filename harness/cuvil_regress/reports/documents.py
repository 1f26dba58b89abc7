"""All the reports of a run: which there are, what renders each, and where it lies in the run's folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from cuvil_regress.errors import UsageError
from cuvil_regress.model import Report
from cuvil_regress.reports import frame, html, junit, markdown
from cuvil_regress.reports import json as report_json
from cuvil_regress.workspace import CSV, HTML, JUNIT, MARKDOWN, RESULTS, Workspace, write_text

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""Where GitHub tells a step the file of its job summary."""


def _json(report: Report, workspace: Workspace) -> str:
    return json.dumps(report_json.render(report), indent=2, allow_nan=False) + "\n"


FORMATS: Mapping[str, tuple[str, Callable[[Report, Workspace], str]]] = {
    "json": (RESULTS, _json),
    "html": (HTML, html.render),
    "markdown": (MARKDOWN, lambda report, workspace: markdown.render(report, link=run_link())),
    "junit": (JUNIT, lambda report, workspace: junit.render(report)),
    "csv": (CSV, frame.render),
}
"""The file of each format in the run's folder, and its renderer."""


def render(format_name: str, report: Report, workspace: Workspace) -> str:
    """The document of one format."""
    return FORMATS[format_name][1](report, workspace)


def write_all(report: Report, workspace: Workspace) -> tuple[Path, ...]:
    """Write every report into the run's folder, each completely or not at all."""
    paths = []
    for name, renderer in FORMATS.values():
        write_text(workspace.root / name, renderer(report, workspace))
        paths.append(workspace.root / name)
    return tuple(paths)


def append_summary(report: Report, environment: Mapping[str, str] = os.environ) -> None:
    """Append the Markdown to GitHub's job summary, where there is one, within what is left of its limit.

    Raises:
        UsageError: the file can't be written.
    """
    name = environment.get(SUMMARY_VARIABLE, "")
    if not name:
        return
    path = Path(name)
    try:
        taken = path.stat().st_size if path.exists() else 0
        room = max(markdown.LIMIT_BYTES - taken, 0)
        text = markdown.render(report, limit_bytes=room, link=run_link(environment))
        with path.open("a", encoding="utf-8") as file:
            file.write(text if len(text.encode()) <= room else "")
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise UsageError(f"{SUMMARY_VARIABLE} {name!r}: can't be written: {reason}") from error


def run_link(environment: Mapping[str, str] = os.environ) -> str:
    """The page of the workflow run that this process is part of; empty outside of one."""
    keys = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, number = (environment.get(key, "") for key in keys)
    return f"{server}/{repository}/actions/runs/{number}" if server and repository and number else ""
