"""A step of a displacement part by part: what it takes besides is a few planes and no field.

The planes of a part are computed with as many around them as filters, windows and steps reach, so that the parts make
up the whole step, bit for bit. Everything is computed twice: once to know the longest step, which scales all of them,
and once more to take them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.reference.interpolate import interpolate, voxel_indices
from warpfactor.kernels.taps import gaussian_radius
from warpfactor.optim.conventions import FieldLayout
from warpfactor.optim.steps.base import Step

TRUNCATE = 3.0  # standard deviations: where Gaussians end
PART = 1 << 16  # voxels, if that is more than filters, windows and steps reach
AT_ONCE = 1 << 15  # voxels whose steps are found or composed at a time, of 200 to 350 bytes each


class Measured(NamedTuple):
    """A step of one image that is not taken yet.

    Attributes:
        longest, decrease: see Taken.
        farthest: voxels that it leads along the axis of the parts.
    """

    longest: float
    decrease: float
    farthest: float


@dataclass(frozen=True)
class StepInParts:
    """The step of one image of a parameter.

    Attributes:
        gradient: of the parameter.
        image: of its batch.
        factor: by which the gradient is multiplied.
        sigma: voxels: SD of the Gaussian on it.
        damping, residual: see Step.step.
    """

    form: Step
    layout: FieldLayout
    gradient: Tensor
    image: int
    factor: float
    sigma: float
    damping: float
    residual: float

    @property
    def axis(self) -> int:
        """The axis of (3, D, H, W) along which planes, or in 2-D rows, are numbered."""
        return 1 if self.gradient.ndim - self.layout.batched == 4 else 2

    @property
    def length(self) -> int:
        """Number of planes."""
        return self.gradient.shape[self.layout.space]

    def parts(self, around: int) -> Iterator[tuple[int, int]]:
        """The first plane of every part and that after its last, if so many around it are computed again."""
        image = self.layout.part(self.gradient, self.image, 0, 1)
        across = image.numel() // (2 if self.axis == 2 else 3)
        size = max(PART // across, around, 1)
        return ((first, min(first + size, self.length)) for first in range(0, self.length, size))

    def forces(self, first: int, last: int) -> Tensor:
        """(3, D, H, W) gradients of the planes from `first` up to `last`, smoothed."""
        before, after = self._around(first, last, _reach(self.sigma))
        planes = self.layout.gradients(self.layout.part(self.gradient, self.image, before, after))[0]
        planes *= self.factor
        smooth(planes, self.sigma)
        return planes.narrow(self.axis, first - before, last - first)

    def unit(self) -> tuple[float, float]:
        """Sums of |g|² and |g| over all voxels."""
        found = [
            reference.norms(self.forces(first, last), self.layout.units().weights)
            for first, last in self.parts(_reach(self.sigma))
        ]
        return sum(each[0] for each in found), sum(each[1] for each in found)

    def measured(self) -> Measured:
        """What has to be known of the whole step before any part of it is taken."""
        longest, decrease, farthest = [], [], []
        for first, last in self.parts(_reach(self.sigma) + self.form.reach):
            forces, step = self._step(first, last)
            longest.append(self._squares(step).max())
            decrease.append(-(forces * step).sum(dtype=torch.float64))
            farthest.append(step[self.axis - 1].abs().max())
        most = float(torch.stack(longest).max()) ** 0.5
        return Measured(most, float(torch.stack(decrease).sum()), float(torch.stack(farthest).max()))

    def take(self, parameter: Tensor, scale: float, farthest: float, *, composed: bool, sigma: float) -> None:
        """Change the image of the parameter by the step times `scale`.

        Planes that were changed are still needed as they were by those that follow, and kept for these.

        Args:
            farthest: see Measured.
            composed: whether the step is composed with the displacement; otherwise it is added.
            sigma: voxels: SD of the Gaussian on the displacement afterwards.
        """
        around = _reach(sigma)
        far = around + (int(abs(scale) * farthest) + 2 if composed else 0)
        kept = self._displacements(parameter, 0, 0)
        for first, last in self.parts(far + _reach(self.sigma) + self.form.reach):
            inner, outer = self._around(first, last, around), self._around(first, last, far)
            there = torch.cat([kept, self._displacements(parameter, first, outer[1])], self.axis)
            _, step = self._step(*inner)
            moved = _composed if composed else _added
            new = moved(there, step, scale, self.axis, inner[0] - outer[0])
            smooth(new, sigma)
            before = min(far, last)
            kept = there.narrow(self.axis, last - outer[0] - before, before).clone()
            core = new.narrow(self.axis, first - inner[0], last - first)
            self.layout.write(core[None], self.layout.part(parameter, self.image, first, last))

    def _step(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """The forces of some planes and the step."""
        before, after = self._around(first, last, self.form.reach)
        forces, units = self.forces(before, after), self.layout.units()
        step = torch.empty_like(forces.narrow(self.axis, first - before, last - first))
        for start, count in _at_once(step, self.axis):
            low, high = self._around(first + start, first + start + count, self.form.reach)
            piece = forces.narrow(self.axis, low - before, high - low).clone()
            self.form.step(piece, None, damping=self.damping, residual=self.residual, units=units, ops=reference)
            step.narrow(self.axis, start, count).copy_(piece.narrow(self.axis, first + start - low, count))
        return forces.narrow(self.axis, first - before, last - first), step

    def _squares(self, step: Tensor) -> Tensor:
        """Squared lengths of steps in the units in which they were found."""
        weights = self.layout.units().weights
        parts = ((part / weight).square() for part, weight in zip(step, weights, strict=True) if weight)
        return sum(parts, step.new_zeros(()))

    def _displacements(self, parameter: Tensor, first: int, last: int) -> Tensor:
        return self.layout.displacements(self.layout.part(parameter, self.image, first, last))[0]

    def _around(self, first: int, last: int, reach: int) -> tuple[int, int]:
        """Planes and so many around them, as far as there are any."""
        return max(first - reach, 0), min(last + reach, self.length)


def smooth(planes: Tensor, sigma: float) -> None:
    """A Gaussian on (3, D, H, W), one component after the other."""
    for component in planes if sigma > 0 else ():
        reference.smooth_gaussian(component[None], (sigma,) * 3, truncate=TRUNCATE)


def _at_once(planes: Tensor, axis: int) -> Iterator[tuple[int, int]]:
    """The first planes, and how many they are, of pieces of (3, D, H, W) along an axis."""
    length = planes.shape[axis]
    size = max(AT_ONCE * length // planes[0].numel(), 1)
    return ((start, min(size, length - start)) for start in range(0, length, size))


def _reach(sigma: float) -> int:
    return gaussian_radius(sigma, TRUNCATE) if sigma > 0 else 0


def _composed(warp: Tensor, step: Tensor, scale: float, axis: int, first: int) -> Tensor:
    """s v(x) + u(x + s v(x)) for the planes of a step, which begins so many planes after the warp; see `compose`."""
    for start, count in _at_once(step, axis):
        part = step.narrow(axis, start, count)
        scaled = scale * part
        indices = voxel_indices(part.shape[1:], step.device)
        indices[axis - 1] += first + start
        part.copy_(scaled + interpolate(warp, [index + s for index, s in zip(indices, scaled, strict=True)]))
    return step


def _added(warp: Tensor, step: Tensor, scale: float, axis: int, first: int) -> Tensor:
    """The same without the way of the step."""
    return step.mul_(scale).add_(warp.narrow(axis, first, step.shape[axis]))
