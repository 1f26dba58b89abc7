"""A sequence tagger: embedded tokens, a bidirectional GRU (48 units each way), one tag a token.

The states are an output as well: each direction is ordinary until it meets the NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.models._cases import special_embedding, token_ids
from cuvil_regress.models._parameters import fill

OUTPUTS = ("tags", "states")
BATCH, SEQUENCE, FEATURES, HIDDEN, TAGS, VOCABULARY = 4, 16, 20, 48, 9, 50


def build() -> Any:
    from torch import nn

    class Tagger(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(VOCABULARY, FEATURES)
            self.gru = nn.GRU(FEATURES, HIDDEN, batch_first=True, bidirectional=True)
            self.tagger = nn.Linear(2 * HIDDEN, TAGS)

        def forward(self, tokens: Any) -> tuple[Any, Any]:
            states, _ = self.gru(self.token(tokens))
            return self.tagger(states), states

    model = fill(Tagger(), "gru")
    special_embedding(model.token, "gru")
    return model


def inputs(case: str) -> dict[str, NDArray[np.int64]]:
    return {"tokens": token_ids(case, "gru/tokens", (BATCH, SEQUENCE), VOCABULARY)}
