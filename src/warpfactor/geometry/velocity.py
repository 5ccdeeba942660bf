"""Stationary velocity fields: warps whose powers, inverses and means are those of one field.

A velocity v is followed for a time t: exp(t v) is where its flow leads, exp(-t v) is the way back, and exp(s v) after
exp(t v) is exp((s + t) v). So half a warp is exp(v / 2), and warps have a mean: that of their velocities.

    >>> import torch
    >>> import warpfactor as wf
    >>> grid = wf.Grid.from_spacing((8, 8, 8))
    >>> shift = wf.Velocity(torch.ones((3, 8, 8, 8)), grid)
    >>> float(shift.warp(0.5).displacement.mean())
    0.5
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Warp
from warpfactor.kernels import select
from warpfactor.kernels.numbers import chosen, larger
from warpfactor.kernels.ops import DeviceOps, Ops

SHORT = 0.5  # voxels: a flow that leads no further than this is one step
ITERATIONS = 12  # of the logarithm
CLOSE = 5e-3  # voxels: mean error at which it ends
LEAST_VOLUME = 1e-3  # determinants below this have its logarithm


@dataclass(frozen=True, eq=False)
class Velocity:
    """A velocity field on a grid.

    Attributes:
        field: (3, D, H, W), along the array axes (z, y, x) in voxels of the grid per unit of time.
        grid: where it is known; beyond, it keeps its edge value.
        space: name of the space it moves.
    """

    field: Tensor
    grid: Grid
    space: str = "fixed"

    def __post_init__(self) -> None:
        if tuple(self.field.shape) != (3, *self.grid.shape):
            raise InputError(
                f"The velocity has shape {tuple(self.field.shape)}; a grid of {self.grid.shape} voxels needs "
                f"{(3, *self.grid.shape)}."
            )

    @classmethod
    def of_warp(cls, warp: Warp, *, ops: Ops | None = None) -> Velocity:
        """The velocity whose exponential is the given warp; see `logarithm`."""
        ops = ops or select(warp.displacement.device)
        return cls(logarithm(warp.displacement.to(torch.float32).contiguous(), ops), warp.grid, warp.source)

    @classmethod
    def from_field(cls, field: Warp) -> Velocity:
        """The velocity from vectors that were read as a displacement field."""
        return cls(field.displacement.to(torch.float32), field.grid, field.source)

    def as_field(self) -> Warp:
        """The vectors as a displacement field, as files store them; this is not the warp."""
        return Warp(self.field, self.grid, self.space, self.space)

    def warp(self, time: float = 1.0, *, ops: Ops | None = None) -> Warp:
        """The warp after that time of the flow, a power of the warp: -1 is its inverse, 0.5 half of it."""
        ops = ops or select(self.field.device)
        return Warp(exponential(self.field.to(torch.float32) * time, ops), self.grid, self.space, self.space)

    def inverse(self) -> Velocity:
        """The velocity of the inverse warp."""
        return replace(self, field=-self.field)

    def log_jacobian(self, time: float = 1.0, *, ops: Ops | None = None) -> Image:
        """Logarithm of the volume change of the warp at every voxel."""
        determinant = self.warp(time, ops=ops).jacobian(ops=ops).data
        return Image(determinant.clamp(min=LEAST_VOLUME).log(), self.grid, "log jacobian")


def mean_velocity(velocities: Sequence[Velocity], weights: Sequence[float] | None = None) -> Velocity:
    """The weighted mean of velocities on one grid; its exponential is the mean of their warps."""
    if not velocities:
        raise InputError("The mean needs at least one velocity field.")
    first = velocities[0]
    for number, each in enumerate(velocities, 1):
        if not each.grid.same_space(first.grid):
            raise InputError(
                f"Velocity {number} lies on another grid than the first; register all images to the same fixed image."
            )
    given = [1.0] * len(velocities) if weights is None else list(weights)
    if len(given) != len(velocities) or min(given) < 0 or not 0 < sum(given) < math.inf:
        raise InputError(f"Give one positive weight for each of the {len(velocities)} velocities; these are {given}.")
    total = sum(weight * each.field.double() for weight, each in zip(given, velocities, strict=True)) / sum(given)
    return replace(first, field=torch.as_tensor(total).to(first.field.dtype))


def mean_warp(warps: Sequence[Warp], weights: Sequence[float] | None = None) -> Warp:
    """The mean of warps on one grid, by their velocities: of a warp and its inverse it is the identity."""
    return mean_velocity([Velocity.of_warp(warp) for warp in warps], weights).warp()


def power(warp: Warp, exponent: float) -> Warp:
    """A power of a warp: exponent 0.5 gives half of it, -1 its inverse."""
    return Velocity.of_warp(warp).warp(exponent)


def exponential(velocity: Tensor, ops: Ops) -> Tensor:
    """The displacement after unit time of a flow, both (3, D, H, W) in voxels, by scaling and squaring.

    The flow is followed for so short a time that it leads no further than half a voxel, by the midpoint rule; that
    step, composed with itself again and again, doubles the time.
    """
    number = doublings(float(velocity.abs().max()) if velocity.numel() else 0.0)
    return _flow(velocity / 2**number, [1.0] * number, ops)


def exponential_on_device(velocity: Tensor, ops: DeviceOps, most: int) -> Tensor:
    """The same without waiting for the device, which finds how often to double, `most` times at most.

    There are always so many compositions; those that are not needed take a step of no length, which changes nothing.
    """
    doubled = torch.arange(most, device=velocity.device) < doublings(velocity.abs().max().double())
    scaled = velocity * torch.where(doubled, 0.5, 1.0).prod()
    return _flow(scaled, doubled.double().unbind(), ops)


def doublings(longest: Any) -> Any:
    """How often the time must be doubled for a velocity of this length; a number, or one on the device."""
    split = torch.frexp(longest / SHORT) if isinstance(longest, Tensor) else math.frexp(longest / SHORT)
    mantissa, exponent = cast(tuple[Any, Any], split)
    return larger(exponent - chosen(mantissa > 0.5, 0, 1), 0)


def _flow(scaled: Tensor, doubled: Sequence[Any], ops: Ops) -> Tensor:
    """The displacement after a time that is doubled again and again, 1, or is not, 0."""
    half = scaled / 2
    step = ops.compose(scaled, half).sub_(half)  # v(x + v(x) / 2)
    for once in doubled:
        step = ops.compose(step, step, scale=once)
    return step


def logarithm(displacement: Tensor, ops: Ops) -> Tensor:
    """The velocity (3, D, H, W) in voxels whose exponential is a displacement.

    v <- v + (exp(-v) after the warp): what the present velocity leaves of the warp is added to it. That ends where the
    mean of what is left is below five thousandths of a voxel, or no longer falls: not every warp is the flow of a
    velocity.
    """
    best, least = displacement.clone(), math.inf
    velocity = displacement.clone()
    for _ in range(ITERATIONS):
        left = ops.compose(exponential(-velocity, ops), displacement)
        error = float(left.square().sum(0).sqrt().mean())
        if not error < least:
            break
        best, least = velocity, error
        if error < CLOSE:
            break
        velocity = velocity + left
    return best
