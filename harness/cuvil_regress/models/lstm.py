"""A sequence classifier: two LSTM layers (batch first, 64 units), the last step classified.

The whole hidden sequence is an output as well: its steps before a NaN of the input are ordinary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.models._cases import values
from cuvil_regress.models._parameters import fill

OUTPUTS = ("logits", "sequence")
BATCH, SEQUENCE, FEATURES, HIDDEN, LAYERS, CLASSES = 4, 16, 20, 64, 2, 10


def build() -> Any:
    from torch import nn

    class Classifier(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(FEATURES, HIDDEN, num_layers=LAYERS, batch_first=True)
            self.classifier = nn.Linear(HIDDEN, CLASSES)

        def forward(self, steps: Any) -> tuple[Any, Any]:
            sequence, _ = self.lstm(steps)
            return self.classifier(sequence[:, -1]), sequence

    return fill(Classifier(), "lstm")


def inputs(case: str) -> dict[str, NDArray[np.float32]]:
    return {"steps": values(case, "lstm/steps", (BATCH, SEQUENCE, FEATURES))}
