"""A transformer encoder block: four-head self-attention and a GELU (erf) feed-forward layer, pre-norm.

Attention is written out with matrix products and a softmax, so that every PyTorch release exports the same
operators.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.models._cases import values
from cuvil_regress.models._parameters import fill

OUTPUTS = ("encoded",)
BATCH, SEQUENCE, DIM, HEADS, FEED_FORWARD = 4, 32, 64, 4, 256


def build() -> Any:
    from torch import nn

    class Encoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.attention_norm = nn.LayerNorm(DIM)
            self.attention = _attention()
            self.feed_forward_norm = nn.LayerNorm(DIM)
            self.expand = nn.Linear(DIM, FEED_FORWARD)
            self.activation = nn.GELU()
            self.reduce = nn.Linear(FEED_FORWARD, DIM)

        def forward(self, tokens: Any) -> Any:
            attended = tokens + self.attention(self.attention_norm(tokens))
            return attended + self.reduce(self.activation(self.expand(self.feed_forward_norm(attended))))

    return fill(Encoder(), "encoder")


def _attention() -> Any:
    from torch import nn

    class Attention(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Linear(DIM, DIM)
            self.key = nn.Linear(DIM, DIM)
            self.value = nn.Linear(DIM, DIM)
            self.output = nn.Linear(DIM, DIM)
            self.softmax = nn.Softmax(dim=-1)

        def split(self, x: Any) -> Any:
            return x.reshape(BATCH, SEQUENCE, HEADS, DIM // HEADS).transpose(1, 2)

        def forward(self, x: Any) -> Any:
            query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
            scores = query.matmul(key.transpose(-2, -1)) / math.sqrt(DIM // HEADS)
            mixed = self.softmax(scores).matmul(value)
            return self.output(mixed.transpose(1, 2).reshape(BATCH, SEQUENCE, DIM))

    return Attention()


def inputs(case: str) -> dict[str, NDArray[np.float32]]:
    return {"tokens": values(case, "encoder/tokens", (BATCH, SEQUENCE, DIM))}
