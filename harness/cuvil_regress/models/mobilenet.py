"""A MobileNetV2-like network: inverted residuals with depthwise convolutions and ReLU6, 32 x 32 images.

Widths are multiples of 8, as in the original, so that vectors of 16 meet their remainders; both strides, a
block with a shortcut and blocks without one occur. The second block's feature map is an output as well:
there a NaN of the input has not reached every position.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.models._cases import values
from cuvil_regress.models._parameters import fill

OUTPUTS = ("logits", "features")
BATCH, IMAGE, CLASSES = 4, 32, 10
STEM, HEAD = 16, 120


def build() -> Any:
    from torch import nn

    class MobileNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = _convolution(3, STEM, size=3, stride=2)
            self.early = nn.Sequential(_inverted(STEM, 8, 1, expansion=1), _inverted(8, 24, 2, expansion=6))
            self.late = nn.Sequential(_inverted(24, 24, 1, expansion=6), _inverted(24, 40, 2, expansion=6))
            self.head = _convolution(40, HEAD, size=1, stride=1)
            self.average = nn.AdaptiveAvgPool2d(1)
            self.classifier = nn.Linear(HEAD, CLASSES)

        def forward(self, image: Any) -> tuple[Any, Any]:
            features = self.early(self.stem(image))
            pooled = self.average(self.head(self.late(features)))
            return self.classifier(pooled.flatten(1)), features

    return fill(MobileNet(), "mobilenet")


def _inverted(channels: int, outputs: int, stride: int, expansion: int) -> Any:
    """Widened by a 1x1, filtered channel by channel, narrowed by a linear 1x1; added where shapes allow."""
    from torch import nn

    width = channels * expansion

    class Inverted(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.expand = _convolution(channels, width, size=1, stride=1) if expansion > 1 else nn.Identity()
            self.depthwise = _convolution(width, width, size=3, stride=stride, groups=width)
            self.project = nn.Sequential(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            narrowed = self.project(self.depthwise(self.expand(x)))
            return x + narrowed if stride == 1 and channels == outputs else narrowed

    return Inverted()


def _convolution(channels: int, filters: int, size: int, stride: int, groups: int = 1) -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(channels, filters, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(filters),
        nn.ReLU6(),
    )


def inputs(case: str) -> dict[str, NDArray[np.float32]]:
    return {"image": values(case, "mobilenet/image", (BATCH, 3, IMAGE, IMAGE))}
