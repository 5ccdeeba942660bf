"""The symmetric deformable stage: both images move to the middle, by two warps that are found together.

Without guides the two warps are those of each image to the other one, walked half-way (facing.py). With guides, which
are about the place where the images meet, both images are brought to the middle in every iteration: a step is taken
half forwards by the warp to the moving image and half backwards by the warp to the fixed one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.kernels.buffers import give_back_memory
from warpfactor.kernels.numbers import quotient
from warpfactor.kernels.ops import Ops
from warpfactor.scene.middle import Middle
from warpfactor.scene.scene import Scene
from warpfactor.stages.between import MiddleLevel, run_between
from warpfactor.stages.consistent import consistent, settle, undo_each_other
from warpfactor.stages.facing import can_face, run_facing
from warpfactor.stages.found import Found, Halves
from warpfactor.stages.repair import repair
from warpfactor.stages.settings import Deformable
from warpfactor.stages.stage import Stage, Watch
from warpfactor.terms import Weighted
from warpfactor.terms.both import Pair


class SymmetricLevel(MiddleLevel):
    """A level whose state is two warps: three fields to the moving image, then three to the fixed one."""

    fields = 2

    @staticmethod
    def ways(state: Tensor, ops: Ops) -> Pair:
        return state[3:], state[:3]

    def _advance(self, warp: Tensor, other: Tensor, scale: float, share: float) -> None:
        settings = self.settings
        (to_moving, to_fixed), (step, room) = _parts(warp), _parts(other)
        if settings.volume > 0:
            self._even_out(self._log_ratio(warp), step, quotient(settings.volume * share, scale))
        self.ops.compose(to_fixed, step, scale=-scale / 2, out=room)
        self.ops.compose(to_moving, step, scale=scale / 2, out=step)
        self._smooth_warp(other, share)

    def _log_ratio(self, warp: Tensor) -> Tensor:
        """(D, H, W) log Jacobian of the warp to the moving image less that of the other: what both do together."""
        to_moving, to_fixed = _parts(warp)
        return self._log_volume(to_moving).sub_(self._log_volume(to_fixed))


def _parts(state: Tensor) -> tuple[Tensor, Tensor]:
    """The three fields to the moving image, and those to the fixed one."""
    return state.narrow(-4, 0, 3), state.narrow(-4, 3, 3)


def run_symmetric(
    scene: Scene,
    settings: Deformable,
    *,
    ops: Ops,
    affine: Matrix | None = None,
    guides: Sequence[Weighted] = (),
    metric_weight: float = 1.0,
    watch: Watch | None = None,
) -> Found:
    """The warp to the moving image after the inverse of the warp to the fixed one, seen from the fixed grid.

    Images by themselves are compared on their own grids (facing.py), with guides in the middle (between.py).

    Args:
        scene: the two images.
        settings: how.
        ops: the operations of the images' device.
        affine: 4x4, LPS mm, fixed to moving world; None is the identity.
        guides: terms that are minimised together with the metric, such as landmarks.
        metric_weight: of the metric beside the guides.
        watch: who is told, and who may stop it.
    """
    watch = watch or Watch()
    through = np.eye(4) if affine is None else np.asarray(affine, dtype=np.float64)
    if guides or not can_face(scene, settings.metric, through):
        between = run_between(
            SymmetricLevel,
            scene,
            settings,
            ops=ops,
            affine=through,
            guides=guides,
            metric_weight=metric_weight,
            watch=watch,
        )
        halves = Halves(between.middle, between.state[3:], between.state[:3])
        return _found(scene, settings, halves, between.stage, ops)
    middle = Middle.of(scene.fixed.grid, scene.moving.grid, through)
    facing = run_facing(scene.single(), settings, middle, ops=ops, affine=through, watch=watch)
    halves, stage = Halves(middle, *_half_ways(scene, middle, facing.warps, ops)), facing.stage
    del facing  # what comes needs the memory of its warps
    give_back_memory()
    return _found(scene, settings, halves, stage, ops)


def _half_ways(scene: Scene, middle: Middle, warps: tuple[Tensor, Tensor], ops: Ops) -> tuple[Tensor, Tensor]:
    """The displacements of the middle to both images, of warps of these that are to be walked half-way."""
    grids, halves = (scene.fixed.grid, scene.moving.grid), []
    for warp, grid, matrix in zip(warps, grids, middle.matrices_to(*grids), strict=True):
        halves.append(ops.invert(middle.brought(warp, grid, matrix, ops).mul_(0.5))[0])
        give_back_memory()
    return halves[0], halves[1]


def _found(scene: Scene, settings: Deformable, halves: Halves, stage: Stage, ops: Ops) -> Found:
    """The way through both halves, and back, as they undo each other."""
    if not stage.kept:
        return Found(None, stage)
    to_fixed, to_moving, middle = halves.to_fixed, halves.to_moving, halves.middle
    if settings.volume > 0:
        repair(to_moving, ops)
        repair(to_fixed, ops)
    grid = scene.fixed.grid
    forward, inverse = _maps(grid, middle, (to_fixed, to_moving), ops)
    if not undo_each_other(forward, inverse, ops):
        settle(middle, (to_fixed, to_moving), ops)
        forward, inverse = _maps(grid, middle, (to_fixed, to_moving), ops)
    if settings.volume > 0:
        repair(forward, ops)
    inverse = consistent(forward, inverse, ops)
    return Found(forward, stage, inverse, halves=halves)


def _maps(grid: Grid, middle: Middle, halves: tuple[Tensor, Tensor], ops: Ops) -> tuple[Tensor, Tensor]:
    """The displacement on a fixed grid and its inverse, of those of the middle to the fixed and the moving image."""
    to_fixed, to_moving = halves
    forward = middle.whole_way(grid, to_fixed, to_moving, ops)
    return forward, middle.whole_way(grid, to_moving, to_fixed, ops)
