"""How much memory a level holds on a GPU: fields by the voxel, rings by the plane. A test compares it with the code."""

from __future__ import annotations

from warpfactor.bench.gpu.traffic import slab_bytes

IMAGES = 8  # bytes per voxel: fixed and moving
FIELDS = {"root, pointwise": 24, "tile": 24, "adam": 48}  # warp and gradient; Adam's two moments


def level_bytes(shape: tuple[int, int, int], metric: str, step: str) -> int:
    """Bytes of a level at its peak, with one channel, without masks, where no step is undone."""
    voxels = shape[0] * shape[1] * shape[2]
    return voxels * (IMAGES + FIELDS[step]) + slab_bytes(shape, metric, step)
