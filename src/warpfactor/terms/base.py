"""What a similarity is: a frozen setting that, given the images of one level, makes a cost to be minimised.

A cost is called with a displacement and a buffer and returns how unlike the images are, the gradient in the buffer.
What is done once a level (`prepare`) and what in every iteration (`Cost.linearize`) is thereby visible in the types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.buffers import field_like


@dataclass(frozen=True)
class Pair:
    """Two images on the voxel grids of one level, standardised to mean 0 and SD 1.

    Attributes:
        fixed, moving: (C, D, H, W) tensors, floating-point, or whole numbers in units of their own.
        fixed_mask, moving_mask: (D, H, W) uint8, 0 where a voxel must not count; None counts all.
        fixed_scale, moving_scale: per channel (mean, SD) that standardised the images.
        fixed_units, moving_units: per channel, what to multiply the numbers by for standardised intensities; None if
            they are these already.
        notes: what has been measured of these images, so that it is measured once.
    """

    fixed: Tensor
    moving: Tensor
    fixed_mask: Tensor | None
    moving_mask: Tensor | None
    fixed_scale: tuple[tuple[float, float], ...]
    moving_scale: tuple[tuple[float, float], ...]
    fixed_units: tuple[float, ...] | None = None
    moving_units: tuple[float, ...] | None = None
    notes: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def units(self) -> tuple[tuple[float, float], ...]:
        """Per channel the units of the fixed and of the moving image."""
        ones = (1.0,) * len(self.fixed_scale)
        return tuple(zip(self.fixed_units or ones, self.moving_units or ones, strict=True))

    def single(self) -> Pair:
        """The pair with standardised intensities in single precision; itself if it has them."""
        if self.fixed_units is None and self.moving_units is None:
            return self
        fixed = in_single(self.fixed, self.fixed_units)
        moving = in_single(self.moving, self.moving_units)
        return replace(self, fixed=fixed, moving=moving, fixed_units=None, moving_units=None)

    @property
    def shape(self) -> tuple[int, int, int]:
        d, h, w = self.fixed.shape[1:]
        return d, h, w


@dataclass(frozen=True)
class Linearization:
    """The cost at a displacement.

    Attributes:
        cost: mean over the voxels that count; 0 is a perfect match.
        residual: r of the paper's section 2.2, the factor of its steps: the cost, or 1 for a cost without a zero.
        total: the sum of which `cost` is the mean; the gradient buffer holds d total / d displacement.
        count: how many voxels count.
    """

    cost: float
    residual: float
    total: float
    count: float


def in_single(images: Tensor, units: tuple[float, ...] | None) -> Tensor:
    """(C, D, H, W) numbers times their units, in single precision."""
    if units is None:
        return images
    factors = torch.tensor(units, dtype=torch.float32, device=images.device)
    return images.to(torch.float32).mul_(factors.reshape(-1, 1, 1, 1))


# One channel's kernel call: (displacement, matrix, gradient buffer or None) -> (total, count).
Term = Callable[[Tensor, Tensor, Tensor | None], tuple[float, float]]


@dataclass(frozen=True)
class Cost:
    """The weighted sum of one term per channel, over the images of one level.

    Attributes:
        terms: one per channel.
        weights: of the terms, summing to one.
        bounded: whether the cost is never negative and 0 is a perfect match, so that it can serve as residual.
        spare: the gradient of one channel, if there are several; made once and used again.
    """

    terms: tuple[Term, ...]
    weights: tuple[float, ...]
    bounded: bool = True
    spare: list[Tensor] = field(default_factory=list, compare=False)

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """Cost at `displacement`; `gradient` (3, D, H, W), if given, is overwritten with d total / d displacement."""
        total, count = self.terms[0](displacement, matrix, gradient)
        if len(self.terms) > 1:
            total *= self.weights[0]
            if gradient is not None:
                gradient *= self.weights[0]
            part = None if gradient is None else self._spare_like(gradient)
            for term, weight in zip(self.terms[1:], self.weights[1:], strict=True):
                more, counted = term(displacement, matrix, part)
                total += weight * more
                count = max(count, counted)
                if gradient is not None and part is not None:
                    gradient.add_(part, alpha=weight)
        cost = total / count if count else 0.0
        return Linearization(cost, cost if self.bounded else 1.0, total, count)

    def _spare_like(self, gradient: Tensor) -> Tensor:
        if not self.spare:
            self.spare.append(field_like(gradient))
        return self.spare[0]


class Similarity(Protocol):
    """A metric's settings; hashable and comparable, so that a recipe is data."""

    @property
    def name(self) -> str: ...

    def prepare(self, pair: Pair, ops: ModuleType, *, level: int, weights: tuple[float, ...] | None) -> Cost:
        """The cost for the images of one level; `level` counts from 0 at the coarsest."""
        ...


def normalized_weights(weights: tuple[float, ...] | None, channels: int) -> tuple[float, ...]:
    """Channel weights that sum to one; equal without any."""
    given = (1.0,) * channels if weights is None else weights
    if len(given) != channels:
        raise InputError(f"Channel weights {given}: the number of channels is {channels}; give a weight for each.")
    total = sum(given)
    return tuple(w / total for w in given)


def at_level(value: int | tuple[int, ...], level: int) -> int:
    """A setting that may be given per level; the last one holds for all further levels."""
    return value[min(level, len(value) - 1)] if isinstance(value, tuple) else value


def sampled(image: Tensor, mask: Tensor | None, limit: int) -> Tensor:
    """The values of about `limit` voxels spread over those that count; of all of them if they are not twice as many.

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
