"""A metric over several channels: the weighted sum of one kernel call per channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.buffers import field_like
from warpfactor.kernels.numbers import larger, quotient
from warpfactor.terms.base import Linearization

# One channel's kernel call: (displacement, matrix, gradient buffer or None) -> (total, count).
Channel = Callable[[Tensor, Tensor, Tensor | None], tuple[float, float]]


@dataclass(frozen=True)
class Channels:
    """The weighted sum of one kernel call per channel, over the images of one level.

    Attributes:
        calls: one per channel.
        weights: of the channels, summing to one.
        bounded: whether the cost is never negative and 0 is a perfect match, so that it can serve as residual.
        stays: whether costs and counts are left on the device if the calls leave theirs there.
        spare: the gradient of one channel, if there are several; made once and used again.
    """

    calls: tuple[Channel, ...]
    weights: tuple[float, ...]
    bounded: bool = True
    stays: bool = True
    spare: list[Tensor] = field(default_factory=list, compare=False)

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize."""
        total, count = self.calls[0](displacement, matrix, gradient)
        if len(self.calls) > 1:
            total *= self.weights[0]
            if gradient is not None:
                gradient *= self.weights[0]
            part = None if gradient is None else spare_like(gradient, self.spare)
            for call, weight in zip(self.calls[1:], self.weights[1:], strict=True):
                more, counted = call(displacement, matrix, part)
                total += weight * more
                count = larger(counted, count)
                if gradient is not None and part is not None:
                    gradient.add_(part, alpha=weight)
        cost = quotient(total, count)
        return Linearization(cost, cost if self.bounded else 1.0, count)


def spare_like(gradient: Tensor, kept: list[Tensor]) -> Tensor:
    """A field like `gradient` that is made once and kept in the list."""
    if not kept or kept[0].shape != gradient.shape:
        kept[:] = [field_like(gradient)]
    return kept[0]


def normalized_weights(weights: tuple[float, ...] | None, channels: int) -> tuple[float, ...]:
    """Channel weights that sum to one; equal ones if none are given."""
    given = (1.0,) * channels if weights is None else weights
    if len(given) != channels:
        raise InputError(f"Channel weights {given}: the number of channels is {channels}; give a weight for each.")
    total = sum(given)
    return tuple(w / total for w in given)
