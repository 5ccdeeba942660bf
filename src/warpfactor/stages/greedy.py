"""The greedy deformable stage: the warp that brings the moving image onto the fixed one, found coarse to fine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels.buffers import give_back_memory, zero_field
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import Level, coarse_to_fine
from warpfactor.scene.prepare import stored
from warpfactor.scene.scene import Scene
from warpfactor.stages.device import run_level
from warpfactor.stages.level import Carried, LevelSolver
from warpfactor.stages.pyramid import (
    Endings,
    deformable_stage,
    full_cost,
    reporter,
    resample_field,
    resize,
    stage_ending,
    stage_levels,
)
from warpfactor.stages.repair import repair
from warpfactor.stages.settings import Deformable
from warpfactor.stages.shading import WINDOWS, window_likeness, without_shading
from warpfactor.stages.share import ALONE, Share
from warpfactor.stages.stage import Ending, Stage, Watch
from warpfactor.terms import Linearization, Sum, Weighted


def run_greedy(  # noqa: PLR0913 - what all deformable stages take, and who shares it
    scene: Scene,
    settings: Deformable,
    *,
    ops: Ops,
    affine: Matrix | None = None,
    start: Tensor | None = None,
    guides: Sequence[Weighted] = (),
    metric_weight: float = 1.0,
    watch: Watch | None = None,
    share: Share = ALONE,
) -> tuple[Tensor | None, Stage]:
    """The warp u that minimises the cost of M(A(x + u(x))) against F(x), and how the stage went.

    The cost at full resolution decides whether the warp is used: if it rose, the result is `start` again, as it is
    where the motion turns out to be too smooth for the settings (see Deformable.broad_from).

    Args:
        scene: the two images.
        settings: how.
        ops: the operations of the images' device.
        affine: A, 4x4, LPS mm, fixed to moving world; None is the identity.
        start: (3, *fixed shape) displacement in voxels of the fixed grid to start from; None starts at zero.
        guides: terms that are minimised together with the metric, such as landmarks.
        metric_weight: of the metric beside the guides.
        watch: who is told, and who may stop it.
        share: which planes are computed here. The first process has the whole warp in the end.
    """
    watch = watch or Watch()
    if guides:
        settings = replace(settings, metric=Sum((Weighted(settings.metric, metric_weight), *guides)))
    through = np.eye(4) if affine is None else np.asarray(affine, dtype=np.float64)
    given = _checked_start(scene, start)
    cost_of = _full_cost(scene, settings, through, share.ops(ops))
    before = cost_of(start)
    search = _Search(scene, settings, through, given, ops, watch, share)
    found = search.run()
    stage = deformable_stage(settings, before, lambda: cost_of(found), search.endings, watch)
    return (found if stage.kept else start), stage


@dataclass
class _Found:
    """The warp after a level, (3, D, H, W), and the grid it lives on; the next level takes it out.

    Attributes:
        coarse_start: what the given start became on the way; None if there was none, or it is no longer needed.
    """

    warp: Tensor | None
    grid: Grid
    coarse_start: Tensor | None


@dataclass
class _Search:
    """A run over the levels.

    Attributes:
        affine: 4x4, LPS mm.
        start: displacement on the fixed grid, or None.
        ops: for images; those of the share are for fields.
        endings: how each level ended, by factor.
    """

    scene: Scene
    settings: Deformable
    affine: Matrix
    start: Tensor | None
    ops: Ops
    watch: Watch
    share: Share
    endings: Endings = field(default_factory=list)
    carried: Carried = field(default_factory=Carried)

    def run(self) -> Tensor:
        """The displacement on the fixed grid."""
        self.scene = stored(self.scene, self.settings.storage)
        grid = self.scene.fixed.grid
        levels = stage_levels(self.scene, grid, self.settings, self.endings, self.ops, self.share)
        found = coarse_to_fine(levels, self._solve, _Found(self.start, grid, self.start))
        warp = found.warp
        if warp is None:
            warp = zero_field((3, *self.scene.shape), device=self.scene.device)
        warp = resample_field(warp, found.grid, grid, self.share.ops(self.ops), self.share)
        mended = self.settings.volume > 0 and stage_ending(self.endings) is not Ending.BROAD
        self.share.whole(warp, lambda: repair(warp, self.ops) if mended else 0)
        give_back_memory()
        return warp

    def _solve(self, level: Level, before: _Found) -> _Found:
        """The warp after one level."""
        grid, ops, share = level.scene.fixed.grid, self.share.ops(self.ops), self.share
        warp, coarse_start = self._lift(before, level)
        before.warp = before.coarse_start = None  # what the coarser level left is not held any longer
        matrix = VoxelMap(grid, None, self.affine).matrix(level.scene.moving.grid)
        optimizer, state = self.settings.optimizer, self.carried.state
        if state is None:
            self.carried.state = optimizer.init(warp)
        else:
            self.carried.state = optimizer.lift(state, lambda field: resize(field, before.grid, grid, ops))
        settings = self.settings

        def likeness(of: Scene) -> float:
            windows = WINDOWS.prepare(of, ops, weights=settings.channel_weights)
            return window_likeness(windows.linearize(warp, matrix))

        level = without_shading(level, settings, likeness, self.ops, share)
        report = reporter(level, self.scene.fixed.grid, settings, self.watch)
        stop = partial(share.agreed, self._stopped)
        solver = LevelSolver(level, matrix, settings, ops, report, stop, share)
        give_back_memory()
        warp, ending = run_level(solver, warp, self.carried)
        self.endings.append((level.factor, ending))
        return _Found(warp, grid, coarse_start)

    def _stopped(self) -> bool:
        return self.watch.stopped

    def _lift(self, before: _Found, level: Level) -> tuple[Tensor, Tensor | None]:
        """The warp on the level's grid, zero where there is none yet; and the coarse form of the given start there."""
        grid, ops = level.scene.fixed.grid, self.share.ops(self.ops)
        if before.warp is None:
            return zero_field((3, *level.scene.shape), device=level.scene.device), None
        lifted = _own(resample_field(before.warp, before.grid, grid, ops, self.share), before.warp)
        if self.start is None or before.coarse_start is None:
            return lifted, None
        coarse = _own(resample_field(before.coarse_start, before.grid, grid, ops), before.coarse_start)
        if not level.finest:
            return lifted, coarse
        # Give back what the start lost on the coarser grids.
        lifted += coarse.neg_().add_(resample_field(self.start, self.scene.fixed.grid, grid, ops))
        return lifted, None


def _own(lifted: Tensor, source: Tensor) -> Tensor:
    """The field in memory of its own: levels write into it."""
    return lifted.clone() if lifted is source else lifted


def _checked_start(scene: Scene, start: Tensor | None) -> Tensor | None:
    if start is None:
        return None
    if tuple(start.shape) != (3, *scene.shape):
        raise InputError(
            f"The initial displacement has shape {tuple(start.shape)}; the fixed image needs {(3, *scene.shape)}."
        )
    if not bool(torch.isfinite(start).all()):
        raise InputError("The initial displacement has NaN or infinite values.")
    return start.to(device=scene.device, dtype=torch.float32).contiguous()


def _full_cost(
    scene: Scene, settings: Deformable, affine: Matrix, ops: Ops
) -> Callable[[Tensor | None], Linearization]:
    """The stage's own cost at full resolution, of a displacement; infinite where the images do not overlap."""
    last = len(settings.levels) - 1
    cost = settings.metric.prepare(scene, ops, level=last, weights=settings.channel_weights)
    through = VoxelMap(scene.fixed.grid, None, affine).matrix(scene.moving.grid)

    def cost_of(displacement: Tensor | None) -> Linearization:
        field = displacement
        if field is None:
            field = zero_field((3, *scene.shape), device=scene.device)
        return full_cost(cost.linearize(field.to(device=scene.device, dtype=torch.float32), through))

    return cost_of
