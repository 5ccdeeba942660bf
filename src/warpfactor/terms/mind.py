"""Self-similarity (MIND-SSC): the mean squared difference of channels that describe shape and not intensity.

For images of different contrast. Channels are made once a level, of each image on its own grid, but what they compare
is the same in both: patches at offsets in millimetres along the fixed image's axes, which the affine carries into the
moving image. Offsets in voxels of each image would describe different things where their voxels differ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.ops import Ops, Slab
from warpfactor.scene.scene import OfFixed, Scene
from warpfactor.terms.base import Plain
from warpfactor.terms.channels import Call, Channel, Channels, normalized_weights
from warpfactor.terms.slab import VoxelSlab, voxel_slabs

Offset = tuple[float, float, float]
Couple = tuple[Offset, Offset]

PLANAR_SCALES = (1.0, 2.0, 4.0)  # of the distance: a slice has a third of the pairs, so there are three sizes of them
SHARP = 0.25  # voxels: a patch with a smaller SD is one voxel


@dataclass(frozen=True)
class MIND(Plain):
    """Settings of self-similarity.

    Attributes:
        distance: of the patches around a voxel from it, along each axis in units of the spacing there of the coarser of
            the two images.
        patch: SD of a patch, in the same units.
        symmetric: use the mean of the warped and the fixed channels' slopes as direction of the force.
    """

    distance: float = 1.0
    patch: float = 0.3
    symmetric: bool = True
    name: str = "mind"

    def __post_init__(self) -> None:
        if not (0 < self.distance < math.inf and 0 <= self.patch < math.inf):
            raise InputError(f"MIND distance {self.distance} must be above 0 and patch {self.patch} not below 0")

    def prepare(self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Channels:
        """The metric over the images of one level."""
        calls = tuple(self._call(channel, scene, ops) for channel in range(len(scene.fixed.data)))
        return Channels(calls, normalized_weights(weights, len(calls)))

    @property
    def slab_bytes(self) -> int:
        """The mask, and the channels of both images."""
        return 30

    def reach(self, level: int) -> int:
        """As far as patches lie apart, if the moving image's voxels are twice as large, and as wide as they are."""
        return math.ceil(2 * self.distance + 3 * self.patch) + 2

    def prepare_slabs(
        self, scene: Scene, ops: Ops, slabs: Sequence[Slab], *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> tuple[VoxelSlab, ...]:
        """The metric over every slab of the fixed image; self-similarity is described anew in every call.

        What counts as an image's noise is then the mean over a slab instead of over the image.
        """
        return voxel_slabs(self, scene, ops, slabs, self.reach(level) + 2, weights)

    def _call(self, channel: int, scene: Scene, ops: Ops) -> Channel:
        options = {
            "fixed_mask": scene.fixed.mask,
            "moving_mask": scene.moving.mask,
            "symmetric": self.symmetric,
        }
        return Call(ops, "mind", lambda matrix: self._described(channel, scene, matrix, ops), options)

    def _described(self, channel: int, scene: Scene, matrix: Tensor, ops: Ops) -> tuple[Tensor, Tensor]:
        """Self-similarity of both images for an affine; made when it is first asked for, and kept for that affine."""
        affine = tuple(matrix.flatten().tolist())
        key = ("self-similarity", self, channel)
        sides = (OfFixed(key), scene.fixed), (key, scene.moving)
        if any(name not in scene.notes or scene.notes[name][0] != affine for name, _ in sides):
            for (name, side), layout in zip(sides, _layouts(scene, matrix, self), strict=True):
                if name not in scene.notes or scene.notes[name][0] != affine:
                    scene.notes.pop(name, None)
                    described = ops.mind_channels(side.data[channel], pairs=layout.pairs, sigma=layout.sigma)
                    scene.notes[name] = (affine, described)
        return scene.notes[sides[0][0]][1], scene.notes[key][1]


class _Layout(NamedTuple):
    """Twelve pairs of offsets and the SD of the patches, in voxels of one image."""

    pairs: tuple[Couple, ...]
    sigma: tuple[float, ...]


def _layouts(scene: Scene, matrix: Tensor, settings: MIND) -> tuple[_Layout, _Layout]:
    """The same places in both images."""
    planar = scene.shape[0] == 1
    linear = matrix[:, :3].double().cpu().numpy()
    if planar:
        linear = np.block([[np.ones((1, 1)), np.zeros((1, 2))], [np.zeros((2, 1)), linear[1:, 1:]]])
    spacing = np.array(scene.fixed.grid.spacing_mm)
    steps = spacing[:, None] * np.linalg.inv(linear)  # mm along the fixed axes of a step to the next moving voxel
    unit = np.maximum(spacing, np.abs(steps).max(axis=1))
    # The patch is an ellipsoid with the units as axes; a moving voxel's step has a length in terms of it.
    lengths = np.linalg.norm(steps / unit[:, None], axis=0)
    places = [settings.distance * unit / spacing * np.array(pair) for pair in _pairs(planar)]
    return (
        _layout(places, settings.patch * unit / spacing),
        _layout([place @ linear.T for place in places], settings.patch / lengths),
    )


def _layout(pairs: list[Any], sigma: Any) -> _Layout:
    """Whole numbers up to rounding are whole numbers: voxels that need no interpolation."""
    rounded = np.round(np.array(pairs), 4) + 0.0
    couples = tuple((_offset(a), _offset(b)) for a, b in rounded.tolist())
    return _Layout(couples, tuple(s if s >= SHARP else 0.0 for s in sigma.tolist()))


def _offset(values: list[float]) -> Offset:
    z, y, x = values
    return z, y, x


def _pairs(planar: bool) -> list[tuple[Offset, Offset]]:
    """Neighbours of a voxel that are beside each other: twelve pairs of six, or four of the four in a slice."""
    neighbours = [(0.0, 0.0, 1.0), (0.0, 0.0, -1.0), (0.0, 1.0, 0.0), (0.0, -1.0, 0.0)]
    if not planar:
        neighbours += [(1.0, 0.0, 0.0), (-1.0, 0.0, 0.0)]
    beside = [(a, b) for a, b in combinations(neighbours, 2) if not any(map(math.prod, zip(a, b, strict=True)))]
    if not planar:
        return beside
    return [(_offset([k * v for v in a]), _offset([k * v for v in b])) for k in PLANAR_SCALES for a, b in beside]
