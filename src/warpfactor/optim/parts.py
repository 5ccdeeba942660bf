"""The step of a displacement part by part, so that what it takes besides is a few planes and not several fields."""

from __future__ import annotations

import torch
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.reference.field import parts_of
from warpfactor.optim.steps.base import Step, Taken, Units


def step_in_parts(form: Step, gradient: Tensor, *, damping: float, residual: float, units: Units) -> Taken:
    """Overwrite the gradient (3, D, H, W) with a step that has no state; see Step.step."""
    axis = 1 if gradient.shape[1] > 1 else 2
    length, reach = gradient.shape[axis], form.reach
    size = max(parts_of(gradient.shape[1:])[0][axis - 1].stop, reach)
    before = gradient.narrow(axis, 0, 0)  # planes of the gradient before the part, which are steps by now
    longest, decrease = [], []
    for first in range(0, length, size):
        last = min(first + size, length)
        ahead = min(last + reach, length)
        piece = torch.cat([before, gradient.narrow(axis, first, ahead - first)], axis)
        start = before.shape[axis]
        kept = min(reach, start + last - first)
        before = piece.narrow(axis, start + last - first - kept, kept).clone()
        form.step(piece, None, damping=damping, residual=residual, units=units, ops=reference)
        step, own = piece.narrow(axis, start, last - first), gradient.narrow(axis, first, last - first)
        longest.append(_squares(step, units.weights).max())
        decrease.append(-(own * step).sum(dtype=torch.float64))
        own.copy_(step)
    return Taken(float(torch.stack(longest).max()) ** 0.5, float(torch.stack(decrease).sum()))


def _squares(step: Tensor, weights: tuple[float, float, float]) -> Tensor:
    """Squared lengths of steps in the units in which they were found."""
    parts = ((part / weight).square() for part, weight in zip(step, weights, strict=True) if weight)
    return sum(parts, step.new_zeros(()))
