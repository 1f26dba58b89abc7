"""A GPT-2-like decoder: token and position embeddings, two pre-norm blocks with a causal mask, tanh GELU.

The head has a matrix of its own: tied to the embedding, the special embedding rows would spoil the logits
of every token.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.models._cases import special_embedding, token_ids
from cuvil_regress.models._parameters import fill, halve_products

OUTPUTS = ("logits",)
BATCH, SEQUENCE, DIM, HEADS, BLOCKS, VOCABULARY = 4, 24, 48, 4, 2, 80


def build() -> Any:
    import torch
    from torch import nn

    class Decoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(VOCABULARY, DIM)
            self.position = nn.Embedding(SEQUENCE, DIM)
            self.blocks = nn.ModuleList(_block() for _ in range(BLOCKS))
            self.norm = nn.LayerNorm(DIM)
            self.head = nn.Linear(DIM, VOCABULARY, bias=False)
            self.register_buffer("steps", torch.arange(SEQUENCE))
            self.register_buffer("future", torch.ones(SEQUENCE, SEQUENCE).triu(1) > 0)

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.position(self.steps)
            for block in self.blocks:
                x = block(x, self.future)
            return self.head(self.norm(x))

    model = halve_products(fill(Decoder(), "gpt"))
    special_embedding(model.token, "gpt")
    return model


def _block() -> Any:
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.attention_norm = nn.LayerNorm(DIM)
            self.attention = _attention()
            self.feed_forward_norm = nn.LayerNorm(DIM)
            self.expand = nn.Linear(DIM, 4 * DIM)
            self.reduce = nn.Linear(4 * DIM, DIM)

        def forward(self, x: Any, future: Any) -> Any:
            attended = x + self.attention(self.attention_norm(x), future)
            return attended + self.reduce(_gelu(self.expand(self.feed_forward_norm(attended))))

    return Block()


def _gelu(x: Any) -> Any:
    """GPT-2's own form, written out: releases export the built-in one differently."""
    return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))).tanh())


def _attention() -> Any:
    from torch import nn

    class Attention(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(DIM, 3 * DIM)
            self.output = nn.Linear(DIM, DIM)

        def forward(self, x: Any, future: Any) -> Any:
            parts = self.project(x).reshape(BATCH, SEQUENCE, 3, HEADS, DIM // HEADS)
            query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
            scores = query.matmul(key.transpose(-2, -1)) / math.sqrt(DIM // HEADS)
            mixed = scores.masked_fill(future, -math.inf).softmax(-1).matmul(value)
            return self.output(mixed.transpose(1, 2).reshape(BATCH, SEQUENCE, DIM))

    return Attention()


def inputs(case: str) -> dict[str, NDArray[np.int64]]:
    return {"tokens": token_ids(case, "gpt/tokens", (BATCH, SEQUENCE), VOCABULARY)}
