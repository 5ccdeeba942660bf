"""Terms that add up what single voxels cost, over slabs of the images: the planes around a slab are masked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from warpfactor.kernels.ops import Ops, Slab
from warpfactor.scene.scene import Scene
from warpfactor.terms.base import Linearization, Term


def voxel_slabs(
    term: Term, scene: Scene, ops: Ops, slabs: Sequence[Slab], reach: int, weights: tuple[float, ...] | None
) -> tuple[VoxelSlab, ...]:
    """A term that adds up what single voxels cost, over every slab; see Local.

    Args:
        reach: voxels around those that a slab maps to on which its cost depends.
    """
    return tuple(VoxelSlab(term, scene, ops, slab, reach, weights) for slab in slabs)


@dataclass(frozen=True)
class VoxelSlab:
    """Such a term over one slab. What it needs of the moving image is what the slab maps to; nothing is kept.

    Attributes:
        term: is prepared anew in every call, with few planes of both images.
    """

    term: Term
    scene: Scene
    ops: Ops
    slab: Slab
    reach: int
    weights: tuple[float, ...] | None

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize."""
        planes = self._moving_planes(displacement, matrix)
        if planes.start >= planes.stop:
            if gradient is not None:
                gradient.zero_()
            return Linearization(0.0, 0.0, 0.0)
        fixed, moving = self.scene.sides
        outer = self.slab.outer
        mask = torch.zeros((outer.stop - outer.start, *fixed.shape[1:]), dtype=torch.uint8)
        mask[self.slab.inner] = 1 if fixed.mask is None else fixed.mask[self.slab.core]
        part = Scene(
            replace(fixed, data=fixed.data[:, outer], mask=mask),
            replace(moving, data=moving.data[:, planes], mask=None if moving.mask is None else moving.mask[planes]),
        )
        there = matrix.clone()
        there[0, 3] -= planes.start
        return self.term.prepare(part, self.ops, weights=self.weights).linearize(displacement, there, gradient)

    def _moving_planes(self, displacement: Tensor, matrix: Tensor) -> slice:
        """Planes of the moving image that the slab maps to, with some around them."""
        low = high = float(matrix[0, 3])
        for axis, part in enumerate(displacement):
            least, most = part.aminmax()
            ends = [float(matrix[0, axis]) * end for end in (float(least), float(most) + part.shape[axis] - 1)]
            low, high = low + min(ends), high + max(ends)
        depth = self.scene.moving.shape[0]
        return slice(max(0, math.floor(low) - self.reach), min(depth, math.ceil(high) + self.reach + 1))
