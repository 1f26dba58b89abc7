"""The C API from Python."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvil import toolchain
from cuvil.errors import CuvilError, ModelError, ToolchainError, UsageError
from cuvil.runtime_binding import SessionHandle, TensorInfo, aligned_empty, attach_model, load_model

from .conftest import Machine, ModelBuilder

X = np.linspace(1, 2, 1024, dtype=np.float32)


def test_load_and_run(host: Machine, build_model: ModelBuilder) -> None:
    model = load_model(build_model(host))
    assert (model.name, model.target) == ("scale", "native-linux")
    assert model.inputs == (TensorInfo("x", np.dtype(np.float32), (1024,), 4096),)
    session = SessionHandle(model, 2)
    (y,) = session.run([X])
    assert (y == X * np.float32(1.1)).all()
    assert y.flags.c_contiguous
    assert y.ctypes.data % 64 == 0
    assert session.worker_runs == 1
    assert SessionHandle(model, 1).run([X])[0] is not y


def test_session_outlives_the_names_of_its_model(host: Machine, build_model: ModelBuilder) -> None:
    session = SessionHandle(load_model(build_model(host)), 2)
    assert (session.run([X])[0] == X * np.float32(1.1)).all()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "inputs: wrong number; expected 1, got 0"),
        ([X, X], "inputs: wrong number; expected 1, got 2"),
        ([X.tolist()], "input 'x': expected a numpy array, got list"),
        ([X.astype(np.float64)], "input 'x': wrong dtype; expected float32, got float64"),
        ([X.astype(">f4")], "input 'x': wrong dtype; expected float32, got >f4"),
        ([X[:5]], r"input 'x': wrong shape; expected \(1024,\), got \(5,\)"),
        ([np.repeat(X, 2)[::2]], "input 'x': wrong memory layout"),
        ([np.frombuffer(b"\0" * 4097, np.uint8)[1:].view(np.float32)], "input 'x': wrong memory layout"),
    ],
)
def test_wrong_inputs_are_named(
    host: Machine, build_model: ModelBuilder, inputs: list[Any], message: str
) -> None:
    session = SessionHandle(load_model(build_model(host)), 1)
    with pytest.raises(UsageError, match=message):
        session.run(inputs)


def test_failures_of_the_library(host: Machine, build_model: ModelBuilder, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"no\.so': cannot be opened: No such file or directory"):
        load_model(tmp_path / "no.so")
    with pytest.raises(ModelError, match="expected magic"):
        load_model(build_model(host, MAGIC=7))
    other = next(target for target in toolchain.PLATFORMS if target != host.target)
    with pytest.raises(ToolchainError, match="built for another machine"):
        load_model(toolchain.prebuilt(other).runtime)
    model = load_model(build_model(host))
    with pytest.raises(UsageError, match="with -1 threads: invalid argument"):
        SessionHandle(model, -1)
    failing = X.copy()
    failing[0] = -2
    with pytest.raises(CuvilError, match="model 'scale': the model reported a failure"):
        SessionHandle(model, 1).run([failing])


def _parts(path: Path) -> tuple[ctypes.CDLL, np.ndarray[Any, np.dtype[np.int64]], bytes, int]:
    """The parts of a model library, as a JIT compiler has them."""
    library = ctypes.CDLL(str(path))
    info = np.array((ctypes.c_int64 * 23).in_dll(library, "cuvil_model_info"), np.int64)
    strings = bytes((ctypes.c_char * 23).in_dll(library, "cuvil_model_strings"))
    address = ctypes.cast(library.cuvil_model_run, ctypes.c_void_p).value
    assert address is not None
    return library, info, strings, address


def test_attach(host: Machine, build_model: ModelBuilder) -> None:
    library, info, strings, address = _parts(build_model(host))
    weights = aligned_empty(np.dtype(np.float32), (16,))
    weights[0] = 5
    model = attach_model(info, strings, weights, address, library)
    del info, strings, weights, library
    assert model.outputs == (TensorInfo("y", np.dtype(np.float32), (1024,), 4096),)
    assert (SessionHandle(model, 2).run([X])[0] == X * 5).all()


def test_attach_checks_sizes_and_alignment(host: Machine, build_model: ModelBuilder) -> None:
    library, info, strings, address = _parts(build_model(host))
    weights = aligned_empty(np.dtype(np.uint8), (128,))
    with pytest.raises(ModelError, match="weights modulo 64"):
        attach_model(info, strings, weights[4:], address, library)
    for words, text, data in (
        (info[:-1], strings, weights),
        (info, strings[:-1], weights),
        (info, strings, weights[:2]),
    ):
        with pytest.raises(ModelError, match="attached model: the sizes"):
            attach_model(words, text, data, address, library)
    with pytest.raises(ModelError, match="expected int64"):
        attach_model(info.astype(np.int32), strings, weights, address, library)


@given(index=st.integers(0, 22), value=st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 70))
def test_no_damaged_word_brings_the_process_down(
    host: Machine, build_model: ModelBuilder, index: int, value: int
) -> None:
    library, info, strings, address = _parts(build_model(host))
    info[index] = value
    try:
        model = attach_model(info, strings, aligned_empty(np.dtype(np.uint8), (64,)), address, library)
    except ModelError:
        return
    except ToolchainError:
        if index in {10, 11}:  # what the machine must have
            return
        raise
    # Sizes, names, features, and an element type of the same size look like another sound model.
    assert (
        index in {5, 6, 8, 9, 10, 11, 13, 14, 18, 19}
        or info.tolist() == _parts(build_model(host))[1].tolist()
    )
    assert all(info.size_bytes == 4096 for info in (*model.inputs, *model.outputs))


def test_python_threads_may_share_a_session(host: Machine, build_model: ModelBuilder) -> None:
    session = SessionHandle(load_model(build_model(host)), 2)
    wrong: list[int] = []

    def run_often(factor: int) -> None:
        x = X * factor
        for _ in range(100):
            if not (session.run([x])[0] == x * np.float32(1.1)).all():
                wrong.append(factor)

    threads = [threading.Thread(target=run_often, args=(factor,)) for factor in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert session.worker_runs == 300


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5, 7)])
def test_aligned_empty(shape: tuple[int, ...]) -> None:
    array = aligned_empty(np.dtype(np.float64), shape)
    assert (array.shape, array.dtype.str, array.ctypes.data % 64) == (shape, "<f8", 0)
