"""Regularity terms: what a warp costs by itself, whatever the images show."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, cast

import torch
from torch import Tensor

from warpfactor.geometry.grid import Grid, slabs
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import finest_spacing
from warpfactor.scene.middle import Middle
from warpfactor.scene.scene import Scene
from warpfactor.terms.base import Linearization, Plain, Prepared
from warpfactor.terms.both import Pair, PreparedBetween, mean_of

LEAST_VOLUME = 0.02  # determinants below this have its logarithm, continued as a straight line


class OfWarp(Plain, ABC):
    """A term of the displacement alone, whatever the images show."""

    @abstractmethod
    def on(self, grid: Grid) -> OfWarp:
        """The term of displacements on a grid, in its voxels."""

    @abstractmethod
    def total(self, displacement: Tensor, gradient: Tensor | None) -> Tensor:
        """What all voxels of a (3, D, H, W) displacement cost, without axes, float64; the gradient is added to one."""

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize."""
        held = _Held(self).linearize(displacement, matrix, gradient)
        return Linearization(float(held.cost), float(held.residual), float(held.count))

    def with_ops(self, ops: Ops) -> _Held:
        """See Movable.with_ops; there are no operations of a backend in it."""
        return _Held(self)

    def prepare(self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Prepared:
        """See Term.prepare."""
        return self.on(scene.fixed.grid)

    def between(
        self, scene: Scene, middle: Middle, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> PreparedBetween:
        """See BetweenTerm.between."""
        return _WholeWay(self.on(middle.grid))


@dataclass(frozen=True)
class _Held:
    """A term of the displacement whose figures stay on the device."""

    term: OfWarp

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize."""
        if gradient is not None:
            gradient.zero_()
        count = displacement[0].numel()
        cost: Any = self.term.total(displacement, gradient) / count
        return Linearization(cost, cost, cast(float, torch.full_like(cost, count)))

    def with_ops(self, ops: Ops) -> _Held:
        """See Movable.with_ops."""
        return self


@dataclass(frozen=True)
class _WholeWay:
    """A term of the way from one image to the other, seen from the middle: the difference of its two halves.

    That is what one half does after the inverse of the other, to first order. So a weight means the same as where only
    one image moves.
    """

    term: OfWarp | _Held

    def linearize(self, displacements: Pair, gradients: Pair | None = None) -> Linearization:
        """See PreparedBetween.linearize."""
        still = torch.eye(3, 4, dtype=torch.float64)
        whole = displacements[1] - displacements[0]
        ahead = self.term.linearize(whole, still, None if gradients is None else gradients[1])
        back = self.term.linearize(whole.neg_(), still, None if gradients is None else gradients[0])
        return mean_of(back, ahead)

    def with_ops(self, ops: Ops) -> _WholeWay:
        """See Movable.with_ops."""
        return _WholeWay(self.term.with_ops(ops))


@dataclass(frozen=True)
class Bending(OfWarp):
    """The mean squared second derivative of the displacement, lengths being voxels of the level's finest axis.

    Attributes:
        lengths: what a voxel is along each axis in that unit; set for each level.
    """

    lengths: tuple[float, float, float] = (1.0, 1.0, 1.0)
    name: str = "bending"

    def on(self, grid: Grid) -> Bending:
        z, y, x = (spacing / finest_spacing(grid) for spacing in grid.spacing_mm)
        return replace(self, lengths=(z, y, x))

    def total(self, displacement: Tensor, gradient: Tensor | None) -> Tensor:
        """See OfWarp.total."""
        total = displacement.new_zeros((), dtype=torch.float64)
        for axis, (component, length) in enumerate(zip(displacement, self.lengths, strict=True)):
            slope = None if gradient is None else gradient[axis]
            for first, second in _axes(component):
                rate = length / (self.lengths[first] * self.lengths[second])
                total += _bent(component, first, second, rate * rate, slope)
        return total


def _axes(component: Tensor) -> list[tuple[int, int]]:
    """The pairs of axes by which a component can be differentiated twice."""
    there = [axis for axis, n in enumerate(component.shape) if n > 2]
    return [(axis, axis) for axis in there] + list(combinations(there, 2))


def _bent(component: Tensor, first: int, second: int, factor: float, slope: Tensor | None) -> Tensor:
    """factor * the sum of d^2, d being a second difference (twice that of two axes); its gradient is added to `slope`.

    The gradient of the sum is the transposed difference of 2 d.
    """
    factor = factor if first == second else 2 * factor
    bend = component.diff(dim=first).diff(dim=second)
    total = factor * bend.double().square().sum()
    if slope is not None:
        bend = bend.mul_(2 * factor)
        for axis in (second, first):
            bend = _transposed_difference(bend, axis)
        slope += bend
    return total


def _transposed_difference(values: Tensor, axis: int) -> Tensor:
    """The transpose of a difference of neighbours along an axis: one longer."""
    n = values.shape[axis]
    longer = values.new_zeros([m + (a == axis) for a, m in enumerate(values.shape)])
    longer.narrow(axis, 1, n).add_(values)
    longer.narrow(axis, 0, n).sub_(values)
    return longer


@dataclass(frozen=True)
class VolumeChange(OfWarp):
    """The mean of (log J)^2, J being the Jacobian determinant of the warp."""

    name: str = "volume change"

    def on(self, grid: Grid) -> VolumeChange:
        return self

    def total(self, displacement: Tensor, gradient: Tensor | None) -> Tensor:
        """See OfWarp.total."""
        depth, total = displacement.shape[1], displacement.new_zeros((), dtype=torch.float64)
        for planes in slabs(displacement.shape[1:]):
            around = slice(max(planes.start - 1, 0), min(planes.stop + 1, depth))
            inner = slice(planes.start - around.start, planes.stop - around.start)
            slope = None if gradient is None else gradient[:, around]
            total += _volume(displacement[:, around], inner, slope)
        return total


def _volume(displacement: Tensor, inner: slice, slope: Tensor | None) -> Tensor:
    """The sum of (log J)^2 over the inner planes of a slab; its gradient is added to `slope`."""
    jacobian = torch.stack([torch.stack([_central(part, axis) for axis in range(3)]) for part in displacement])
    jacobian = jacobian[:, :, inner]
    for axis in range(3):
        jacobian[axis, axis] += 1
    cofactors = torch.stack([torch.linalg.cross(jacobian[b], jacobian[c], dim=0) for b, c in ((1, 2), (2, 0), (0, 1))])
    volume = (jacobian[0] * cofactors[0]).sum(0)
    held = volume.clamp(min=LEAST_VOLUME)
    log_volume = held.log() + (volume - held) / LEAST_VOLUME
    if slope is not None:
        force = cofactors * (2 * log_volume / held)
        padded = displacement.new_zeros((3, 3, *displacement.shape[1:]))
        padded[:, :, inner] = force
        for component, parts in zip(slope, padded, strict=True):
            for axis, part in enumerate(parts):
                _add_transposed_central(part, axis, component)
    return log_volume.double().square().sum()


def _central(values: Tensor, axis: int) -> Tensor:
    """The derivative by central differences, one-sided at the ends; 0 along an axis of one voxel."""
    found, n = torch.zeros_like(values), values.shape[axis]
    if n > 1:
        found.narrow(axis, 1, n - 2).copy_((values.narrow(axis, 2, n - 2) - values.narrow(axis, 0, n - 2)) / 2)
        for end, low in ((0, 0), (n - 1, n - 2)):
            found.narrow(axis, end, 1).copy_(values.narrow(axis, low + 1, 1) - values.narrow(axis, low, 1))
    return found


def _add_transposed_central(values: Tensor, axis: int, out: Tensor) -> None:
    """Add the transpose of `_central` to `out`."""
    n = values.shape[axis]
    if n == 1:
        return
    half = values.narrow(axis, 1, n - 2) / 2
    out.narrow(axis, 2, n - 2).add_(half)
    out.narrow(axis, 0, n - 2).sub_(half)
    for end, low in ((0, 0), (n - 1, n - 2)):
        out.narrow(axis, low + 1, 1).add_(values.narrow(axis, end, 1))
        out.narrow(axis, low, 1).sub_(values.narrow(axis, end, 1))
