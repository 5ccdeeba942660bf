"""The linear stages of a recipe: how the images lie on each other, and what is missing from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Matrix
from warpfactor.registration.running import RunContext
from warpfactor.scene.missing import Gap, Lookout, without_background
from warpfactor.scene.scene import Scene
from warpfactor.stages.linear.both import run_linear_both_ways
from warpfactor.stages.linear.stage import LinearSettings, run_linear
from warpfactor.stages.stage import Stage


@dataclass(frozen=True)
class Aligned:
    """What the linear stages leave: the matrix and how they went."""

    matrix: Matrix
    stages: tuple[Stage, ...]

    @property
    def interrupted(self) -> bool:
        return any(stage.interrupted for stage in self.stages)


def with_gaps(
    scene: Scene, settings: Sequence[LinearSettings], start: Matrix | None, first: Aligned, run: RunContext
) -> tuple[Aligned, tuple[Gap, ...]]:
    """How the images lie on each other, and what is missing from them.

    A part that is missing may have misled the linear stages. If there is one, or one object is much the smaller, they
    run again without that image's background. What they find then holds if there is a gap, for a second time or at a
    lower cost (with more evidence, if the metric is another one).
    """
    lookout = Lookout(scene)
    gaps = lookout.gaps(first.matrix)
    suspects = tuple(gap.side for gap in gaps) or lookout.smaller()
    if not suspects or run.stopped:
        return first, gaps
    try:
        second = run_linear_stages(without_background(scene, suspects, run.ops), settings, start, run)
        found = lookout.gaps(second.matrix)
    except InputError:  # too little is left to go by
        return first, gaps
    if second.interrupted:  # it had not come as far as the first
        return first, gaps
    if found and (gaps or _more_alike(second.stages[-1], first.stages[-1])):
        return second, found
    return first, gaps


def refined(scene: Scene, settings: Sequence[LinearSettings], found: Aligned, run: RunContext) -> Aligned:
    """The alignment by what is left where parts are missing, from the one that the whole images, or objects, gave."""
    if run.stopped:
        return found
    try:
        again = run_linear_stages(scene, settings[-1:], found.matrix, run)
    except InputError:  # too little is left to go by
        return found
    return found if again.interrupted else replace(again, stages=(*found.stages[:-1], *again.stages))


def _more_alike(stage: Stage, other: Stage) -> bool:
    """Whether a linear stage left the images more alike than another one; costs of two metrics cannot be compared."""
    if stage.metric == other.metric:
        return stage.cost_after < other.cost_after
    return (stage.evidence or 0.0) > (other.evidence or 0.0)


def run_linear_stages(
    scene: Scene, settings: Sequence[LinearSettings], start: Matrix | None, run: RunContext
) -> Aligned:
    """The linear stages one after the other; the best so far holds if they are stopped."""
    matrix, stages = start, list[Stage]()
    for each in settings:
        find = run_linear_both_ways if each.symmetric else run_linear
        matrix, stage = find(scene, each, ops=run.ops, start=matrix, watch=run.watch())
        stages.append(stage)
        run.log_stage(stage)
        run.clock.lap(stage.name)
        if stage.interrupted:
            break
    return Aligned(np.eye(4) if matrix is None else matrix, tuple(stages))
