"""Images resampled block by block: parts of the input are read, and blocks of the output are written, as they come."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.resample import VoxelMap, resample_through
from warpfactor.geometry.transform import Transform
from warpfactor.io import omezarr
from warpfactor.io.formats import find_format
from warpfactor.io.lazy import LazyImage, box_grid, boxes, whole_planes
from warpfactor.io.voxels import Array, Box, VoxelSource
from warpfactor.kernels.ops import Ops
from warpfactor.registration.apply import LABEL_MODES
from warpfactor.scene.object import background

BLOCK_VOXELS, FEWEST_VOXELS = 1 << 22, 1 << 21  # of the output, computed at once; a chunk has so many
VOXEL_BYTES = 100  # that a voxel of a block takes while it is computed
MARGIN = 2  # voxels around what a block maps to that are read with it
GLIMPSE_PLANES = 32  # of an image without coarser levels, from which its background follows


@dataclass(frozen=True)
class Resampling:
    """An image on another grid, of which any block can be computed by itself.

    Attributes:
        transform: from the space of `grid` to that of the image.
        image: read in parts.
        grid: of the output.
        mode: of interpolation; "bspline" looks at the whole image and has no part here.
        outside: value of every channel outside the image.
        ops: the kernels.
    """

    transform: Transform
    image: LazyImage
    grid: Grid
    mode: str
    outside: tuple[float, ...]
    ops: Ops

    def __post_init__(self) -> None:
        if self.mode == "bspline":
            raise InputError(
                "-n bspline needs the whole image and cannot be computed in parts; use linear, or leave "
                "--memory and --workers out."
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Number type of the output: that of the input, in single precision at most."""
        own = self.image.dtype
        return np.dtype(np.float32) if own.kind not in "iu" or own.itemsize > 4 else own

    def block(self, channel: int, box: Box) -> Array:
        """The voxels of a channel in a box of the output."""
        place = self.transform.on_grid(box_grid(self.grid, box), ops=self.ops)
        needed = needed_box(place, self.image.grid)
        shape, value = place.grid.shape, self.outside[channel]
        if needed is None:
            return np.full(shape, value).astype(self.dtype)
        one = self.image.with_channels(channel + 1)
        part = one.part(needed, labels=self.mode in LABEL_MODES)
        found = resample_through(part, place, mode=self.mode, outside=value, ops=self.ops).data[0]
        return _as_type(found, self.dtype)


def _as_type(values: Tensor, dtype: np.dtype[Any]) -> Array:
    """Values in a number type, rounded and clipped to what it holds."""
    if dtype.kind in "iu" and values.is_floating_point():
        limits = np.iinfo(dtype)
        values = values.double().round_().clamp_(int(limits.min), int(limits.max))
    return values.numpy().astype(dtype)


def needed_box(place: VoxelMap, image: Grid) -> Box | None:
    """The voxels of an image around those that a block maps to; None if it maps outside."""
    matrix = place.matrix(image).double()
    low, high = matrix[:, 3].clone(), matrix[:, 3].clone()
    ends = [(0.0, n - 1.0) for n in place.grid.shape]
    if place.displacement is not None:
        ranges = [part.aminmax() for part in place.displacement]
        ends = [(a + float(r.min), b + float(r.max)) for (a, b), r in zip(ends, ranges, strict=True)]
    for axis, (a, b) in enumerate(ends):
        column = matrix[:, axis]
        low += torch.minimum(column * a, column * b)
        high += torch.maximum(column * a, column * b)
    parts = []
    for a, b, n in zip(low.tolist(), high.tolist(), image.shape, strict=True):
        start, stop = max(0, math.floor(a) - MARGIN), min(n, math.ceil(b) + MARGIN + 1)
        if stop <= start:
            return None
        parts.append(slice(start, stop))
    return parts[0], parts[1], parts[2]


def write_resampled(work: Resampling, path: Path, *, force: bool = False, voxels: int = BLOCK_VOXELS) -> None:
    """Write the output while it is computed; the file appears complete or not at all.

    Args:
        work: what to compute.
        path: of an OME-Zarr, which is written block by block; or of another file, plane by plane.
        force: replace an existing file.
        voxels: of a block.
    """
    if not omezarr.handles(path):
        _write_planes(work, path, force=force, voxels=voxels)
        return
    with omezarr.writing(path, work.grid, work.dtype, work.image.channels, force=force) as folder:
        for channel, box in zarr_blocks(work.grid, work.image.channels, voxels):
            omezarr.put(folder, channel, box, work.block(channel, box))


def zarr_blocks(grid: Grid, channels: int, voxels: int) -> Iterator[tuple[int, Box]]:
    """Channels and boxes of whole chunks of at most so many voxels, but at least a chunk: one writer for each chunk."""
    size = [min(omezarr.CHUNK, n) for n in grid.shape]
    for axis in (2, 1, 0):
        while size[axis] < grid.shape[axis] and 2 * math.prod(size) <= voxels:
            size[axis] *= 2
    return ((channel, box) for channel in range(channels) for box in boxes(grid.shape, size))


def _write_planes(work: Resampling, path: Path, *, force: bool, voxels: int) -> None:
    def planes(_: int, channel: int) -> Iterator[Array]:
        count = max(1, voxels // math.prod(work.grid.shape[1:]))
        for start in range(0, work.grid.shape[0], count):
            part = slice(start, min(start + count, work.grid.shape[0]))
            yield work.block(channel, whole_planes(work.grid, part))

    source = VoxelSource(planes, work.dtype, work.grid, work.image.channels)
    find_format(path).write(source, path, force=force)


def lazy_background(image: LazyImage, outside: float | None, mode: str) -> tuple[float, ...]:
    """What is outside an image, per channel: the given value, or its own background; 0 if labels are meant."""
    if outside is not None or mode in LABEL_MODES:
        return (float(outside or 0.0),) * image.channels
    return tuple(background(_glimpse(image, channel)) for channel in range(image.channels))


def _glimpse(image: LazyImage, channel: int) -> Tensor:
    """A channel at its coarsest stored level, or some of its planes."""
    if image.levels:
        return image.levels[-1].with_channels(channel + 1).image().data[0]
    depth = image.grid.shape[0]
    numbers = np.unique(np.linspace(0, depth - 1, min(depth, GLIMPSE_PLANES)).round().astype(int)).tolist()
    planes = [image.read(channel, whole_planes(image.grid, slice(z, z + 1))).astype(np.float32) for z in numbers]
    return torch.from_numpy(np.concatenate(planes))
