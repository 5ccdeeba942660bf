"""Two images that face each other: each is compared on its own grid, as it is, with the other one, which is led to it.

Two warps are found side by side, of the fixed grid to the moving image and of the moving grid to the fixed one, each as
the greedy stage finds it. Now and then they are reconciled: each makes up for half of what they lack to be each other's
inverse. In the end each is walked half-way, so that what meets in the middle is invertible by construction. Exchanged
images do the same with exchanged warps.

Neither image is resampled before it is compared. On a grid in the middle both would be, in every iteration, and what
interpolation blurs there is lost to the force.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels.buffers import give_back_memory, new_field, zero_field
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import Level, coarse_to_fine, finest_spacing
from warpfactor.scene.middle import DIGITS, Middle
from warpfactor.scene.scene import Scene
from warpfactor.stages.agreement import Agreement
from warpfactor.stages.level import Carried, Iteration, LevelSolver, Walk
from warpfactor.stages.pyramid import (
    Endings,
    deformable_stage,
    full_cost,
    reporter,
    resample_field,
    resize,
    stage_levels,
)
from warpfactor.stages.settings import Deformable
from warpfactor.stages.shading import WINDOWS, window_likeness, without_shading
from warpfactor.stages.stage import Ending, Stage, Watch
from warpfactor.terms import Linearization, Prepared, Term
from warpfactor.terms.both import BetweenTerm, mean_of

Two = tuple[Tensor, Tensor]
RECONCILE_EVERY = 8  # iterations of a level; also at its end
UNALIKE = 1.5  # ratio of two grids' spacings from which neither can stand for the other


@dataclass(frozen=True)
class Facing:
    """Two grids with a linear map between them.

    Attributes:
        grids: of the fixed and of the moving image.
        matrices: (3, 4) each, voxels of the one to voxels of the other.
    """

    grids: tuple[Grid, Grid]
    matrices: Two

    @classmethod
    def of(cls, fixed: Grid, moving: Grid, affine: Matrix) -> Facing:
        """Of two images that an affine brings together, 4x4, LPS mm."""
        back = np.asarray(np.linalg.inv(affine), dtype=np.float64)
        ways = ((fixed, moving, affine), (moving, fixed, back))
        first, second = (VoxelMap(one, None, way).matrix(other).round(decimals=DIGITS) for one, other, way in ways)
        return cls((fixed, moving), (first, second))

    def split(self, both: Tensor) -> Two:
        """The parts of (3 N + 3 M,) values on the two grids, (3, D, H, W) each; views."""
        first, second = (grid.shape for grid in self.grids)
        size = 3 * math.prod(first)
        return both[:size].view(3, *first), both[size:].view(3, *second)

    def led(self, side: int, vectors: Tensor, warp: Tensor, ops: Ops) -> Tensor:
        """Vectors of the other grid, where a warp of this one leads, in this grid's voxels; zero outside.

        Args:
            side: of the warp, 0 for the fixed grid.
            vectors: (3, D, H, W) on the other grid, in its voxels.
        """
        found = new_field((3, *self.grids[side].shape), device=vectors.device)
        for component, values in zip(found, vectors, strict=True):
            component.copy_(ops.sample(values, warp, self.matrices[side]))
        return self._turned(side, found)

    def reconcile(self, warps: Two, ops: Ops) -> None:
        """Make two warps each other's inverse, in place: half of what is missing is made up for by either.

        One step of Newton's method. What a warp leads out of the other image stays as it is.
        """
        inside = [self._inside(k, warps[k], ops) for k in (0, 1)]
        errors = [self.led(k, warps[1 - k], warps[k], ops).add_(warps[k]).mul_(inside[k]) for k in (0, 1)]
        for k in (0, 1):
            warps[k].sub_(self.led(k, errors[1 - k], warps[k], ops).mul_(inside[k]), alpha=0.5)
        del errors
        give_back_memory()

    def _inside(self, side: int, warp: Tensor, ops: Ops) -> Tensor:
        """(D, H, W) bool: where a warp leads into the other image."""
        everywhere = torch.ones(self.grids[1 - side].shape, device=warp.device)
        return ops.sample(everywhere, warp, self.matrices[side]) > 0

    def _turned(self, side: int, vectors: Tensor) -> Tensor:
        """Vectors in voxels of the other grid as those of this one."""
        linear = self.matrices[1 - side][:, :3].to(vectors)
        return torch.einsum("ab,bzyx->azyx", linear, vectors)


@dataclass(frozen=True)
class _Cost:
    """The mean of what the two images cost, each on its own grid."""

    sides: tuple[Prepared, Prepared]
    facing: Facing

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize; of both warps in one."""
        warps, facing = self.facing.split(displacement), self.facing
        gradients = (None, None) if gradient is None else facing.split(gradient)
        return mean_of(*(self.sides[k].linearize(warps[k], facing.matrices[k], gradients[k]) for k in (0, 1)))


class FacingLevel(LevelSolver):
    """One level; what it finds is both warps in one, (3 N + 3 M,)."""

    def __init__(
        self,
        level: Level,
        facing: Facing,
        settings: Deformable,
        ops: Ops,
        report: Callable[[Iteration], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.facing = facing
        levels = level, replace(level, scene=level.scene.swapped())
        first, second = (LevelSolver(levels[k], facing.matrices[k], settings, ops) for k in (0, 1))
        self.sides = first, second
        super().__init__(level, facing.matrices[0], settings, ops, report, stop)

    def _prepared(self, metric: Term) -> Prepared:
        return _Cost((self.sides[0].cost, self.sides[1].cost), self.facing)

    def _halves(self, force: Tensor, wider: float) -> Agreement:
        parts = zip(self.sides, self.facing.split(force), strict=True)
        found = [side._halves(part, wider) for side, part in parts]
        return Agreement(sum(each.correlation for each in found) / 2, sum(each.power for each in found) / 2)

    def _step(self, walk: Walk, point: Linearization, number: int, state: Any) -> None:
        damping, facing = walk.state.damping, self.facing
        warps, steps = facing.split(walk.warp), facing.split(walk.other)
        strides = []
        for side, step, own in zip(self.sides, steps, state or (None, None), strict=True):
            side.widened, side.tail = self.widened, self.tail
            strides.append(side._stride(step, point, damping, own, first=number == 0))
        length = sum(stride.length for stride in strides) / 2
        for side, warp, step, stride in zip(self.sides, warps, steps, strides, strict=True):
            side._advance(warp, step, stride.scale, self._share(length))
        if number % RECONCILE_EVERY == RECONCILE_EVERY - 1:
            facing.reconcile(steps, self.ops)
        self._report(Iteration(number, point, damping, step_vox=length))
        decrease = sum(stride.decrease for stride in strides) / 2
        walk.state = replace(walk.state, predicted=decrease / point.count)


@dataclass(frozen=True)
class FoundFacing:
    """What two images that face each other found: both warps at full resolution, and how the stage went."""

    warps: Two
    stage: Stage


def can_face(scene: Scene, metric: Term, affine: Matrix) -> bool:
    """Whether two images can be compared on the grids of both.

    A term with data of its own is about the images where they meet; and of two grids of which one is much the coarser,
    neither is as good as the other.
    """
    scale = abs(float(np.linalg.det(affine[:3, :3]))) ** (1 / 3)
    grids = [side.grid for side in scene.sides]
    fixed, moving = ((finest_spacing(g), math.prod(g.spacing_mm) ** (1 / 3)) for g in grids)
    ratios = [abs(math.log(one * scale / other)) for one, other in zip(fixed, moving, strict=True)]
    return max(ratios) <= math.log(UNALIKE) and not isinstance(metric, BetweenTerm)


def run_facing(
    scene: Scene, settings: Deformable, middle: Middle, *, ops: Ops, affine: Matrix, watch: Watch
) -> FoundFacing:
    """Both warps that minimise the mean cost of both images, and how the stage went.

    Args:
        middle: the space between them, by whose grid levels are chosen.
        affine: 4x4, LPS mm, fixed to moving world.
        watch: who is told, and who may stop it.
    """
    whole = Facing.of(scene.fixed.grid, scene.moving.grid, affine)
    sizes = (math.prod(grid.shape) for grid in whole.grids)
    start = zero_field((3 * sum(sizes),), device=scene.device)
    last = len(settings.levels) - 1
    sides = scene, scene.swapped()
    first, second = (settings.metric.prepare(s, ops, level=last, weights=settings.channel_weights) for s in sides)
    cost = _Cost((first, second), whole)

    def cost_of(both: Tensor) -> Linearization:
        return full_cost(cost.linearize(both, whole.matrices[0]))

    before = cost_of(start)
    give_back_memory()
    search = _Search(scene, whole, affine, middle.grid, settings, ops, watch)
    found = search.run(start)
    stage = deformable_stage(settings, before, lambda: cost_of(found), search.endings, watch)
    return FoundFacing(whole.split(found if stage.kept else found.zero_()), stage)


@dataclass
class _Search:
    """A run over the levels.

    Attributes:
        whole: the two images at full resolution.
        grid: by whose spacing levels are chosen.
        endings: how each level ended, by factor.
    """

    scene: Scene
    whole: Facing
    affine: Matrix
    grid: Grid
    settings: Deformable
    ops: Ops
    watch: Watch
    endings: Endings = field(default_factory=list)
    carried: Carried = field(default_factory=Carried)

    def run(self, start: Tensor) -> Tensor:
        """Both warps at full resolution; `start` is left as it is."""
        levels = stage_levels(self.scene, self.grid, self.settings, self.endings, self.ops)
        both, last = coarse_to_fine(levels, self._solve, (start, self.whole))
        lifted = self._lifted(both, last, self.whole)
        give_back_memory()
        return lifted

    def _solve(self, level: Level, before: tuple[Tensor, Facing]) -> tuple[Tensor, Facing]:
        """Both warps after one level, and its grids."""
        settings, ops = self.settings, self.ops
        coarse, old = before
        facing = Facing.of(level.scene.fixed.grid, level.scene.moving.grid, self.affine)
        both = self._lifted(coarse, old, facing)
        self._carry(facing.split(both), old, facing)

        def likeness(of: Scene) -> float:
            sides = of, of.swapped()
            first, second = (WINDOWS.prepare(each, ops, weights=settings.channel_weights) for each in sides)
            return window_likeness(_Cost((first, second), facing).linearize(both, facing.matrices[0]))

        level = without_shading(level, settings, likeness, ops)
        report = reporter(level, self.grid, settings, self.watch)
        solver = FacingLevel(level, facing, settings, ops, report, lambda: self.watch.stopped)
        give_back_memory()
        both, ending = solver.run(both, self.carried)
        if ending is not Ending.BROAD:
            facing.reconcile(facing.split(both), ops)
        self.endings.append((level.factor, ending))
        return both, facing

    def _lifted(self, both: Tensor, source: Facing, target: Facing) -> Tensor:
        """Both warps on other grids, in memory of their own."""
        parts = zip(source.split(both), source.grids, target.grids, strict=True)
        return torch.cat([resample_field(warp, one, other, self.ops).reshape(-1) for warp, one, other in parts])

    def _carry(self, warps: Sequence[Tensor], old: Facing, new: Facing) -> None:
        """The states of the optimizer's steps, one for each grid, on those of a level."""
        optimizer, ops = self.settings.optimizer, self.ops
        if self.carried.state is None:
            states = tuple(optimizer.init(warp) for warp in warps)
            self.carried.state = None if states[0] is None else states
            return
        self.carried.state = tuple(
            optimizer.lift(state, partial(resize, source=one, target=other, ops=ops))
            for state, one, other in zip(self.carried.state, old.grids, new.grids, strict=True)
        )
