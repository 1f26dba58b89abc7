"""Goldens: what a model's outputs should be, where that comes from, and whether it is still intact.

    golden/<model>/golden.json        provenance and checksums
    golden/<model>/<case>/            a tensor folder of the outputs

The oracle is PyTorch's eager mode in float64 on the model's float32 parameters and inputs. A set (one model)
is written whole: a reader sees the old or the new one. Nothing here prints; the command line does.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from cuvil_regress import models, tensors
from cuvil_regress.comparer import compare_tensor
from cuvil_regress.errors import GoldenDamagedError, UsageError
from cuvil_regress.folders import replacing
from cuvil_regress.model import Finding
from cuvil_regress.policy import Policy

SCHEMA_VERSION = 1
RECORD = "golden.json"
POLICY = "oracle-fp32"
PRODUCER = "torch eager float64"
ORACLE_DTYPE, MODEL_DTYPE = "float64", "float32"
"""Of every floating-point output; integers and booleans are the same in both."""
LFS_FIRST_LINE = b"version https://git-lfs.github.com/spec/v1"

Array = NDArray[Any]
DriftState = Literal["new", "unchanged", "changed", "reshaped", "removed"]


@dataclass(frozen=True)
class Drift:
    """How one golden tensor moves in a refresh.

    `max_relative` is over elements whose stored value is not zero; `max_ulp` counts float64 ULP;
    `share_changed` is the share of elements whose bits change.
    """

    model: str
    case: str
    tensor: str
    state: DriftState
    max_relative: float = 0.0
    max_ulp: int = 0
    share_changed: float = 0.0


@dataclass(frozen=True)
class GoldenTensor:
    """One golden output: the oracle's values, and the dtype that the model itself gives."""

    values: Array
    model_dtype: str


@dataclass(frozen=True)
class Golden:
    """A verified golden set: `cases[case][output]`, and the record it came with."""

    model: str
    policy: str
    cases: Mapping[str, Mapping[str, GoldenTensor]]
    record: Mapping[str, Any]


def refresh(model_names: Sequence[str], reason: str, root: Path, *, accept: bool = True) -> list[Drift]:
    """Recomputes the goldens of the named models under `root` and tells how each tensor moves.

    A set of which nothing changes is left alone, with its provenance. With `accept=False` nothing is
    written: that is how drift is looked at before it is accepted.

    Raises:
        UsageError: `CI=true` is set, there is no reason, or a model is unknown.
        ToolMissingError: PyTorch is not installed.
    """
    if accept and os.environ.get("CI", "").lower() in ("true", "1"):
        raise UsageError("golden refresh: refused; expected a person to look at the drift, got CI=true")
    if accept and not reason.strip():
        raise UsageError("golden refresh: no reason; expected one line for the record, got an empty text")
    drifts: list[Drift] = []
    for name in model_names:
        drifts += _refresh_set(name, " ".join(reason.split()), root, accept)
    return drifts


def _refresh_set(name: str, reason: str, root: Path, accept: bool) -> list[Drift]:
    model = models.load(name)
    evaluations = {case: model.evaluate(case, "float64") for case in models.CASES}
    outputs = {case: evaluation.outputs for case, evaluation in evaluations.items()}
    first = evaluations[models.CASES[0]]
    producer = {
        "name": PRODUCER,
        "version": first.torch_version,
        "parameters_sha256": first.parameters_sha256,
    }
    drifts = list(_drifts(name, outputs, _stored_outputs(root / name)))
    intact = not verify(root, [name])
    if accept and not (intact and all(drift.state == "unchanged" for drift in drifts)):
        try:
            _write_set(root / name, model, outputs, producer, reason)
        except OSError as error:
            what = (error.strerror or "unknown reason").lower()
            raise UsageError(f"{root / name}: can't be written: {what}") from error
    return drifts


def _stored_outputs(folder: Path) -> dict[str, dict[str, Array]]:
    """What can be read of a stored set, damaged or not, by case."""
    stored: dict[str, dict[str, Array]] = {}
    for manifest in sorted(folder.glob(f"*/{tensors.MANIFEST}")):
        try:
            stored[manifest.parent.name] = tensors.read(manifest.parent)
        except tensors.TensorFolderError:
            stored[manifest.parent.name] = {}
    return stored


def _drifts(
    model: str, fresh: Mapping[str, Mapping[str, Array]], stored: Mapping[str, Mapping[str, Array]]
) -> Iterator[Drift]:
    for case in (*fresh, *(case for case in stored if case not in fresh)):
        ours, theirs = fresh.get(case, {}), stored.get(case, {})
        for name in (*ours, *(name for name in theirs if name not in ours)):
            yield _drift(model, case, name, ours.get(name), theirs.get(name))


def _drift(model: str, case: str, name: str, fresh: Array | None, stored: Array | None) -> Drift:
    if stored is None or fresh is None:
        return Drift(model, case, name, "new" if stored is None else "removed", share_changed=1.0)
    exact = Policy("exact", "bit for bit", rtol=0.0, allow_empty=True)
    found = compare_tensor(fresh, stored, exact)
    if found.verdict in ("shape", "dtype"):
        return Drift(model, case, name, "reshaped", share_changed=1.0)
    share = found.differing_bits / max(found.compared, 1)
    state: DriftState = "changed" if found.differing_bits else "unchanged"
    return Drift(model, case, name, state, found.max_rel_error, found.max_ulp or 0, share)


def _write_set(
    folder: Path,
    model: models.Model,
    outputs: Mapping[str, Mapping[str, Array]],
    producer: Mapping[str, str],
    reason: str,
) -> None:
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "model": model.name,
        "policy": POLICY,
        "reason": reason,
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"cuvil-regress golden refresh --model {model.name} --reason {shlex.quote(reason)}",
        "producer": dict(producer),
        "cases": {},
    }
    with replacing(folder) as fresh:
        for case, arrays in outputs.items():
            (fresh / case).mkdir()
            record["cases"][case] = _write_case(fresh / case, dict(arrays), model.inputs(case))
        record["sha256"] = _record_sha256(record)
        text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
        (fresh / RECORD).write_bytes(text.encode("utf-8"))


def _write_case(folder: Path, outputs: dict[str, Array], inputs: Mapping[str, Array]) -> dict[str, Any]:
    entries = tensors.write_into(folder, outputs)
    rows = [
        {
            "name": entry.name,
            "file": entry.file,
            "sha256": _file_sha256(folder / entry.file),
            "size_bytes": entry.size_bytes,
            "oracle_dtype": entry.dtype,
            "model_dtype": MODEL_DTYPE if entry.dtype == ORACLE_DTYPE else entry.dtype,
            "shape": list(entry.shape),
        }
        for entry in entries
    ]
    manifest = folder / tensors.MANIFEST
    return {
        "inputs": {name: _input_record(array) for name, array in inputs.items()},
        "manifest": {"sha256": _file_sha256(manifest), "size_bytes": manifest.stat().st_size},
        "tensors": rows,
    }


def _input_record(array: Array) -> dict[str, Any]:
    sha256 = hashlib.sha256(tensors.encode(array)).hexdigest()
    return {"sha256": sha256, "dtype": tensors.dtype_name(array), "shape": list(array.shape)}


def _file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _record_sha256(record: Mapping[str, Any]) -> str:
    """The checksum of a record's other fields: an edit to its reason or date shows as well."""
    rest = {key: value for key, value in record.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, ensure_ascii=False).encode("utf-8")).hexdigest()


def verify(root: Path, model_names: Sequence[str] | None = None) -> list[Finding]:
    """Checks stored goldens against their records, and those against the models' inputs of today.

    Args:
        model_names: the sets to check; by default those of all registered models and all that is there.

    Returns:
        Findings whose `check` names the fault: `golden-missing`, `golden-truncated`, `golden-changed`,
        `golden-lfs-pointer`, `golden-orphan`, `golden-unknown-schema`, `golden-stale`.
    """
    if model_names is not None:
        return [finding for name in model_names for finding in _verify_set(root / name)]
    entries = sorted(root.iterdir()) if root.is_dir() else []
    strays = [_orphan(entry) for entry in entries if not entry.is_dir()]
    folders = {entry.name for entry in entries if entry.is_dir()}
    names = sorted(folders | set(models.names()))
    return strays + [finding for name in names for finding in _verify_set(root / name)]


def require_names(root: Path, names: Sequence[str]) -> None:
    """Checks that each is the name of a model or of a stored set.

    Raises:
        UsageError: one is neither; the nearest is given.
    """
    known = sorted({*models.names(), *(entry.name for entry in root.iterdir() if entry.is_dir())})
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else None
            raise UsageError(
                f"golden: unknown model; expected one of {', '.join(known)}, got {name!r}", hint=hint
            )


def load(root: Path, model: str) -> Golden:
    """Loads one set; nothing that `verify` would object to is returned.

    Raises:
        GoldenDamagedError: the set is missing or damaged; its first fault is told.
    """
    folder = root / model
    for finding in _verify_set(folder):
        more = "check all with: cuvil-regress golden verify"
        raise GoldenDamagedError(f"{finding.file}: {finding.message}", hint=finding.hint or more)
    record = json.loads((folder / RECORD).read_bytes())
    cases = {case: _load_case(folder / case, rows["tensors"]) for case, rows in record["cases"].items()}
    return Golden(model, record["policy"], cases, record)


def _load_case(folder: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, GoldenTensor]:
    arrays = tensors.read(folder)
    described = [(row["name"], row["oracle_dtype"], tuple(row["shape"])) for row in rows]
    stored = [(name, tensors.dtype_name(array), array.shape) for name, array in arrays.items()]
    if described != stored:
        raise GoldenDamagedError(
            f"{folder}: manifest and record disagree; expected {described}, got {stored}"
        )
    return {row["name"]: GoldenTensor(arrays[row["name"]], row["model_dtype"]) for row in rows}


def _verify_set(folder: Path) -> list[Finding]:
    if not (folder / RECORD).is_file():
        what = f"no such file; expected the golden of the model {folder.name!r}"
        hint = f"make it by: cuvil-regress golden refresh --model {folder.name} --golden DIR --reason TEXT"
        return [_finding("missing", folder / RECORD, what, hint)]
    fault = _file_fault(folder / RECORD)
    if fault is None:
        fault, record = _parse_record(folder / RECORD)
    if fault is not None:
        return [fault]
    expected = _expected_files(record)
    if expected is None:
        return [_finding("changed", folder / RECORD, "lacks fields; expected a complete record")]
    faults = [_file_fault(folder / file, *known) for file, known in expected.items()]
    present = (path for path in sorted(folder.rglob("*")) if not path.is_dir())
    orphans = [_orphan(path) for path in present if path.relative_to(folder).as_posix() not in expected]
    orphans = [orphan for orphan in orphans if orphan.file != str(folder / RECORD)]
    return [fault for fault in faults if fault is not None] + orphans + _verify_inputs(folder, record)


def _file_fault(path: Path, sha256: str | None = None, size_bytes: int | None = None) -> Finding | None:
    """What is wrong with one file; without a checksum only what its first bytes tell."""
    if not path.is_file():
        return _finding("missing", path, "no such file; expected a part of the golden set")
    content = path.read_bytes()
    if content.startswith(LFS_FIRST_LINE):
        return _finding(
            "lfs-pointer",
            path,
            "is a git-lfs pointer; expected the data itself",
            "fetch it with: git lfs pull",
        )
    if size_bytes is not None and len(content) < size_bytes:
        return _finding("truncated", path, f"is truncated; expected {size_bytes} bytes, got {len(content)}")
    got = hashlib.sha256(content).hexdigest()
    if sha256 is not None and got != sha256:
        return _finding("changed", path, f"was changed; expected sha256 {sha256}, got {got}")
    return None


def _parse_record(path: Path) -> tuple[Finding | None, dict[str, Any]]:
    content = path.read_bytes()
    if not content.endswith(b"}\n"):
        return _finding("truncated", path, "is truncated; expected a closing brace and a line end"), {}
    try:
        record = json.loads(content)
    except ValueError as error:
        return _finding("changed", path, f"was changed; expected JSON, got {error}"), {}
    version = record.get("schema_version") if isinstance(record, dict) else None
    if version != SCHEMA_VERSION:
        message = f"unknown schema_version; expected {SCHEMA_VERSION}, got {version!r}"
        return _finding("unknown-schema", path, message, "a newer harness wrote it: update this one"), {}
    if record.get("sha256") != _record_sha256(record):
        return _finding("changed", path, "was changed; expected its own checksum to match its fields"), {}
    return None, record


def _expected_files(record: Mapping[str, Any]) -> dict[str, tuple[str, int]] | None:
    """Relative path -> checksum and size of every file of a set; None where the record is malformed."""
    expected: dict[str, tuple[str, int]] = {}
    try:
        for case, rows in record["cases"].items():
            manifest = rows["manifest"]
            expected[f"{case}/{tensors.MANIFEST}"] = (manifest["sha256"], manifest["size_bytes"])
            for row in rows["tensors"]:
                expected[f"{case}/{row['file']}"] = (row["sha256"], row["size_bytes"])
    except (KeyError, TypeError, AttributeError):
        return None
    return expected


def _verify_inputs(folder: Path, record: Mapping[str, Any]) -> list[Finding]:
    """Goldens of a registered model must belong to the inputs that it has today."""
    if folder.name not in models.names():
        return []
    model, found = models.load(folder.name), []
    for case in models.CASES:
        today = {name: _input_record(array) for name, array in model.inputs(case).items()}
        if record["cases"].get(case, {}).get("inputs") != today:
            message = f"is stale; expected today's inputs of case {case!r}, got a record of others"
            found.append(_finding("stale", folder / RECORD, message, "cuvil-regress golden refresh"))
    return found


def _orphan(path: Path) -> Finding:
    return _finding(
        "orphan", path, "belongs to no golden; expected only files that a record names", "delete it"
    )


def _finding(kind: str, path: Path, message: str, hint: str = "") -> Finding:
    return Finding(f"golden-{kind}", "error", message, subject=path.name, file=str(path), hint=hint)
