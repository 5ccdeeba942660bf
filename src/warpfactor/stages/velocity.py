"""The velocity stage: both images move to the middle, by the flow of one stationary velocity field and back.

The way to the moving image is exp(v / 2), that to the fixed one exp(-v / 2). A step s taken in the middle makes
exp(v / 2) exp(s) exp(v / 2) of the whole way, and the logarithm of that is v + s up to terms of third order (Baker,
Campbell and Hausdorff), so steps are added.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpfactor.geometry.velocity import exponential
from warpfactor.kernels.numbers import quotient
from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene
from warpfactor.stages.between import MiddleLevel, run_between
from warpfactor.stages.found import Found, Halves
from warpfactor.stages.settings import Deformable
from warpfactor.terms.both import Pair


class VelocityLevel(MiddleLevel):
    """A level whose state is a velocity; how often its flow is doubled depends on how far it leads."""

    fields = 1
    waits = True

    @staticmethod
    def ways(state: Tensor, ops: Ops) -> Pair:
        half = state / 2
        return exponential(-half, ops), exponential(half, ops)

    def _advance(self, warp: Tensor, other: Tensor, scale: float, share: float) -> None:
        settings = self.settings
        if settings.volume > 0:
            self._even_out(divergence(warp), other, quotient(settings.volume * share, scale))
        other.mul_(scale).add_(warp)
        self._smooth_warp(other, share)


def divergence(velocity: Tensor) -> Tensor:
    """(D, H, W): the rate at which the flow of a velocity (3, D, H, W) changes volume; zero at the border."""
    total = torch.zeros_like(velocity[0])
    for axis, component in enumerate(velocity):
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
