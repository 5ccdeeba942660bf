"""Which of several linear transforms makes two images most alike, whatever their contrasts.

Squared local correlation, taken both ways round, does not ask which of two tissues is the brighter one. At 64 voxels
width it told the true transform from 150 wrong ones on every kind of pair tried, inverted and non-monotonic contrasts,
stains, echoes and noise among them; evidence is how far a transform stands out from wrong ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from warpfactor.geometry.grid import Matrix
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene
from warpfactor.stages.linear.solve import LEAST_OVERLAP
from warpfactor.stages.linear.starts import Overlap
from warpfactor.terms import LNCC, Prepared

WINDOW = 5
DEVIATIONS = 1.4826  # a normal distribution's SD in units of its median absolute deviation
MARGIN = 0.5  # standard deviations of wrong transforms' costs
SURE = 0.77  # mean squared correlation; docs/benchmarks/hard.md has the figures of right and wrong transforms
LEAST_SPREAD = 1e-3  # of the costs of wrong transforms


@dataclass(frozen=True)
class _Direction:
    """Squared local correlation with one image held still."""

    scene: Scene
    cost: Prepared
    still: Tensor

    @classmethod
    def of(cls, scene: Scene, ops: Ops) -> _Direction:
        cost = LNCC(WINDOW).prepare(scene, ops)
        return cls(scene, cost, scene.fixed.data.new_zeros((3, *scene.shape)))

    def likeness(self, matrix: Matrix) -> float:
        """Mean squared correlation; 0 where there is nothing to compare."""
        through = VoxelMap(self.scene.fixed.grid, None, matrix).matrix(self.scene.moving.grid)
        found = self.cost.linearize(self.still, through)
        return 1 - found.cost if found.count else 0.0


@dataclass(frozen=True, eq=False)
class Judge:
    """Ranks transforms of one level's scene.

    Attributes:
        directions: the fixed image held still, and the moving one.
        overlap: of the objects in the images.
        wrong: transforms that are not the true one, save by accident.
        model: the judge of another level that says what is a difference and what is not, if there is one.
    """

    directions: tuple[_Direction, _Direction]
    overlap: Overlap
    wrong: Sequence[Matrix]
    model: Judge | None = None

    @classmethod
    def of(cls, scene: Scene, overlap: Overlap, wrong: Sequence[Matrix], ops: Ops) -> Judge:
        return cls((_Direction.of(scene, ops), _Direction.of(scene.swapped(), ops)), overlap, wrong)

    def at(self, scene: Scene, ops: Ops) -> Judge:
        """The same of another level; what is a difference and what is not was measured at this one."""
        return replace(Judge.of(scene, self.overlap, (), ops), model=self)

    def cost(self, matrix: Matrix) -> float:
        """1 less the mean squared local correlation; what lies outside the other image counts as unlike."""
        share = self.overlap.share(matrix)
        if share < LEAST_OVERLAP:
            return float("inf")
        back = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        return 1 - share * (self.directions[0].likeness(matrix) + self.directions[1].likeness(back)) / 2

    def sure(self, matrix: Matrix) -> bool:
        """Whether the images are so alike that no other transform need be tried."""
        return 1 - self.cost(matrix) >= SURE

    def evidence(self, matrix: Matrix, others: Sequence[Matrix]) -> float:
        """By how many standard deviations of the others' costs this transform is better than the median of them."""
        middle, spread = self._spread(others)
        return (middle - self.cost(matrix)) / spread

    @property
    def margin(self) -> float:
        """By how much a cost must be lower to mean anything."""
        return MARGIN * self._null[1]

    @cached_property
    def _null(self) -> tuple[float, float]:
        return self._spread(self.wrong) if self.model is None else self.model._null

    def _spread(self, transforms: Sequence[Matrix]) -> tuple[float, float]:
        """Median and standard deviation of some transforms' costs."""
        costs = np.array([self.cost(matrix) for matrix in transforms])
        costs = costs[np.isfinite(costs)]
        if not len(costs):
            return 1.0, LEAST_SPREAD
        middle = float(np.median(costs))
        return middle, max(LEAST_SPREAD, DEVIATIONS * float(np.median(np.abs(costs - middle))))
