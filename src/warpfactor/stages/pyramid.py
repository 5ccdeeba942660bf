"""What deformable stages share on their way from coarse to fine: levels, fields between them, reports, endings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from torch import Tensor

from warpfactor.geometry.grid import Grid
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import Level, finest_spacing, level_scene, level_shape, repeated_levels
from warpfactor.scene.scene import Scene
from warpfactor.stages.level import Iteration
from warpfactor.stages.settings import Deformable
from warpfactor.stages.share import ALONE, Share
from warpfactor.stages.stage import Ending, Event, Stage, Watch
from warpfactor.terms import Linearization

Endings = list[tuple[float, Ending]]


def stage_levels(
    scene: Scene, grid: Grid, settings: Deformable, endings: Endings, ops: Ops, share: Share = ALONE
) -> Iterator[Level]:
    """The levels of a stage one after the other; those that repeat the next one are left out.

    Args:
        grid: the grid on which the images are compared at full resolution; levels are multiples of its spacing.
        endings: how the levels so far ended; those that are left out are added. None follows an interrupted one.
        ops: for images.
        share: which planes are computed here.
    """
    repeated = repeated_levels(scene, settings.levels, grid)
    last = len(settings.levels) - 1
    for number, (factor, iterations) in enumerate(zip(settings.levels, settings.iterations, strict=True)):
        if endings and endings[-1][1] is Ending.INTERRUPTED:
            return
        if number in repeated:
            endings.append((factor, Ending.SKIPPED))
            continue
        small = scene
        if factor > 1:
            small = share.scene(partial(level_scene, scene, factor, ops, blur=settings.blur, grid=grid))
        yield Level(number, factor, iterations, number == last, small)
        del small


def level_grid(grid: Grid, factor: float) -> Grid:
    """The grid of a level; itself at full resolution."""
    return grid if factor <= 1 else grid.scaled(shape=level_shape(grid, factor * finest_spacing(grid)))


def resample_field(field: Tensor, source: Grid, target: Grid, ops: Ops, share: Share = ALONE) -> Tensor:
    """Displacements (3 or 6, D, H, W) on one level's grid, linearly interpolated on another's and in its voxels."""
    if source == target:
        return field
    resized = resize(field, source, target, ops)
    own = slice(*share.planes(target.shape[0]))
    for channel, component in enumerate(resized):
        component[own] /= source.shape[channel % 3] / target.shape[channel % 3]
    return resized


def resize(field: Tensor, source: Grid, target: Grid, ops: Ops) -> Tensor:
    """A (C, D, H, W) field on another grid over the same field of view: index + 1/2 is a fixed share of the length."""
    factors = np.asarray(source.shape) / np.asarray(target.shape)
    return ops.resize(field, target.shape, factors.tolist(), ((factors - 1) / 2).tolist())


def reporter(level: Level, grid: Grid, settings: Deformable, watch: Watch) -> Callable[[Iteration], None]:
    """Tells a watch of the iterations of a level; an iteration costs in proportion to its voxels.

    Args:
        grid: at full resolution.
    """
    finest = finest_spacing(grid)
    voxels = [math.prod(level_shape(grid, factor * finest)) for factor in settings.levels]
    work = [v * n for v, n in zip(voxels, settings.iterations, strict=True)]
    before, total = sum(work[: level.number]), max(sum(work), 1)

    def report(done: Iteration) -> None:
        share = (before + voxels[level.number] * (done.number + 1)) / total
        watch.tell(
            Event(
                stage="deformable",
                level=level.factor,
                iteration=done.number,
                limit=level.iterations,
                cost=done.point.cost,
                residual=done.point.residual,
                damping=done.damping,
                accepted=done.accepted,
                step_vox=done.step_vox,
                done=min(1.0, share),
                seconds=watch.seconds,
                parts=done.point.parts,
            )
        )

    return report


def full_cost(point: Linearization) -> Linearization:
    """A cost at full resolution; infinite where the images do not overlap."""
    return point if point.count else replace(point, cost=math.inf)


def deformable_stage(
    settings: Deformable, before: Linearization, cost_after: Callable[[], Linearization], levels: Endings, watch: Watch
) -> Stage:
    """How a deformable stage went.

    What it found is kept unless the cost at full resolution rose; one that ends as too smooth has found nothing.

    Args:
        before: at full resolution, of the start.
        cost_after: the same of what was found; asked only if that is a result.
        levels: how each ended.
    """
    ending = stage_ending(levels)
    broad = ending is Ending.BROAD
    after = before if broad else cost_after()
    kept = not broad and (after.cost <= before.cost or not math.isfinite(before.cost))
    return Stage(
        name="deformable",
        metric=settings.metric.name,
        level=1.0,
        cost_before=before.cost,
        cost_after=after.cost,
        ending=ending if kept or broad else Ending.WORSE,
        kept=kept,
        seconds=watch.seconds,
        history=tuple(watch.events),
        levels=tuple(levels),
        terms=tuple((name, cost, dict(after.parts)[name]) for name, cost in before.parts),
    )


def stage_ending(levels: Endings) -> Ending:
    """Why a stage ended, by how its levels did."""
    last = levels[-1][1] if levels else Ending.LIMIT
    if last in (Ending.INTERRUPTED, Ending.STALLED, Ending.ROSE, Ending.BROAD):
        return last
    settled = (Ending.CONVERGED, Ending.STALLED, Ending.NOISE, Ending.SKIPPED)
    return Ending.CONVERGED if all(ending in settled for _, ending in levels) else Ending.LIMIT
