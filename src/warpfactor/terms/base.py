"""What a term of the cost is: frozen settings that, given the images of one level, make something to be minimised.

What is done once a level (`Term.prepare`) and what in every iteration (`Prepared.linearize`) is thereby visible in the
types. A cost is never negative, and 0 at a perfect match, except for a user's own loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from warpfactor.kernels.ops import Ops, Slab
from warpfactor.scene.scene import Scene

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Linearization:
    """The cost at a displacement.

    Attributes:
        cost: mean over the voxels that count; 0 is a perfect match.
        residual: r of the paper's section 2.2, the factor of its steps: the cost, or 1 for a cost without a zero.
        count: number of voxels that count; the gradient is that of cost * count by the displacement.
        parts: the terms of a sum, by name, each with its own cost; none for a single term.
    """

    cost: float
    residual: float
    count: float
    parts: tuple[tuple[str, float], ...] = ()


class Prepared(Protocol):
    """A term over the images of one level."""

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """The cost at a displacement.

        Args:
            displacement: (3, D, H, W) in voxels of the fixed image.
            matrix: (3, 4), fixed voxel index plus displacement to moving voxel index.
            gradient: (3, D, H, W), overwritten with d (cost * count) / d displacement; None computes the cost only.
        """
        ...


@runtime_checkable
class Movable(Protocol):
    """A prepared term whose operations can be exchanged, so that its figures stay on the device."""

    def with_ops(self, ops: Ops) -> Prepared | None:
        """The same with other operations of the same backend; None if a part of it cannot do without waiting."""
        ...


def with_ops(prepared: object, ops: Ops) -> Any:
    """A prepared term, of one image or of two that move, with other operations; None if it has to wait."""
    return prepared.with_ops(ops) if isinstance(prepared, Movable) else None


class Term(Protocol):
    """A term's settings; hashable and comparable, so that a recipe is data."""

    @property
    def name(self) -> str: ...

    @property
    def sees_shading(self) -> bool:
        """Whether smooth shading of the images misleads it at coarse levels; see stages/shading.py."""
        ...

    def for_levels(self, count: int) -> Term:
        """The term for another number of levels: settings per level are those of the finest, then of the first."""
        ...

    def prepare(self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Prepared:
        """The term over the images of one level.

        Args:
            level: counted from 0 at the coarsest.
            weights: of the channels; None weighs them equally.
        """
        ...


@runtime_checkable
class Local(Protocol):
    """A term of which the part of a voxel depends on what is near it, so that slabs of the images are enough."""

    @property
    def slab_bytes(self) -> int:
        """Memory per voxel of a slab, with what it maps to, besides its displacement and its gradient."""
        ...

    def reach(self, level: int) -> int:
        """Planes around a slab on which its cost and gradient depend."""
        ...

    def prepare_slabs(
        self, scene: Scene, ops: Ops, slabs: Sequence[Slab], *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> tuple[Prepared, ...]:
        """The term over every slab of the fixed image.

        Displacement and gradient have the outer planes of the slab, and the matrix counts from the first of them. Cost
        and count are of the core; so is the gradient, and that of the other planes is undefined.
        """
        ...


class Plain:
    """What most terms have in common: shading does not mislead them, and they are the same at every level."""

    @property
    def sees_shading(self) -> bool:
        return False

    def for_levels(self, count: int) -> Self:
        return self


def aligned(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The last `count` of some values per level, coarse to fine; the first is repeated if there are fewer."""
    return (values[:1] * count + values)[-count:] if len(values) < count else values[-count:]


def at_level(value: int | tuple[int, ...], level: int) -> int:
    """A setting that may be given per level; the last one holds for all further levels."""
    return value[min(level, len(value) - 1)] if isinstance(value, tuple) else value
