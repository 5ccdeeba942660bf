"""What is outside an image: more of its background, which is air in a CT and white around a section."""

from __future__ import annotations

import torch
from torch import Tensor

from warpfactor.scene.object import rim

SHARE = 0.15  # of the border at least has one value, or that is no background
EVEN = 0.1  # of the image's range: a border whose middle half lies closer together is all background
DARK = 0.01  # quantile of a border that shows the object
SAMPLES = 200_000


def background(channel: Tensor) -> float:
    """The background value of one (D, H, W) channel, by its border.

    The commonest value, if it is common; else the median of an even border; else a dark value of it. Zero if nothing
    there is finite.
    """
    border = _finite(rim(channel))
    if not border.numel():
        border = _finite(channel.reshape(-1))
    if not border.numel():
        return 0.0
    values, counts = torch.unique(border, return_counts=True)
    if int(counts.max()) >= SHARE * border.numel():
        return float(values[counts.argmax()])
    low, middle, high = torch.quantile(border, torch.tensor([0.25, 0.5, 0.75], dtype=border.dtype)).tolist()
    every = _finite(channel.reshape(-1))
    width = float(torch.quantile(every, 0.99) - torch.quantile(every, 0.01))
    return middle if high - low <= EVEN * width else float(torch.quantile(border, DARK))


def _finite(values: Tensor) -> Tensor:
    """Some of the finite values, in floating point."""
    some = values[:: 1 + values.numel() // SAMPLES].cpu().to(torch.float32)
    return some[torch.isfinite(some)]
