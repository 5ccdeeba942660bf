"""The symmetric deformable stage: both images move to the middle, by two warps that are found together.

A step is taken half forwards by the warp to the moving image and half backwards by the warp to the fixed one.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from warpfactor.geometry.grid import Grid
from warpfactor.kernels.numbers import quotient
from warpfactor.kernels.ops import Ops
from warpfactor.scene.middle import Middle
from warpfactor.scene.scene import Scene
from warpfactor.stages.between import MiddleLevel, run_between
from warpfactor.stages.consistent import consistent, settle, undo_each_other
from warpfactor.stages.found import Found, Halves
from warpfactor.stages.repair import repair
from warpfactor.stages.settings import Deformable
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
    **given: Any,
) -> Found:
    """The warp to the moving image after the inverse of the warp to the fixed one, seen from the fixed grid.

    Args:
        scene: the two images.
        settings: how.
        ops: the operations of the images' device.
        given: affine, guides, their weights and the watch; see run_between.
    """
    found = run_between(SymmetricLevel, scene, settings, ops=ops, **given)
    if not found.stage.kept:
        return Found(None, found.stage)
    to_moving, to_fixed = found.state[:3], found.state[3:]
    if settings.volume > 0:
        repair(to_moving, ops)
        repair(to_fixed, ops)
    grid, middle = scene.fixed.grid, found.middle
    forward, inverse = _maps(grid, middle, (to_fixed, to_moving), ops)
    if not undo_each_other(forward, inverse, ops):
        settle(middle, (to_fixed, to_moving), ops)
        forward, inverse = _maps(grid, middle, (to_fixed, to_moving), ops)
    if settings.volume > 0:
        repair(forward, ops)
    inverse = consistent(forward, inverse, ops)
    return Found(forward, found.stage, inverse, halves=Halves(middle, to_fixed, to_moving))


def _maps(grid: Grid, middle: Middle, halves: tuple[Tensor, Tensor], ops: Ops) -> tuple[Tensor, Tensor]:
    """The displacement on a fixed grid and its inverse, of those of the middle to the fixed and the moving image."""
    to_fixed, to_moving = halves
    forward = middle.whole_way(grid, to_fixed, to_moving, ops)
    return forward, middle.whole_way(grid, to_moving, to_fixed, ops)
