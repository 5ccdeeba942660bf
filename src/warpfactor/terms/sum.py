"""Several terms at once, each with a weight."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene
from warpfactor.terms.base import Linearization, Prepared, Term
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
            raise InputError("The weights of all terms are zero; at least one must be positive.")

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
        return _PreparedSum(self.names, tuple(part.weight for part in self.active), tuple(parts))


@dataclass(frozen=True)
class _PreparedSum:
    """The terms of one level, with their names and weights."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    parts: tuple[Prepared, ...]
    spare: list[Tensor] = field(default_factory=list, compare=False)

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """The weighted sum of the totals, per voxel of the first term."""
        first = self.parts[0].linearize(displacement, matrix, gradient)
        if gradient is not None:
            gradient *= self.weights[0]
        found = [
            first,
            *(self._further(number, displacement, matrix, gradient) for number in range(1, len(self.parts))),
        ]
        shares = [
            w * point.count / first.count if first.count else w for w, point in zip(self.weights, found, strict=True)
        ]
        return Linearization(
            cost=sum(share * point.cost for share, point in zip(shares, found, strict=True)),
            residual=sum(share * point.residual for share, point in zip(shares, found, strict=True)),
            count=first.count,
            parts=tuple((name, point.cost) for name, point in zip(self.names, found, strict=True)),
        )

    def _further(self, number: int, displacement: Tensor, matrix: Tensor, gradient: Tensor | None) -> Linearization:
        """A term after the first; its gradient is added, times its weight."""
        buffer = None if gradient is None else spare_like(gradient, self.spare)
        point = self.parts[number].linearize(displacement, matrix, buffer)
        if point.count == 0:
            raise InputError(
                f"The term {self.names[number]} has nothing to go by, as its images do not overlap where they "
                "count; check their headers and masks, or leave it out."
            )
        if gradient is not None and buffer is not None:
            gradient.add_(buffer, alpha=self.weights[number])
        return point
