"""What a deformable stage leaves."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from warpfactor.scene.middle import Middle
from warpfactor.stages.stage import Stage


@dataclass(frozen=True)
class Halves:
    """How both images get to the middle.

    Attributes:
        middle: the space between them.
        to_fixed, to_moving: (3, D, H, W) displacements of it in its voxels, before the linear maps to the two images.
    """

    middle: Middle
    to_fixed: Tensor
    to_moving: Tensor


@dataclass(frozen=True)
class Found:
    """The warp of a deformable stage and how the stage went.

    Attributes:
        displacement: (3, *fixed shape) in voxels of the fixed grid; None if there is none.
        stage: how it went.
        inverse: of the displacement, on the same grid, if the stage knows it; else it is computed.
        velocity: (3, *fixed shape) in voxels, the field of which the displacement is the exponential, if there is one.
        halves: how both images get to the middle, if both moved.
    """

    displacement: Tensor | None
    stage: Stage
    inverse: Tensor | None = None
    velocity: Tensor | None = None
    halves: Halves | None = None
