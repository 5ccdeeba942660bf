"""The solver of one level of a linear registration: Levenberg-Marquardt on 2 to 12 parameters.

A step is kept only if the true cost falls, the images still overlap and the transform has not collapsed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpfactor.geometry.grid import Matrix
from warpfactor.scene.levels import finest_spacing
from warpfactor.scene.scene import Scene
from warpfactor.stages.linear.cost import LinearCost
from warpfactor.stages.linear.motion import Motion, Vector, strain
from warpfactor.stages.linear.starts import Overlap
from warpfactor.stages.stage import Ending

LEAST_OVERLAP = 0.25  # of the smaller object
LARGEST_STRAIN = 2.2  # of 2 log(stretch): a factor of 3 along any direction
LARGEST_VOLUME = 1.8  # of |log det|: a factor of 6, a scale of 0.55 to 1.8 in space
FIRST_DAMPING = 1e-3
LARGEST_STEP_VOX = 4.0  # of the image's corner
SMALLEST_STEP_VOX = 0.01
REJECTIONS = 5  # in a row, then a stage ends

Square = NDArray[np.float64]


@dataclass(frozen=True)
class LinearTrial:
    """One iteration of a solver.

    Attributes:
        dof: the group of motions.
        number: of the iteration, from 0.
        cost: of the transform that was tried, prior included.
        damping: of the step to it.
        accepted: whether it was kept.
    """

    dof: str
    number: int
    cost: float
    damping: float
    accepted: bool


@dataclass(frozen=True)
class _Point:
    """A transform with its cost (prior included), and gradient and curvature by the motion's parameters."""

    matrix: Matrix
    cost: float
    gradient: Vector
    curvature: Square


@dataclass(frozen=True)
class Solver:
    """The cost of one level and what a transform must not do.

    Attributes:
        scene: the images of the level.
        cost: the metric on them.
        overlap: of the objects in the images.
        reference: 4x4; strains are measured against it.
        prior: weight of the squared strain (log stretch) beside the cost.
        tolerance: a stage ends when a step promises to lower the cost by less than this fraction.
        stop: asked between two iterations whether to end with the best transform so far.
    """

    scene: Scene
    cost: LinearCost
    overlap: Overlap
    reference: Matrix
    prior: float
    tolerance: float
    stop: Callable[[], bool] = lambda: False

    def solve(
        self, matrix: Matrix, dof: str, iterations: int, report: Callable[[LinearTrial], None] | None = None
    ) -> tuple[Matrix, Ending]:
        """The best transform of the group `dof` applied before `matrix`, and why the search ended."""
        motion = Motion.on(self.scene.fixed.grid, dof, finest_spacing(self.scene.fixed.grid))
        here = self._point(matrix, motion)
        if not np.isfinite(here.cost):
            return matrix, Ending.STALLED
        damping, refused = FIRST_DAMPING, 0
        for number in range(iterations):
            if self.stop():
                return here.matrix, Ending.INTERRUPTED
            theta, step = bounded_step(here.gradient, here.curvature, damping, motion)
            predicted = -float(here.gradient @ theta + theta @ here.curvature @ theta / 2)
            if predicted < self.tolerance * abs(here.cost) or motion.reach(step) < SMALLEST_STEP_VOX:
                return here.matrix, Ending.CONVERGED
            there = self._point(here.matrix @ step, motion)
            accepted = there.cost < here.cost
            if report is not None:
                report(LinearTrial(dof, number, there.cost, damping, accepted))
            damping = next_damping(damping, (here.cost - there.cost) / predicted)
            refused = 0 if accepted else refused + 1
            if refused == REJECTIONS:
                return here.matrix, Ending.STALLED
            if accepted:
                here = there
        return here.matrix, Ending.LIMIT

    def rank(self, matrix: Matrix) -> float:
        """The cost by which starts are compared: what lies outside the other image counts as unlike."""
        share, worst = self.overlap.share(matrix), self.cost.worst
        if share < LEAST_OVERLAP:
            return float("inf")
        return worst - (worst - self.cost.value(matrix)) * share

    def _point(self, matrix: Matrix, motion: Motion) -> _Point:
        stretch = strain(matrix, self.reference)
        collapsed = np.abs(stretch).max() > LARGEST_STRAIN or abs(np.trace(stretch)) / 2 > LARGEST_VOLUME
        if collapsed or self.overlap.share(matrix) < LEAST_OVERLAP:
            nothing = np.zeros(len(motion.generators))
            return _Point(matrix, float("inf"), nothing, np.diag(nothing))
        found, j = self.cost.evaluate(matrix), motion.jacobian
        parts = self._strains(motion)
        return _Point(
            matrix,
            found.cost + self.prior * float((stretch**2).sum()) / 4,
            j.T @ found.gradient + self.prior * np.einsum("kab,ab->k", parts, stretch),
            np.asarray(j.T @ found.curvature @ j + 2 * self.prior * np.einsum("kab,lab->kl", parts, parts)),
        )

    def _strains(self, motion: Motion) -> NDArray[np.float64]:
        """(K, 3, 3) symmetric part of every generator, seen behind the reference."""
        reference = self.reference[:3, :3]
        parts = reference @ motion.generators[:, :3, :3] @ np.linalg.inv(reference)
        return np.asarray((parts + parts.transpose(0, 2, 1)) / 2)


def bounded_step(gradient: Vector, curvature: Square, damping: float, motion: Motion) -> tuple[Vector, Matrix]:
    """-(H + λ diag H)⁻¹ g, shortened so that no corner moves too far; θ and the 4x4 step."""
    diagonal = np.maximum(np.diag(curvature), 1e-6 * np.trace(curvature) / len(curvature) + 1e-12)
    damped = curvature + np.diag((damping + 1e-9) * diagonal)
    theta: Vector = np.asarray(-np.linalg.solve(damped, gradient), dtype=np.float64)
    step = motion.step(theta)
    reach = motion.reach(step)
    if reach > LARGEST_STEP_VOX:
        theta = theta * (LARGEST_STEP_VOX / reach)
        step = motion.step(theta)
    return theta, step


def next_damping(damping: float, gain: float) -> float:
    """λ after a step that lowered the cost by `gain` times what was predicted."""
    factor = 0.2 if gain > 0.7 else 1.0 if gain > 0.25 else 5.0
    return min(max(factor * damping, 1e-6), 1e6)
