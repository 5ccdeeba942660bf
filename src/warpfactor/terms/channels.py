"""A metric over several channels: the weighted sum of one kernel call per channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.buffers import field_like
from warpfactor.kernels.numbers import larger, quotient
from warpfactor.kernels.ops import Ops
from warpfactor.kernels.pairs import Each, shared
from warpfactor.terms.base import Linearization, Prepared

# One channel's kernel call: (displacement, matrix, gradient buffer or None) -> (total, count).
Channel = Callable[[Tensor, Tensor, Tensor | None], tuple[float, float]]


@dataclass(frozen=True)
class Call:
    """A channel's kernel call as data, so that it can be made with other operations, or for several pairs at once.

    Attributes:
        ops: whose operation it is.
        operation: its name.
        images: what it takes first, fixed and moving, for a matrix.
        options: what else it takes.
        unit: what the total is to be multiplied by, and the gradient; (B,) on the device if pairs differ.
        forced: whether the operation writes a force instead of a gradient, which has no unit.
    """

    ops: Ops
    operation: str
    images: Callable[[Tensor], tuple[Tensor, Tensor]]
    options: Mapping[str, Any]
    unit: Any = 1.0
    forced: bool = False

    def __call__(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None) -> tuple[float, float]:
        fixed, moving = self.images(matrix)
        total, count = getattr(self.ops, self.operation)(
            fixed, moving, displacement, matrix, gradient=gradient, **self.options
        )
        unit, differ = self.unit, isinstance(self.unit, Tensor)
        if gradient is not None and not self.forced and (differ or unit != 1.0):
            gradient *= unit.float().reshape(-1, 1, 1, 1, 1) if differ else unit
        return (unit * total if differ or unit != 1.0 else total), count


def _together(calls: Sequence[Call], matrices: Sequence[Tensor], ops: Any) -> Call:
    """The same channel of several pairs as one call."""
    first = calls[0]
    own = [call.images(matrix) for call, matrix in zip(calls, matrices, strict=True)]
    fixed, moving = (shared([each[side] for each in own]) for side in (0, 1))
    options = {name: shared([call.options[name] for call in calls]) for name in first.options}
    unit = shared([call.unit for call in calls])
    if isinstance(unit, Each):
        unit = torch.tensor(unit, dtype=torch.float64).to(fixed.device)
    return replace(first, ops=ops, images=lambda _: (fixed, moving), options=options, unit=unit)


@dataclass(frozen=True)
class Channels:
    """The weighted sum of one kernel call per channel, over the images of one level.

    Attributes:
        calls: one per channel.
        weights: of the channels, summing to one.
        bounded: whether the cost is never negative and 0 is a perfect match, so that it can serve as residual.
        spare: the gradient of one channel, if there are several; made once and used again.
    """

    calls: tuple[Channel, ...]
    weights: tuple[float, ...]
    bounded: bool = True
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

    def with_ops(self, ops: Ops) -> Channels | None:
        """See Movable.with_ops."""
        calls = tuple(replace(call, ops=ops) for call in self.calls if isinstance(call, Call))
        return replace(self, calls=calls, spare=[]) if len(calls) == len(self.calls) else None


@dataclass(frozen=True)
class OneByOne:
    """A term of several pairs, one pair after the other: figures are (B,)."""

    pairs: tuple[Prepared, ...]

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize."""
        found = [
            each.linearize(displacement[n], matrix[n], None if gradient is None else gradient[n])
            for n, each in enumerate(self.pairs)
        ]
        names = [name for name, _ in found[0].parts]
        parts = [_joined([point.parts[k][1] for point in found]) for k in range(len(names))]
        return Linearization(
            _joined([point.cost for point in found]),
            _joined([point.residual for point in found]),
            _joined([point.count for point in found]),
            tuple(zip(names, parts, strict=True)),
        )


def _joined(figures: Sequence[Any]) -> Any:
    """(B,) figures of tensors without axes; a number of the host that all have in common stays one."""
    return torch.stack(tuple(figures)) if isinstance(figures[0], Tensor) else figures[0]


def of_pairs(costs: Sequence[Prepared], matrices: Sequence[Tensor], ops: Any) -> Prepared:
    """The term of several pairs of images of one size, in calls for all where that can be.

    Args:
        costs: of every pair, with operations that leave their figures on the device.
        matrices: (3, 4), of every pair, fixed voxel index plus displacement to moving voxel index.
        ops: the operations over pairs.
    """
    alike = [each for each in costs if isinstance(each, Channels)]
    if len(alike) < len(costs):
        return OneByOne(tuple(costs))
    every = zip(*(each.calls for each in alike), strict=True)
    calls = tuple(_together([call for call in calls if isinstance(call, Call)], matrices, ops) for calls in every)
    return replace(alike[0], calls=calls, spare=[])


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
