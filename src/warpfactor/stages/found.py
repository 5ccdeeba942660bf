"""What a deformable stage leaves."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike
from torch import Tensor

from warpfactor.geometry.grid import Points
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

    def swapped(self) -> Halves:
        """The same of the exchanged images, which is the way back."""
        return Halves(self.middle.swapped(), self.to_moving, self.to_fixed)

    def map_points(self, points: ArrayLike) -> Points:
        """(N, 3) LPS mm of fixed space -> moving space, through both halves themselves.

        No field is stored on the grid of one of the images on the way, so that the way there and the way back undo each
        other to 0.001 voxel, and exchanged images have the same two ways to rounding.
        """
        return self.middle.map_points(points, self.to_fixed, self.to_moving)


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
