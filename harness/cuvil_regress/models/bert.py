"""A BERT-like encoder: token, segment and position embeddings, two post-norm blocks, an attention mask.

The mask leaves out the end of each sequence by a large negative number, as the original does. The pooled
first token is an output beside the encoded sequence.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.models._cases import special_embedding, token_ids
from cuvil_regress.models._parameters import fill, halve_products
from cuvil_regress.philox import words

OUTPUTS = ("encoded", "pooled")
BATCH, SEQUENCE, DIM, HEADS, BLOCKS, VOCABULARY = 4, 24, 64, 4, 2, 96
MASKED = -10000.0


def build() -> Any:
    import torch
    from torch import nn

    class Bert(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(VOCABULARY, DIM)
            self.segment = nn.Embedding(2, DIM)
            self.position = nn.Embedding(SEQUENCE, DIM)
            self.norm = nn.LayerNorm(DIM)
            self.blocks = nn.ModuleList(_block() for _ in range(BLOCKS))
            self.pooler = nn.Linear(DIM, DIM)
            self.register_buffer("steps", torch.arange(SEQUENCE))

        def forward(self, tokens: Any, segments: Any, mask: Any) -> tuple[Any, Any]:
            embedded = self.token(tokens) + self.segment(segments) + self.position(self.steps)
            x = self.norm(embedded)
            penalty = (1 - mask).to(x.dtype).reshape(BATCH, 1, 1, SEQUENCE) * MASKED
            for block in self.blocks:
                x = block(x, penalty)
            return x, self.pooler(x[:, 0]).tanh()

    model = halve_products(fill(Bert(), "bert"))
    special_embedding(model.token, "bert")
    return model


def _block() -> Any:
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(DIM, DIM) for _ in range(3))
            self.output = nn.Linear(DIM, DIM)
            self.attention_norm = nn.LayerNorm(DIM)
            self.expand = nn.Linear(DIM, 4 * DIM)
            self.activation = nn.GELU()
            self.reduce = nn.Linear(4 * DIM, DIM)
            self.output_norm = nn.LayerNorm(DIM)

        def split(self, x: Any) -> Any:
            return x.reshape(BATCH, SEQUENCE, HEADS, DIM // HEADS).transpose(1, 2)

        def attend(self, x: Any, penalty: Any) -> Any:
            query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
            scores = query.matmul(key.transpose(-2, -1)) / math.sqrt(DIM // HEADS) + penalty
            mixed = scores.softmax(-1).matmul(value)
            return self.output(mixed.transpose(1, 2).reshape(BATCH, SEQUENCE, DIM))

        def forward(self, x: Any, penalty: Any) -> Any:
            attended = self.attention_norm(x + self.attend(x, penalty))
            return self.output_norm(attended + self.reduce(self.activation(self.expand(attended))))

    return Block()


def inputs(case: str) -> dict[str, NDArray[np.int64]]:
    """Sequences of different lengths; in `special` the last one has a single token that counts."""
    tokens = token_ids(case, "bert/tokens", (BATCH, SEQUENCE), VOCABULARY)
    segments = words(f"bert/segments/{case}", BATCH * SEQUENCE).reshape(BATCH, SEQUENCE) % 2
    lengths = np.array([SEQUENCE, 20, 16, 9 if case == "ordinary" else 1])
    mask = np.arange(SEQUENCE) < lengths[:, None]
    return {"tokens": tokens, "segments": segments.astype(np.int64), "mask": mask.astype(np.int64)}
