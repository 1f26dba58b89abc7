"""A U-Net-like segmenter: three scales, skip connections, 32 x 32 images.

The way up has each of the usual steps once: a transposed convolution, a bilinear and a nearest resize. The
second skip is an output as well: there a NaN of the input has not reached every position.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.models._cases import values
from cuvil_regress.models._parameters import fill

OUTPUTS = ("mask", "skip")
BATCH, IMAGE, CLASSES = 4, 32, 3
WIDTHS = (12, 20, 24, 28)


def build() -> Any:
    import torch
    from torch import nn

    first, second, third, bottom = WIDTHS

    class UNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2 = _convolution(3, first), _convolution(first, second)
            self.down3, self.bottom = _convolution(second, third), _convolution(third, bottom)
            self.pool = nn.MaxPool2d(2)
            self.deconvolution = nn.ConvTranspose2d(bottom, third, 2, stride=2)
            self.bilinear = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
            self.nearest = nn.Upsample(scale_factor=2, mode="nearest")
            self.up3 = _convolution(2 * third, third)
            self.up2, self.up1 = _convolution(third + second, second), _convolution(second + first, first)
            self.head = nn.Conv2d(first, CLASSES, 1)

        def forward(self, image: Any) -> tuple[Any, Any]:
            skip1 = self.down1(image)
            skip2 = self.down2(self.pool(skip1))
            skip3 = self.down3(self.pool(skip2))
            deep = self.deconvolution(self.bottom(self.pool(skip3)))
            up3 = self.up3(torch.cat((deep, skip3), 1))
            up2 = self.up2(torch.cat((self.bilinear(up3), skip2), 1))
            return self.head(self.up1(torch.cat((self.nearest(up2), skip1), 1))), skip2

    return fill(UNet(), "unet")


def _convolution(channels: int, filters: int) -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(channels, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()
    )


def inputs(case: str) -> dict[str, NDArray[np.float32]]:
    return {"image": values(case, "unet/image", (BATCH, 3, IMAGE, IMAGE))}
