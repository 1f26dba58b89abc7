"""A small residual network: bottleneck blocks in two stages, 32 x 32 images, about 40 MFLOP a batch.

Channel counts are multiples of 24, not of 16, so that vector kernels meet their remainder loops. The batch
normalisation after the last addition follows no convolution: it stays a node of its own in the export. The
first stage's feature map is an output as well: there a NaN of the input has not reached every position.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.models._cases import values
from cuvil_regress.models._parameters import fill

OUTPUTS = ("logits", "stage1")
BATCH, IMAGE, CLASSES = 4, 32, 10
WIDTH, EXPANSION = 24, 4


def build() -> Any:
    from torch import nn

    outer1, outer2 = WIDTH * EXPANSION, 2 * WIDTH * EXPANSION

    class ResNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = _convolution(3, WIDTH, size=7, stride=2)
            self.relu = nn.ReLU()
            self.pool = nn.MaxPool2d(3, stride=2, padding=1)
            self.stage1 = nn.Sequential(_bottleneck(WIDTH, WIDTH, 1), _bottleneck(outer1, WIDTH, 1))
            self.stage2 = nn.Sequential(_bottleneck(outer1, 2 * WIDTH, 2), _bottleneck(outer2, 2 * WIDTH, 1))
            self.norm = nn.BatchNorm2d(outer2)
            self.average = nn.AdaptiveAvgPool2d(1)
            self.classifier = nn.Linear(outer2, CLASSES)

        def forward(self, image: Any) -> tuple[Any, Any]:
            stage1 = self.stage1(self.pool(self.relu(self.stem(image))))
            features = self.average(self.norm(self.stage2(stage1)))
            return self.classifier(features.flatten(1)), stage1

    return fill(ResNet(), "resnet")


def _bottleneck(channels: int, width: int, stride: int) -> Any:
    """A 1x1, a (strided) 3x3 and a 1x1 convolution, added to the input or to its 1x1 projection."""
    from torch import nn

    outer = width * EXPANSION

    class Bottleneck(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.ReLU()
            self.reduce = _convolution(channels, width, size=1, stride=1)
            self.spatial = _convolution(width, width, size=3, stride=stride)
            self.expand = _convolution(width, outer, size=1, stride=1)
            same = channels == outer and stride == 1
            self.shortcut = nn.Identity() if same else _convolution(channels, outer, size=1, stride=stride)

        def forward(self, x: Any) -> Any:
            inner = self.relu(self.spatial(self.relu(self.reduce(x))))
            return self.relu(self.expand(inner) + self.shortcut(x))

    return Bottleneck()


def _convolution(channels: int, outer: int, *, size: int, stride: int) -> Any:
    from torch import nn

    convolution = nn.Conv2d(channels, outer, size, stride=stride, padding=size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outer))


def inputs(case: str) -> dict[str, NDArray[np.float32]]:
    return {"image": values(case, "resnet/image", (BATCH, 3, IMAGE, IMAGE))}
