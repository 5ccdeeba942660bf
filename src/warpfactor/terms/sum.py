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
        terms: at least one, of which one at least has a positive weight. The cost of the sum is per voxel of the first.
    """

    terms: tuple[Weighted, ...]

    def __post_init__(self) -> None:
        if not any(part.weight > 0 for part in self.terms):
            raise InputError("The weights of all terms are zero; at least one must be positive.")

    @property
    def name(self) -> str:
        return " + ".join(part.term.name for part in self.terms)

    @property
    def sees_shading(self) -> bool:
        return any(part.term.sees_shading for part in self.terms)

    def for_levels(self, count: int) -> Sum:
        return Sum(tuple(Weighted(part.term.for_levels(count), part.weight) for part in self.terms))

    def prepare(self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Prepared:
        """All terms over the images of one level."""
        parts = tuple(part.term.prepare(scene, ops, level=level, weights=weights) for part in self.terms)
        return _PreparedSum(self, parts)


@dataclass(frozen=True)
class _PreparedSum:
    settings: Sum
    parts: tuple[Prepared, ...]
    spare: list[Tensor] = field(default_factory=list, compare=False)

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """The weighted sum of the totals, per voxel of the first term."""
        first, *others = zip(self.settings.terms, self.parts, strict=True)
        found = first[1].linearize(displacement, matrix, gradient)
        if gradient is not None:
            gradient *= first[0].weight
        cost, residual = first[0].weight * found.cost, first[0].weight * found.residual
        parts = [(first[0].term.name, found.cost)]
        for weighted, prepared in others:
            buffer = None if gradient is None else spare_like(gradient, self.spare)
            more = prepared.linearize(displacement, matrix, buffer)
            share = weighted.weight * more.count / found.count if found.count else 0.0
            cost += share * more.cost
            residual += share * more.residual
            parts.append((weighted.term.name, more.cost))
            if gradient is not None and buffer is not None:
                gradient.add_(buffer, alpha=weighted.weight)
        return Linearization(cost, residual, found.count, tuple(parts))
