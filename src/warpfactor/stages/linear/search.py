"""The search for a start: near ones first, then all round.

A coarse level ranks all starts, a finer one decides among the few. With several metrics, each finds rivals of its own,
and a judge that does not care about contrast decides between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warpfactor.scene.levels import finest_spacing
from warpfactor.stages.linear.judge import Judge
from warpfactor.stages.linear.motion import MOTIONS, Motion
from warpfactor.stages.linear.solve import Solver
from warpfactor.stages.linear.starts import (
    Start,
    axes_starts,
    plain_starts,
    shifted_starts,
    sized_starts,
    turned_starts,
)
from warpfactor.stages.linear.wide import wide_starts

PROMISING = 4  # starts that are optimised, of those of one kind
SEARCH_ITERATIONS = 15
RIVALS = 3  # of them that are compared at the second level
SAME_PLACE_VOX = 1.0  # starts closer together than this, at the image's corner, are one
QUICK = (5, 8)  # steps of translation and of rotation by which starts all round are judged
FAR, FAR_MARGINS = math.radians(45), 6.0  # a volume turned by more must be better by so many times the margin
LIMITS = (SEARCH_ITERATIONS, SEARCH_ITERATIONS)


def stages_up_to(dof: str) -> tuple[str, ...]:
    """The groups up to `dof`."""
    return MOTIONS[: MOTIONS.index(dof) + 1]


def plain_and_near_starts(solver: Solver, dof: str, names: Iterable[str]) -> list[Start]:
    """All that is asked for: plain ones first, then turns and shifts around the two best of these."""
    overlap, names = solver.overlap, tuple(names)
    turns = dof != "translation"
    plain = plain_starts(overlap, names)
    found = [*plain, *(axes_starts(overlap) if turns and "axes" in names else [])]
    if dof in ("similarity", "affine") and "size" in names:
        found += sized_starts(overlap)
    for start in sorted(plain, key=lambda s: solver.rank(s.matrix))[:2]:
        found += turned_starts(overlap, start) if turns and "turns" in names else []
        found += shifted_starts(overlap, start) if "shifts" in names else []
    return found


@dataclass(frozen=True)
class Search:
    """How starts are compared.

    Attributes:
        dof: the group of the transform that is looked for.
        names: what is tried, of starts.STARTS.
        iterations: at most this many per stage.
    """

    dof: str
    names: tuple[str, ...]
    iterations: int

    def near(self, run: Sequence[Solver], starts: Sequence[Start], costs: Mapping[str, float]) -> Start:
        """The best of the starts that are near.

        Args:
            run: the solvers of the levels that are searched, coarse to fine.
            starts: those that are near.
            costs: of these by name, at the coarsest level.
        """
        return self._rivals(run, sorted(starts, key=lambda s: costs[s.name]), PROMISING)[0]

    def all_round(self, runs: Sequence[Sequence[Solver]], starts: Sequence[Start], near: Start, judge: Judge) -> Start:
        """The start to go on from: the best near one, or one found by any metric that the judge prefers to it.

        Args:
            runs: per metric the solvers of the levels that are searched, coarse to fine.
            starts: those that are near, which metrics may rank in another order.
            near: the best of them by the first metric.
            judge: compares transforms across metrics.
        """
        finalists = list[tuple[float, Sequence[Solver], Start]]()
        for run in runs:
            for group in self._groups(starts, run[0]):
                quick = (self._refine(run[0], start, QUICK) for start in group)
                finalists += [(judge.cost(start.matrix), run, start) for start in quick]
        finalists.sort(key=lambda each: each[0])
        rivals = [self._refine(run[-1], start, (0, SEARCH_ITERATIONS)) for _, run, start in finalists[:RIVALS]]
        charged = {id(s): judge.cost(s.matrix) + _surcharge(s, judge) for s in rivals}
        charged[id(near)] = judge.cost(near.matrix)
        return min([near, *rivals], key=lambda start: charged[id(start)])

    def _groups(self, starts: Sequence[Start], solver: Solver) -> list[list[Start]]:
        """The promising ones of each kind of start: near ones, and those all round by size and place."""
        groups = [list(starts)]
        if self.dof != "translation" and "turns" in self.names:
            sized = self.dof in ("similarity", "affine") and "size" in self.names
            groups += wide_starts(solver.overlap, sized=sized)
        found = []
        for group in groups:
            ranked = sorted((solver.rank(start.matrix), k) for k, start in enumerate(group))
            found.append(_distinct([group[k] for _, k in ranked[: 4 * PROMISING]], solver)[:PROMISING])
        return found

    def _rivals(self, run: Sequence[Solver], starts: Sequence[Start], count: int) -> list[Start]:
        """The best few of starts in order of their cost after some steps at each level, best first."""
        rivals = _distinct(starts, run[0])[:count]
        for solver in run:
            refined = _distinct([self._refine(solver, s) for s in rivals], solver)
            rivals = sorted(refined, key=lambda s: solver.rank(s.matrix))[:RIVALS]
        return rivals

    def _refine(self, solver: Solver, start: Start, limits: tuple[int, int] = LIMITS) -> Start:
        """The start after a few steps of translation and, if allowed, rotation."""
        matrix = start.matrix
        for dof, limit in zip(stages_up_to(self.dof)[:2], limits, strict=False):
            matrix, _ = solver.solve(matrix, dof, min(limit, self.iterations))
        return Start(start.name, matrix)


def _surcharge(start: Start, judge: Judge) -> float:
    """What a start must be better by than the best near one; volumes know how they lie, so turns of them cost more."""
    left, _, right = np.linalg.svd(start.matrix[:3, :3])
    far = (np.trace(left @ right) - 1) / 2 < math.cos(FAR)
    return judge.margin * (FAR_MARGINS if far and judge.overlap.fixed.grid.shape[0] > 1 else 1)


def _distinct(starts: Sequence[Start], solver: Solver) -> list[Start]:
    """The starts; of those that are in the same place only the first."""
    motion = Motion.on(solver.scene.fixed.grid, "rigid", finest_spacing(solver.scene.fixed.grid))
    found: list[Start] = []
    for start in starts:
        apart = (np.asarray(np.linalg.solve(s.matrix, start.matrix), dtype=np.float64) for s in found)
        if all(motion.reach(step) >= SAME_PLACE_VOX for step in apart):
            found.append(start)
    return found
