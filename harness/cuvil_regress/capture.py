"""Captures a model in a PyTorch release's own environment, in a process of its own:

    python -m cuvil_regress.capture MODEL OUT_DIR [--opset 17]

    OUT_DIR/model.onnx        the TorchScript exporter's model, the same bytes for the same release
    OUT_DIR/cases/<case>/     tensor folders of the inputs
    OUT_DIR/eager/<case>/     tensor folders of this release's float32 eager outputs
    OUT_DIR/capture.json      what was captured, and by what; written last, so its presence means success

The TorchScript exporter is pinned because it is the one that every release from 1.13 on has. It needs the
`onnx` package beside torch, and nothing else of the harness's dependencies but NumPy.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import inspect
import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cuvil_regress import models, tensors
from cuvil_regress.errors import HarnessError, ToolMissingError, UsageError
from cuvil_regress.folders import replacing, write_file

SCHEMA_VERSION = 1
OPSET = 17
OPSETS = range(9, 21)
"""What TorchScript exporters speak; a single release may know fewer of them."""
RECORD = "capture.json"


class CaptureError(HarnessError):
    """The exporter of this PyTorch release failed, or gave another model than asked for."""


def capture(name: str, folder: Path, *, opset: int = OPSET) -> dict[str, Any]:
    """Captures a model into `folder` and returns the record that `capture.json` holds.

    Raises:
        UsageError: there is no such model, or no TorchScript exporter speaks the opset.
        ToolMissingError: torch or onnx can't be imported.
        CaptureError: the exporter failed.
    """
    model = models.load(name)
    if opset not in OPSETS:
        raise UsageError(f"opset: out of range; expected {OPSETS[0]} to {OPSETS[-1]}, got {opset}")
    (folder / RECORD).unlink(missing_ok=True)
    content = export(model, opset)
    evaluations = {case: model.evaluate(case, "float32") for case in models.CASES}
    write_file(folder / "model.onnx", content)
    _write_cases(folder / "cases", {case: model.inputs(case) for case in models.CASES})
    _write_cases(folder / "eager", {case: found.outputs for case, found in evaluations.items()})
    record = _record(model, evaluations[models.CASES[0]], opset, hashlib.sha256(content).hexdigest())
    write_file(folder / RECORD, (json.dumps(record, indent=2) + "\n").encode("utf-8"))
    return record


def _write_cases(folder: Path, cases: Mapping[str, Mapping[str, models.Array]]) -> None:
    with replacing(folder) as fresh:
        for case, arrays in cases.items():
            tensors.write(fresh / case, arrays)


def _record(model: models.Model, found: models.Evaluation, opset: int, sha256: str) -> dict[str, Any]:
    def describe(arrays: Mapping[str, models.Array]) -> list[dict[str, Any]]:
        return [
            {"name": name, "dtype": tensors.dtype_name(array), "shape": list(array.shape)}
            for name, array in arrays.items()
        ]

    return {
        "schema_version": SCHEMA_VERSION,
        "model": model.name,
        "torch": found.torch_version,
        "exporter": "torchscript",
        "opset": opset,
        "model_sha256": sha256,
        "parameters_sha256": found.parameters_sha256,
        "cases": list(models.CASES),
        "inputs": describe(model.inputs(models.CASES[0])),
        "outputs": describe(found.outputs),
    }


def export(model: models.Model, opset: int = OPSET) -> bytes:
    """Exports a model to ONNX by the TorchScript exporter and removes what depends on the machine."""
    torch, onnx = models.require_torch(), _require_onnx()
    module, inputs = model.build(), model.inputs(models.CASES[0])
    stream = io.BytesIO()
    with _quiet():
        try:
            torch.onnx.export(
                module,
                tuple(torch.from_numpy(array) for array in inputs.values()),
                stream,
                input_names=list(inputs),
                output_names=list(model.outputs),
                opset_version=opset,
                do_constant_folding=True,
                **_pinned_exporter(torch.onnx.export),
            )
        except Exception as error:  # the exporter raises whatever its many layers raise
            first_line = str(error).strip().partition("\n")[0]
            message = (
                f"model {model.name!r}: torch {torch.__version__} can't export it; expected an ONNX model"
            )
            raise CaptureError(f"{message}, got {type(error).__name__}: {first_line}") from error
    return _portable(onnx.load_model_from_string(stream.getvalue()), model.name, opset)


def _pinned_exporter(export_function: Any) -> dict[str, bool]:
    """`dynamo=False` where this release's exporter has the choice; older ones know TorchScript only."""
    return {"dynamo": False} if "dynamo" in inspect.signature(export_function).parameters else {}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences what an export says, whatever the release: its deprecation, LSTM and diagnostics notices.

    The notices differ from release to release and none is about these models: their batch is fixed. An
    error is not silenced.
    """
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _require_onnx() -> Any:
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise ToolMissingError(
            f"onnx: can't be imported; expected it beside torch, got {error}", hint="pip install onnx"
        ) from error


def _portable(proto: Any, name: str, opset: int) -> bytes:
    """Drops doc strings (they hold source paths and line numbers) and serializes in a fixed order.

    Node names stay: they say where in the module a node comes from.
    """
    found = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if found != [opset]:
        raise CaptureError(f"model {name!r}: wrong opset; expected {opset}, got {found}")
    proto.doc_string = ""
    _drop_doc_strings(proto.graph)
    proto.graph.name = name
    return bytes(proto.SerializeToString(deterministic=True))


def _drop_doc_strings(graph: Any) -> None:
    graph.doc_string = ""
    for part in (*graph.input, *graph.output, *graph.value_info, *graph.initializer, *graph.node):
        part.doc_string = ""
    for node in graph.node:
        for attribute in node.attribute:
            attribute.doc_string = ""
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _drop_doc_strings(inner)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cuvil_regress.capture", description="Capture one model.")
    parser.add_argument("model", metavar="MODEL", help=f"one of {', '.join(models.names())}")
    parser.add_argument("folder", metavar="OUT_DIR", type=Path)
    parser.add_argument("--opset", type=int, default=OPSET)
    options = parser.parse_args(arguments)
    try:
        record = capture(options.model, options.folder, opset=options.opset)
    except HarnessError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    print(json.dumps({key: record[key] for key in ("model", "torch", "opset", "model_sha256")}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
