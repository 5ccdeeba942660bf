"""The stages of a recipe, one at a time: run it, measure its cost before and after, say how it went."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from warpfactor.geometry.grid import Matrix
from warpfactor.geometry.resample import VoxelMap
from warpfactor.registration.resources import insist
from warpfactor.scene.scene import Scene, finest_spacing, level_shape
from warpfactor.stages.history import Record, Status
from warpfactor.stages.linear.stage import LinearRecord, LinearSettings, register_linear
from warpfactor.stages.pyramid import register_deformable
from warpfactor.stages.settings import Deformable

WORSE = "The warp made the images less alike and was left out; the result is the transform it started from."


@dataclass(frozen=True)
class Stage:
    """How a stage went.

    Attributes:
        name: "translation", "rigid", "similarity", "affine" or "deformable".
        metric: the name of its cost.
        level: factor of the resolution at which the costs were taken; 1 is the fixed image's own.
        cost_before, cost_after: without any prior; 0 is a perfect match.
        status: why it ended, in words.
        interrupted: whether Ctrl-C ended it.
        kept: whether its result was used; False if it was worse than what it started from.
        seconds: it took.
        history: one record per iteration.
        levels: how each level ended, by factor, coarse to fine; of the deformable stage.
        start: name of the start that was chosen; of linear stages.
        start_costs: what every start tried cost, by name.
    """

    name: str
    metric: str
    level: float
    cost_before: float
    cost_after: float
    status: str
    interrupted: bool
    kept: bool
    seconds: float
    history: tuple[LinearRecord, ...] | tuple[Record, ...]
    levels: tuple[tuple[float, str], ...] = ()
    start: str | None = None
    start_costs: tuple[tuple[str, float], ...] = ()

    def change(self, digits: int) -> str:
        """What it did to its cost, as text; a zero has no minus."""
        before, after = (f"{round(cost, digits) + 0.0:.{digits}f}" for cost in (self.cost_before, self.cost_after))
        return f"{before if math.isfinite(self.cost_before) else 'no overlap'} -> {after}"


@dataclass(frozen=True)
class Update:
    """One iteration, as it is told to `progress`.

    Attributes:
        stage: name of the stage.
        level: factor of the level; 1 is the fixed image's own resolution.
        iteration, limit: number within the level, from 0, and how many there may be.
        cost: of the warp or transform tried.
        damping: of the step.
        accepted: whether the trial was kept.
        step_vox: longest step taken from here, in voxels of the level; None in linear stages.
        done: share of the stage's work that is done, 0 to 1; a stage may end earlier.
        seconds: since the stage started.
    """

    stage: str
    level: float
    iteration: int
    limit: int
    cost: float
    damping: float
    accepted: bool
    step_vox: float | None
    done: float
    seconds: float


Progress = Callable[[Update], None]


def run_linear(
    scene: Scene,
    settings: LinearSettings,
    start: Matrix | None,
    *,
    ops: ModuleType,
    progress: Progress | None,
    keep_interrupted: bool,
) -> tuple[Matrix, Stage]:
    """The matrix after a linear stage, and how it went."""
    began = time.perf_counter()
    tell = None if progress is None else _LinearTeller(settings, progress)
    found = register_linear(
        scene, settings=settings, ops=ops, start=start, progress=tell, keep_interrupted=keep_interrupted
    )
    stage = Stage(
        name=settings.dof,
        metric=settings.metric,
        level=settings.levels[-1],
        cost_before=found.cost_before,
        cost_after=found.cost,
        status=found.status,
        interrupted=found.interrupted,
        kept=True,
        seconds=time.perf_counter() - began,
        history=found.history,
        start=found.start,
        start_costs=tuple(found.start_costs.items()),
    )
    return found.matrix, stage


def run_deformable(
    scene: Scene,
    settings: Deformable,
    matrix: Matrix,
    start: Tensor | None,
    *,
    ops: ModuleType,
    progress: Progress | None,
    keep_interrupted: bool,
) -> tuple[Tensor | None, Stage]:
    """The displacement after the deformable stage, and how it went.

    The cost at full resolution decides whether it is used: if it rose, the displacement is `start` again.
    """
    began = time.perf_counter()
    cost_of = _deformable_cost(scene, settings, matrix, ops)
    before = cost_of(start)
    found = register_deformable(
        scene,
        settings,
        ops=ops,
        affine=matrix,
        start=start,
        progress=None if progress is None else _DeformableTeller(settings, scene, progress),
        keep_interrupted=keep_interrupted,
    )
    after, stopped = insist(lambda: cost_of(found.displacement), keep=keep_interrupted)
    kept = after <= before or not math.isfinite(before)
    status = Status.INTERRUPTED if stopped else found.status
    stage = Stage(
        name="deformable",
        metric=settings.metric.name,
        level=1.0,
        cost_before=before,
        cost_after=after,
        status=status.value if kept else WORSE,
        interrupted=status is Status.INTERRUPTED,
        kept=kept,
        seconds=time.perf_counter() - began,
        history=found.records,
        levels=found.outcomes,
    )
    return (found.displacement if kept else start), stage


def _deformable_cost(
    scene: Scene, settings: Deformable, matrix: Matrix, ops: ModuleType
) -> Callable[[Tensor | None], float]:
    """The stage's own metric at full resolution, of a displacement; infinite where the images do not overlap."""
    last = len(settings.levels) - 1
    cost = settings.metric.prepare(scene.pair, ops, level=last, weights=settings.channel_weights)
    through = VoxelMap(scene.fixed_grid, None, matrix).matrix(scene.moving_grid)

    def cost_of(displacement: Tensor | None) -> float:
        field = displacement
        if field is None:
            field = torch.zeros((3, *scene.pair.shape), device=scene.device)
        point = cost.linearize(field.to(device=scene.device, dtype=torch.float32), through)
        return point.cost if point.count else math.inf

    return cost_of


class _LinearTeller:
    """Turns the records of a linear stage into updates; its work is counted in levels."""

    def __init__(self, settings: LinearSettings, progress: Progress) -> None:
        self._settings, self._progress = settings, progress
        self._place: tuple[float, str] | None = None
        self._iteration = 0

    def __call__(self, record: LinearRecord) -> None:
        place = (record.level, record.dof)
        self._iteration = self._iteration + 1 if place == self._place else 0
        self._place = place
        levels = self._settings.levels
        number = levels.index(record.level)
        self._progress(
            Update(
                stage=record.dof,
                level=record.level,
                iteration=self._iteration,
                limit=self._settings.iterations[number],
                cost=record.cost,
                damping=record.damping,
                accepted=record.accepted,
                step_vox=None,
                done=number / len(levels),
                seconds=record.seconds,
            )
        )


class _DeformableTeller:
    """Turns the records of the deformable stage into updates; an iteration costs in proportion to its voxels."""

    def __init__(self, settings: Deformable, scene: Scene, progress: Progress) -> None:
        self._settings, self._progress = settings, progress
        grid = scene.fixed_grid
        finest = finest_spacing(grid)
        self._voxels = [math.prod(level_shape(grid, factor * finest)) for factor in settings.levels]
        self._total = sum(v * n for v, n in zip(self._voxels, settings.iterations, strict=True))

    def __call__(self, record: Record) -> None:
        number = self._settings.levels.index(record.level)
        limits = self._settings.iterations
        work = sum(v * n for v, n in zip(self._voxels[:number], limits[:number], strict=True))
        work += self._voxels[number] * (record.iteration + 1)
        self._progress(
            Update(
                stage="deformable",
                level=record.level,
                iteration=record.iteration,
                limit=limits[number],
                cost=record.cost,
                damping=record.damping,
                accepted=record.accepted,
                step_vox=record.step_vox,
                done=min(1.0, work / max(self._total, 1)),
                seconds=record.seconds,
            )
        )
