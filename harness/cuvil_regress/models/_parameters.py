"""Fills a module's parameters and buffers from Philox, and fingerprints them."""

from __future__ import annotations

import hashlib
import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.philox import uniform


def fill(module: Any, model: str) -> Any:
    """Gives each floating-point parameter and buffer its fixed values; returns the module in eval mode.

    Matrices and filters are scaled for ReLU networks (He) to the next lower power of two; scales and
    running variances lie around 1, biases and running means around 0, and none is trivial.
    """
    torch = importlib.import_module("torch")
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.from_numpy(_values(f"{model}/{name}", tuple(tensor.shape))))
    return module.eval()


def halve_products(module: Any) -> Any:
    """Halves the matrices of all linear layers; returns the module.

    What `fill` gives suits ReLU networks. In deep transformers it makes rounding errors grow from block to
    block, and a golden policy would have to allow for that.
    """
    torch = importlib.import_module("torch")
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, torch.nn.Linear):
                layer.weight.mul_(0.5)
    return module


def _values(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    if len(shape) > 1:
        return uniform(name, shape, exponent=_he_exponent(int(np.prod(shape[1:]))))
    if name.endswith("running_var"):
        return np.float32(1) + uniform(name, shape, exponent=-1)
    if name.endswith("weight"):
        return np.float32(1) + uniform(name, shape, exponent=-2)
    return uniform(name, shape, exponent=-3)


def _he_exponent(fan_in: int) -> int:
    """The largest e <= 0 with 2**e <= sqrt(6 / fan_in), found in integers."""
    exponent = 0
    while fan_in > 6 * 4**-exponent:
        exponent -= 1
    return exponent


def digest(module: Any) -> str:
    """The SHA-256 of all parameters and buffers: names, dtypes, shapes and bytes, in the order of names."""
    sha = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        array = np.ascontiguousarray(tensor.detach().numpy())
        sha.update(f"{name} {array.dtype.name} {list(array.shape)}\n".encode())
        sha.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return sha.hexdigest()
