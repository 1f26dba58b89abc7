"""A multilayer perceptron for 28 x 28 images: 784-128-10, ReLU between.

The hidden layer is an output as well. Its first sixteen units have no bias, so that subnormal inputs reach
an output: a target that flushes them to zero shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.models._cases import values
from cuvil_regress.models._parameters import fill

OUTPUTS = ("logits", "hidden")
BATCH, FEATURES, HIDDEN, CLASSES = 4, 784, 128, 10
UNBIASED = 16


def build() -> Any:
    from torch import nn

    class Perceptron(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.hidden = nn.Linear(FEATURES, HIDDEN)
            self.activation = nn.ReLU()
            self.classifier = nn.Linear(HIDDEN, CLASSES)

        def forward(self, image: Any) -> tuple[Any, Any]:
            hidden = self.activation(self.hidden(image))
            return self.classifier(hidden), hidden

    model = fill(Perceptron(), "mlp")
    model.hidden.bias.data[:UNBIASED] = 0
    return model


def inputs(case: str) -> dict[str, NDArray[np.float32]]:
    return {"image": values(case, "mlp/image", (BATCH, FEATURES))}
