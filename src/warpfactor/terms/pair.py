"""A metric over another pair of images of the same two subjects, such as T2 beside T1."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from warpfactor.geometry.grid import Grid
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import beside_level, beside_matrix
from warpfactor.scene.middle import Middle
from warpfactor.scene.scene import Scene, Side
from warpfactor.terms.base import Linearization, Prepared, Term, with_ops
from warpfactor.terms.both import PreparedBetween, prepare_between


@dataclass(frozen=True, eq=False)
class PairTerm:
    """A metric of two images that are not those of the registration.

    Attributes:
        metric: what makes them alike.
        images: the two; the fixed one lies on the grid of the registration's fixed image, the moving one anywhere in
            moving space.
        name: for people.
        own_masks: whether the fixed and the moving image have masks of their own; where they have not, those of the
            registration hold.
    """

    metric: Term
    images: Scene
    name: str
    own_masks: tuple[bool, bool] = (False, False)

    @property
    def sees_shading(self) -> bool:
        """Shading is looked for in the images of the registration only."""
        return False

    def for_levels(self, count: int) -> PairTerm:
        return replace(self, metric=self.metric.for_levels(count))

    def prepare(self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Prepared:
        """The metric over these images at the resolution of the level; `weights` are of other channels."""
        own = self._beside(scene, ops)
        return _PreparedPair(self.metric.prepare(own, ops, level=level), scene.moving.grid, own.moving.grid)

    def between(
        self, scene: Scene, middle: Middle, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> PreparedBetween:
        """See BetweenTerm.between."""
        return prepare_between(self.metric, self._beside(scene, ops), middle, ops, level=level)

    def _beside(self, scene: Scene, ops: Ops) -> Scene:
        """These images at the resolution of a level, with its masks where they have none of their own."""
        own = beside_level(self.images, scene, ops)
        masks = zip(own.sides, scene.sides, self.own_masks, strict=True)
        return Scene(*(side if kept else _masked_as(side, other) for side, other, kept in masks))


@dataclass(frozen=True)
class _PreparedPair:
    """The metric of one level, and the grids of both moving images there."""

    metric: Prepared
    moving: Grid
    own: Grid

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize."""
        return self.metric.linearize(displacement, beside_matrix(matrix, self.moving, self.own), gradient)

    def with_ops(self, ops: Ops) -> _PreparedPair | None:
        """See Movable.with_ops."""
        metric = with_ops(self.metric, ops)
        return None if metric is None else replace(self, metric=metric)


def _masked_as(side: Side, other: Side) -> Side:
    """The side without the voxels that do not count in an image on the same grid; itself if the grids differ."""
    if other.mask is None or not side.grid.same_space(other.grid):
        return side
    return replace(side, mask=other.mask if side.mask is None else side.mask * (other.mask > 0))
