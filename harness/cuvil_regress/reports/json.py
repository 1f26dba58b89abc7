"""Reports as JSON, and back: `cells.jsonl` while a run goes on, `results.json` at its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from cuvil_regress.errors import UsageError
from cuvil_regress.model import SCHEMA_VERSION, Cell, Finding, OutputResult, Report, Result, StepResult


def render(report: Report) -> dict[str, Any]:
    """The document of `results.json`, checked against its schema."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "matrix": report.matrix,
        "compiler": report.compiler,
        "policies": dict(report.policies),
        "complete": report.complete,
        "exit_code": report.exit_code,
        "elapsed_ns": report.elapsed_ns,
        "totals": dict(report.totals),
        "planned": [cell.id for cell in report.planned],
        "cells": [render_result(result) for result in report.results],
    }
    return validated(document, "results")


def render_result(result: Result) -> dict[str, Any]:
    """One finished cell: an entry of `results.json`, and a line of `cells.jsonl`."""
    document = asdict(result)
    document.update(document.pop("cell"))
    return {
        "id": result.cell.id,
        **document,
        "max_ulp": result.max_ulp,
        "share_of_allowed": result.share_of_allowed,
        "bit_identical": result.bit_identical,
        "elapsed_ns": result.elapsed_ns,
    }


def render_line(result: Result) -> str:
    """One finished cell as a line of `cells.jsonl`."""
    return json.dumps(render_result(result), allow_nan=False) + "\n"


def read_lines(path: Path) -> list[Result]:
    """Read a `cells.jsonl`; a last line that was cut off when its run was killed is passed over.

    Raises:
        UsageError: another line is damaged.
    """
    if not path.exists():
        return []
    *whole, _ = path.read_bytes().split(b"\n")
    results = []
    for number, line in enumerate(whole, 1):
        try:
            results.append(_parse_result(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}:{number}: is damaged: expected a finished cell") from error
    return results


def read(path: Path) -> Report:
    """Read a `results.json`.

    Raises:
        UsageError: the file is missing, is not JSON, or doesn't follow its schema.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise UsageError(f"{path}: can't be read: {reason}; expected a finished run's results") from error
    except ValueError as error:
        raise UsageError(f"{path}: is damaged: {error}; expected a finished run's results") from error
    fault = find_schema_fault(document, "results")
    if fault:
        raise UsageError(f"{path}: is damaged: {fault}")
    return _parse(document)


def _parse(document: Mapping[str, Any]) -> Report:
    return Report(
        document["matrix"],
        document["compiler"],
        document["policies"],
        tuple(_parse_id(cell) for cell in document["planned"]),
        tuple(_parse_result(entry) for entry in document["cells"]),
        document["elapsed_ns"],
    )


def _parse_id(text: str) -> Cell:
    torch, model, target = text.split("/")
    return Cell(torch.removeprefix("torch-"), model, target)


def _parse_result(entry: Mapping[str, Any]) -> Result:
    return Result(
        Cell(entry["torch"], entry["model"], entry["target"]),
        entry["verdict"],
        entry["message"],
        tuple(StepResult(**_pick(StepResult, step)) for step in entry["steps"]),
        tuple(Finding(**_pick(Finding, finding)) for finding in entry["findings"]),
        tuple(OutputResult(**_pick(OutputResult, output)) for output in entry["outputs"]),
        entry["abi_conflicts"],
        entry["abi_missing"],
        entry["inputs"],
    )


def _pick(record: type, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The record's own fields: a newer harness of the same schema version may have written more."""
    return {field.name: entry[field.name] for field in fields(record)}


def validated(document: Mapping[str, Any], schema: str) -> dict[str, Any]:
    """A document that is about to be written, as its reader will get it, checked against its schema."""
    plain: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
    fault = find_schema_fault(plain, schema)
    assert fault is None, f"{schema}: breaks its own schema: {fault}"
    return plain


def find_schema_fault(document: object, schema: str) -> str | None:
    """The first place where a document breaks `schemas/<schema>.schema.json`, in one line."""
    import jsonschema

    text = files("cuvil_regress").joinpath("schemas", f"{schema}.schema.json").read_text(encoding="utf-8")
    error = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(json.loads(text)).iter_errors(document)
    )
    return None if error is None else f"{error.json_path}: {error.message[:200]}"
