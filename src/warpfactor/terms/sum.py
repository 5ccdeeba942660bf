"""Several terms at once, each with a weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.numbers import chosen
from warpfactor.kernels.ops import Ops
from warpfactor.scene.middle import Middle
from warpfactor.scene.scene import Scene
from warpfactor.terms.base import Linearization, Prepared, Term, with_ops
from warpfactor.terms.both import Pair, PreparedBetween, prepare_between
from warpfactor.terms.channels import spare_like


@dataclass(frozen=True)
class Weighted:
    """A term and its weight beside the others."""

    term: Term
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf:
            raise InputError(f"The weight of {self.term.name} is {self.weight:g}; it must be 0 or a positive number.")


@dataclass(frozen=True)
class Sum:
    """Weighted terms whose costs are added voxel by voxel.

    Every term is of order one at a voxel where it counts, so that weights compare what voxels see.

    Attributes:
        terms: at least one, of which one at least has a positive weight; those of weight zero have no part in it. The
            cost of the sum is per voxel of the first that has a part.
    """

    terms: tuple[Weighted, ...]

    def __post_init__(self) -> None:
        if not any(part.weight > 0 for part in self.terms):
            names = ", ".join(part.term.name for part in self.terms)
            raise InputError(f"The weights of all terms are zero ({names}); at least one must be positive.")

    @property
    def active(self) -> tuple[Weighted, ...]:
        """The terms that have a part in the sum."""
        return tuple(part for part in self.terms if part.weight > 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of these, each once: a second "mi" is "mi 2"."""
        found = list[str]()
        for part in self.active:
            name, again = part.term.name, sum(other.term.name == part.term.name for other in self.active[: len(found)])
            found.append(f"{name} {again + 1}" if again else name)
        return tuple(found)

    @property
    def name(self) -> str:
        return " + ".join(self.names)

    @property
    def sees_shading(self) -> bool:
        return any(part.term.sees_shading for part in self.active)

    def for_levels(self, count: int) -> Sum:
        return Sum(tuple(Weighted(part.term.for_levels(count), part.weight) for part in self.terms))

    def prepare(self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Prepared:
        """All terms over the images of one level."""
        parts = (part.term.prepare(scene, ops, level=level, weights=weights) for part in self.active)
        return self.joined(tuple(parts))

    def joined(self, parts: tuple[Prepared, ...]) -> Prepared:
        """The sum of its active terms, which are prepared already."""
        return _PreparedSum(self._weighing, parts)

    def between(
        self, scene: Scene, middle: Middle, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> PreparedBetween:
        """See BetweenTerm.between."""
        parts = (prepare_between(part.term, scene, middle, ops, level=level, weights=weights) for part in self.active)
        return _SumBetween(self._weighing, tuple(parts))

    @property
    def _weighing(self) -> _Weighing:
        return _Weighing(self.names, tuple(part.weight for part in self.active))


@dataclass(frozen=True)
class _Weighing:
    """Names and weights of the terms of a sum."""

    names: tuple[str, ...]
    weights: tuple[float, ...]

    def check(self, number: int, point: Linearization) -> None:
        """InputError if a term after the first has nothing to go by; on the device, `total` says so."""
        count: Any = point.count
        if number > 0 and not isinstance(count, Tensor) and count == 0:
            raise InputError(
                f"The term {self.names[number]} cannot be computed, because its images do not overlap "
                "inside their masks; check their headers and masks, or leave the term out."
            )

    def total(self, found: Sequence[Linearization]) -> Linearization:
        """The weighted sum of the totals of all terms, per voxel of the first.

        Where the figures are on the device the count is 0, with which a level ends, if any term has nothing to go by.
        """
        first = found[0]
        some: float = chosen(first.count == 0, 1.0, first.count)
        weighted = zip(self.weights, found, strict=True)
        shares = [chosen(first.count == 0, w, w * point.count / some) for w, point in weighted]
        count = first.count
        for point in found[1:]:
            count = chosen(point.count == 0, 0.0, count)
        return Linearization(
            cost=sum(share * point.cost for share, point in zip(shares, found, strict=True)),
            residual=sum(share * point.residual for share, point in zip(shares, found, strict=True)),
            count=count,
            parts=tuple((name, point.cost) for name, point in zip(self.names, found, strict=True)),
        )


@dataclass(frozen=True)
class _PreparedSum:
    """The terms of one level."""

    weighing: _Weighing
    parts: tuple[Prepared, ...]
    spare: list[Tensor] = field(default_factory=list, compare=False)

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize."""
        found = []
        for number, part in enumerate(self.parts):
            room = gradient if number == 0 or gradient is None else spare_like(gradient, self.spare)
            found.append(part.linearize(displacement, matrix, room))
            self.weighing.check(number, found[-1])
            if gradient is not None and room is not None:
                _add(gradient, room, self.weighing.weights[number])
        return self.weighing.total(found)

    def with_ops(self, ops: Ops) -> _PreparedSum | None:
        """See Movable.with_ops."""
        return _moved(self, ops, spare=[])


@dataclass(frozen=True)
class _SumBetween:
    """The terms of one level whose images both move."""

    weighing: _Weighing
    parts: tuple[PreparedBetween, ...]
    spare: tuple[list[Tensor], list[Tensor]] = field(default_factory=lambda: ([], []), compare=False)

    def linearize(self, displacements: Pair, gradients: Pair | None = None) -> Linearization:
        """See PreparedBetween.linearize."""
        found = []
        for number, part in enumerate(self.parts):
            room = gradients
            if number > 0 and gradients is not None:
                room = spare_like(gradients[0], self.spare[0]), spare_like(gradients[1], self.spare[1])
            found.append(part.linearize(displacements, room))
            self.weighing.check(number, found[-1])
            for total, one in zip(gradients or (), room or (), strict=True):
                _add(total, one, self.weighing.weights[number])
        return self.weighing.total(found)

    def with_ops(self, ops: Ops) -> _SumBetween | None:
        """See Movable.with_ops."""
        return _moved(self, ops, spare=([], []))


_Sum = TypeVar("_Sum", _PreparedSum, _SumBetween)


def _moved(prepared: _Sum, ops: Ops, **spare: Any) -> _Sum | None:
    """A sum with other operations; None if one of its terms has to wait."""
    parts = tuple(with_ops(part, ops) for part in prepared.parts)
    return None if any(part is None for part in parts) else replace(prepared, parts=parts, **spare)


def _add(total: Tensor, gradient: Tensor, weight: float) -> None:
    """Add a weighted gradient to the sum of those before it; the first one, which is the sum itself, is weighted."""
    if gradient is total:
        total *= weight
    else:
        total.add_(gradient, alpha=weight)
