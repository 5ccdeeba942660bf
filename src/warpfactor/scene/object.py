"""What an image shows, the voxels that differ from its background; and the value of the background.

The background value stands for what is outside an image: air in a CT, white around a section.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpfactor.geometry.grid import slabs
from warpfactor.scene.scene import Side, sampled

BINS = 128  # of the histogram that separates object and background
BRIGHTEST = 0.99  # values above this quantile count as if they were at it
SAMPLES = 1_000_000  # voxels by which they are separated
SHARE = 0.15  # of the border at least has one value, or that is no background
EVEN = 0.1  # of the image's range: a border whose middle half lies closer together is all background
DARK = 0.01  # quantile of a border that shows the object
BORDER_SAMPLES = 200_000


def shown(side: Side) -> Tensor:
    """(D, H, W) bool: where the image of a side shows something inside its mask; never empty."""
    return foreground(side.data, side.mask)


def foreground(image: Tensor, mask: Tensor | None, borders: Sequence[float] | None = None) -> Tensor:
    """(D, H, W) bool: where a (C, D, H, W) image shows something inside its mask; never empty.

    The threshold is that of a sample if the image is large. `borders` are the background values of the channels; the
    medians of their borders without.
    """
    borders = [_border_value(channel, mask) for channel in image] if borders is None else borders
    threshold = _otsu(_difference([sampled(channel, mask, SAMPLES) for channel in image], borders).cpu().numpy())
    found = torch.empty_like(image[0], dtype=torch.bool)
    for planes in slabs(image.shape[1:]):
        torch.gt(_difference(image[:, planes], borders), threshold, out=found[planes])
        if mask is not None:
            found[planes] &= mask[planes] > 0
    if bool(found.any()):
        return found
    return found.fill_(True) if mask is None else mask > 0


def _difference(channels: Iterable[Tensor], borders: Sequence[float]) -> Tensor:
    """Sum over the channels of |value - border value|."""
    parts = [(channel - border).abs_() for channel, border in zip(channels, borders, strict=True)]
    for part in parts[1:]:
        parts[0] += part
    return parts[0]


def _border_value(image: Tensor, mask: Tensor | None) -> float:
    """Median of the outermost valid voxels; of all valid ones if the mask has none at the border."""
    values = rim(image)
    if mask is not None:
        values = values[rim(mask) > 0]
    return float((values if values.numel() else sampled(image, mask, SAMPLES)).median())


def rim(volume: Tensor) -> Tensor:
    """The outermost voxels, (N,), each once; axes of one or two voxels have no inside and are passed over."""
    parts = []
    for axis in range(3):
        n = volume.shape[axis]
        if n > 2:
            parts += [volume.select(axis, 0).flatten(), volume.select(axis, n - 1).flatten()]
            volume = volume.narrow(axis, 1, n - 2)
    return torch.cat(parts) if parts else volume.new_empty(0)


def _otsu(values: NDArray[np.float32]) -> float:
    """The threshold that separates two classes with the largest variance between them, whatever the brightest do."""
    values = np.minimum(values, np.quantile(values, BRIGHTEST))
    count, edges = np.histogram(values, BINS)
    middle = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(count)[:-1]
    above = len(values) - below
    mass = np.cumsum(count * middle)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = mass[:-1] / below - (mass[-1] - mass[:-1]) / above
    between = np.nan_to_num(below * above * gap**2, posinf=0.0)
    return float(edges[1 + int(np.argmax(between))])


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
    some = values[:: 1 + values.numel() // BORDER_SAMPLES].cpu().to(torch.float32)
    return some[torch.isfinite(some)]
