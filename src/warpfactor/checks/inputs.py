"""Files that can be read and are yet hardly what was meant: labels as an image, an image as a mask, a wrong spacing.

Of neighbours that are not both background, 67 to 98 in 100 are equal in label maps and masks of brains, hippocampi,
lungs and slices, and 13 at most in images of the same, of livers and of heads (86 files).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image

SAMPLES = 200_000  # voxels looked at
MANY_LABELS = 500  # whole-brain parcellations have fewer
MANY_MASK_VALUES = 20
EVEN = 0.5  # share of equal neighbours that only label maps reach
UNEVEN = 0.3  # share that no mask falls below
FEW_VOXELS = 8  # along the longest axis: such an image is short whatever its spacing
FAR_IN_SIZE = 8.0  # images of one thing are not that different in length; inches and millimetres are


@dataclass(frozen=True)
class Texture:
    """What tells an image from a label map.

    Attributes:
        whole: whether all values are whole numbers.
        count: how many different values there are.
        evenness: share of neighbours with equal values, of those that are not both background; 1 if there are none.
    """

    whole: bool
    count: int
    evenness: float


def texture(channel: Tensor) -> Texture:
    """The texture of a (D, H, W) channel, by a sample of its rows."""
    rows = channel.reshape(-1, channel.shape[-1])
    sample = rows[:: 1 + rows.numel() // SAMPLES].cpu().numpy()
    values, counts = np.unique(sample, return_counts=True)
    background = values[counts.argmax()]
    left, right = sample[:, :-1], sample[:, 1:]
    shown = (left != background) | (right != background)
    evenness = float((left == right)[shown].mean()) if shown.any() else 1.0
    return Texture(bool((values == np.round(values)).all()), len(values), evenness)


def looks_like_labels(image: Image) -> bool:
    found = texture(image.data[0]) if image.channels == 1 else None
    return found is not None and found.whole and 1 < found.count <= MANY_LABELS and found.evenness > EVEN


def warn_of_labels(fixed: Image, moving: Image) -> None:
    """A warning if one of two images is a label map; two label maps are registered on purpose."""
    first, second = looks_like_labels(fixed), looks_like_labels(moving)
    if first != second:
        _warn(
            f"{(fixed if first else moving).name} looks like a label map, not like an image; "
            "register the image that it belongs to, and carry the labels along."
        )


def warn_of_sizes(fixed: Image, moving: Image) -> None:
    """A warning if one image is so much longer than the other that a spacing must be wrong."""
    small, large = sorted((fixed, moving), key=lambda image: _length_mm(image.grid))
    lengths = _length_mm(small.grid), _length_mm(large.grid)
    if max(small.grid.shape) >= FEW_VOXELS and lengths[1] > FAR_IN_SIZE * lengths[0]:
        _warn(
            f"{large.name} is {lengths[1]:.3g} mm long and {small.name} {lengths[0]:.3g} mm; "
            "check the spacing of both (a PNG or JPEG counts as 1 mm a pixel, a TIFF by its resolution)."
        )


def warn_of_image_as_mask(name: str, channel: Tensor) -> None:
    """A warning if what is given as a mask, (D, H, W), varies from voxel to voxel."""
    found = texture(channel)
    if found.count > MANY_MASK_VALUES and found.evenness < UNEVEN:
        share = int((channel != 0).sum()) / channel.numel()
        _warn(
            f"{name} looks like an image, not like a mask; all that is not zero counts as inside, "
            f"{100 * share:.0f} % of it, so give a mask that is zero outside."
        )


def _length_mm(grid: Grid) -> float:
    return max(n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True) if n > 1)


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)
