"""Scene: the fixed and the moving image of a registration, each a Side with its data, mask and grid."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from warpfactor.geometry.grid import Grid


@dataclass(frozen=True)
class Side:
    """One of the two images, standardised to mean 0 and standard deviation 1 per channel.

    Attributes:
        data: (C, D, H, W), floating-point, or whole numbers in units of their own.
        mask: (D, H, W) uint8, 0 where a voxel must not count; None counts all.
        grid: the voxel grid of the image.
        scale: the (mean, SD) per channel with which the image was standardised.
        units: what to multiply each channel by for standardised intensities; None if it has these already.
        nonfinite: number of NaN or infinite voxels of the image as it was given; they are masked.
    """

    data: Tensor
    mask: Tensor | None
    grid: Grid
    scale: tuple[tuple[float, float], ...]
    units: tuple[float, ...] | None = None
    nonfinite: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """(D, H, W)."""
        d, h, w = self.data.shape[1:]
        return d, h, w

    @property
    def channel_units(self) -> tuple[float, ...]:
        """The units of every channel; 1 where the data are standardised intensities."""
        return self.units or (1.0,) * len(self.scale)

    def single(self) -> Side:
        """This side with standardised intensities in single precision; itself if it has them."""
        if self.units is None:
            return self
        return replace(self, data=in_single(self.data, self.units), units=None)


@dataclass(frozen=True)
class OfFixed:
    """The key of a note about single voxels of the fixed image; it no longer holds for a fixed image that moved."""

    key: object


@dataclass(frozen=True)
class Scene:
    """A fixed and a moving image.

    Attributes:
        fixed, moving: the two sides.
        notes: what has been measured of these images, so that it is measured once.
    """

    fixed: Side
    moving: Side
    notes: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def device(self) -> torch.device:
        return self.fixed.data.device

    @property
    def shape(self) -> tuple[int, int, int]:
        """(D, H, W) of the fixed image."""
        return self.fixed.shape

    @property
    def sides(self) -> tuple[Side, Side]:
        """Fixed, then moving."""
        return self.fixed, self.moving

    def swapped(self) -> Scene:
        """The same two images with their roles exchanged."""
        return Scene(self.moving, self.fixed)

    def with_fixed(self, side: Side) -> Scene:
        """The scene with its fixed image moved or warped; what was measured of the images as a whole still holds."""
        moved = Scene(side, self.moving)
        moved.notes.update({key: note for key, note in self.notes.items() if not isinstance(key, OfFixed)})
        return moved

    def single(self) -> Scene:
        """The scene with standardised intensities in single precision; itself if it has them."""
        if all(side.units is None for side in self.sides):
            return self
        return Scene(self.fixed.single(), self.moving.single())


def in_single(images: Tensor, units: tuple[float, ...] | None) -> Tensor:
    """(C, D, H, W) numbers times their units, in single precision."""
    if units is None:
        return images
    factors = torch.tensor(units, dtype=torch.float32, device=images.device)
    return images.to(torch.float32).mul_(factors.reshape(-1, 1, 1, 1))


def sampled(image: Tensor, mask: Tensor | None, limit: int) -> Tensor:
    """The values of about `limit` voxels spread over those that count; of all if there are less than twice as many.

    Args:
        image: of any shape.
        mask: of the same shape, not zero where a voxel counts; None counts all.
    """
    count = image.numel() if mask is None else int(torch.count_nonzero(mask))
    every = max(1, count // limit)
    while every > 1 and math.gcd(every, image.shape[-1]) > 1:  # not the same columns in every row
        every += 1
    values = image.reshape(-1)[::every]
    return values if mask is None else values[mask.reshape(-1)[::every] != 0]
