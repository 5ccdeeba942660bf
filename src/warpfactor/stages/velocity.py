"""The velocity stage: both images move to the middle, by the flow of one stationary velocity field and back.

The way to the moving image is exp(v / 2), that to the fixed one exp(-v / 2). A step s taken in the middle makes
exp(v / 2) exp(s) exp(v / 2) of the whole way, and the logarithm of that is v + s up to terms of third order (Baker,
Campbell and Hausdorff), so steps are added.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from warpfactor.geometry.velocity import doublings, exponential, exponential_on_device
from warpfactor.kernels.numbers import quotient
from warpfactor.kernels.ops import DeviceOps, Ops
from warpfactor.scene.scene import Scene
from warpfactor.stages.between import MiddleLevel, run_between
from warpfactor.stages.found import Found, Halves
from warpfactor.stages.level import per_field
from warpfactor.stages.settings import Deformable
from warpfactor.terms.both import Pair


class VelocityLevel(MiddleLevel):
    """A level whose state is a velocity; how often its flow is doubled depends on how far it leads.

    Attributes:
        most: how often it is doubled at most in turns for which the host does not wait; see `foresee`.
    """

    fields = 1
    most = 0

    @staticmethod
    def ways(state: Tensor, ops: Ops) -> Pair:
        half = state / 2
        return exponential(-half, ops), exponential(half, ops)

    def _ways_on_device(self, state: Tensor, ops: Ops) -> Pair:
        half, unwaited = state / 2, cast(DeviceOps, ops)
        return exponential_on_device(-half, unwaited, self.most), exponential_on_device(half, unwaited, self.most)

    def foresee(self, warp: Tensor, turns: int) -> int:
        """How often flows are doubled at most: as for a velocity that grows to twice its size and by every step."""
        longest = 2 * float(warp.abs().max()) + turns * self.settings.step
        self.most = int(doublings(longest / 2))
        return self.most

    def _advance(self, warp: Tensor, other: Tensor, scale: float, share: float) -> None:
        settings = self.settings
        if settings.volume > 0:
            self._even_out(divergence(warp), other, quotient(settings.volume * share, scale))
        other.mul_(per_field(scale)).add_(warp)
        self._smooth_warp(other, share)


def divergence(velocity: Tensor) -> Tensor:
    """(D, H, W): the rate at which the flow of a velocity (3, D, H, W) changes volume; zero at the border."""
    components = velocity.unbind(-4)
    total = torch.zeros_like(components[0])
    for component, axis in zip(components, (-3, -2, -1), strict=True):
        inner = component.shape[axis] - 2
        if inner > 0:
            change = component.narrow(axis, 2, inner) - component.narrow(axis, 0, inner)
            total.narrow(axis, 1, inner).add_(change, alpha=0.5)
    return total


def run_velocity(scene: Scene, settings: Deformable, *, ops: Ops, **given: Any) -> Found:
    """The velocity of the whole way seen from the fixed grid, its exponential, and that of its negative.

    Args:
        scene: the two images.
        settings: how.
        ops: the operations of the images' device.
        given: affine, guides, their weights and the watch; see run_between.
    """
    found = run_between(VelocityLevel, scene, settings, ops=ops, **given)
    if not found.stage.kept:
        return Found(None, found.stage)
    halves = Halves(found.middle, *VelocityLevel.ways(found.state, ops))
    velocity = found.middle.seen_from(scene.fixed.grid, found.state, ops)
    return Found(exponential(velocity, ops), found.stage, exponential(-velocity, ops), velocity, halves)
