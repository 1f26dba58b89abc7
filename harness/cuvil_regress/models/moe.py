"""A mixture of experts: each token goes through two of eight small networks, chosen by a router.

The chosen experts are an output, compared as integers, so the choice must be no coin toss: for all inputs
the logits of the first three choices lie at least `MARGIN` apart. A logit that is not finite is replaced by
its expert's fixed rank, so that tokens with NaN or Inf have a defined choice, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.models._cases import values
from cuvil_regress.models._parameters import fill

OUTPUTS = ("mixed", "experts")
BATCH, SEQUENCE, DIM, WIDTH, EXPERTS, CHOSEN = 4, 6, 32, 64, 8, 2
MARGIN = 1e-3


def build() -> Any:
    import torch
    from torch import nn

    class Mixture(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(DIM, EXPERTS)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(DIM, WIDTH), nn.ReLU(), nn.Linear(WIDTH, DIM)) for _ in range(EXPERTS)
            )
            self.register_buffer("ranks", torch.arange(EXPERTS))

        def route(self, tokens: Any) -> Any:
            """The logits; `x - x` is 0 for finite x alone."""
            logits = self.router(tokens)
            return torch.where(logits - logits == 0, logits, self.ranks.to(logits.dtype))

        def forward(self, tokens: Any) -> tuple[Any, Any]:
            best, chosen = self.route(tokens).topk(CHOSEN, dim=-1)
            shares = torch.zeros(BATCH, SEQUENCE, EXPERTS, dtype=best.dtype)
            shares = shares.scatter(-1, chosen, best.softmax(-1))
            results = torch.stack([expert(tokens) for expert in self.experts], dim=-2)
            return (shares.unsqueeze(-1) * results).sum(-2) + tokens, chosen

    return fill(Mixture(), "moe")


def inputs(case: str) -> dict[str, NDArray[np.float32]]:
    return {"tokens": values(case, "moe/tokens", (BATCH, SEQUENCE, DIM))}
