"""Images that stay on disk: parts of them are read when they are needed.

OME-Zarr, uncompressed NIfTI and uncompressed TIFF are read in parts. Any other file can only be read from its beginning
to its end; its voxels are then held in the number type of the file.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from warpfactor.errors import FileError, InputError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.io.formats import find_format
from warpfactor.io.images import from_any
from warpfactor.io.voxels import Array, Box, Stored

SLAB_BYTES = 32 << 20  # of planes that are read at once


@dataclass(frozen=True)
class LazyImage:
    """An image of which parts are read.

    Attributes:
        grid: of its voxels.
        dtype: number type of the file.
        name: for messages.
        channels: number of channels.
        held_bytes: memory that the image itself takes: none if it stays on disk.
        thickness: planes that a chunk of the file has; reading as many at once unpacks every chunk once.
        levels: coarser forms of the image that are stored with it, fine to coarse.
        voxels: reads a box of a channel; see Stored.
    """

    grid: Grid
    dtype: np.dtype[Any]
    name: str
    channels: int
    held_bytes: int
    thickness: int
    levels: tuple[LazyImage, ...]
    voxels: Callable[[int, Box], Array]

    def read(self, channel: int, box: Box) -> Array:
        """The voxels of a channel (from 0) in a box, in the number type of the file and in memory of their own."""
        return self.voxels(channel, box)

    def part(self, box: Box, *, labels: bool = False) -> Image:
        """The voxels in a box, as an image in its place: int32 if they are labels, else float32."""
        tensors = [itk.to_tensor(self.read(channel, box)) for channel in range(self.channels)]
        data = torch.stack(tensors).to(torch.int32 if labels else torch.float32)
        return Image(data, box_grid(self.grid, box), self.name)

    def image(self) -> Image:
        """The whole image as float32."""
        data = torch.empty((self.channels, *self.grid.shape), dtype=torch.float32)
        for channel in range(self.channels):
            for planes in self.slabs():
                data[channel, planes] = itk.to_tensor(self.read(channel, whole_planes(self.grid, planes))).float()
        return Image(data, self.grid, self.name)

    def slabs(self) -> Iterator[slice]:
        """Runs of planes that cover the depth, each a few chunks thick and of bounded size."""
        plane = math.prod(self.grid.shape[1:]) * self.dtype.itemsize
        count = max(1, SLAB_BYTES // max(plane, 1))
        count = max(self.thickness, count - count % self.thickness)
        return (slice(z, min(z + count, self.grid.shape[0])) for z in range(0, self.grid.shape[0], count))

    def with_channels(self, numbers: Sequence[int] | int) -> LazyImage:
        """Some of the channels, counted from 1."""
        wanted = [numbers] if isinstance(numbers, int) else list(numbers)
        for number in wanted or [0]:
            if not 1 <= number <= self.channels:
                has = "one channel" if self.channels == 1 else f"{self.channels} channels"
                raise InputError(f"{self.name}: has {has}; channel {number} cannot be chosen, they count from 1.")
        return replace(
            self,
            channels=len(wanted),
            levels=tuple(level.with_channels(numbers) for level in self.levels),
            voxels=lambda channel, box: self.voxels(wanted[channel] - 1, box),
        )

    def with_grid(self, grid: Grid) -> LazyImage:
        """The same voxels elsewhere; coarser levels, whose places are then not known, are dropped."""
        return replace(self, grid=grid, levels=())


def whole_planes(grid: Grid, planes: slice) -> Box:
    """The box of some planes of a grid."""
    return planes, slice(0, grid.shape[1]), slice(0, grid.shape[2])


def box_grid(grid: Grid, box: Box) -> Grid:
    """The grid of the voxels in a box."""
    step = np.eye(4)
    step[:3, 3] = [part.start for part in box]
    depth, height, width = (part.stop - part.start for part in box)
    return Grid((depth, height, width), grid.matrix @ step, grid.ndim)


def open_lazily(
    source: Any, *, spacing_mm: Sequence[float] | float | None = None, name: str | None = None
) -> LazyImage:
    """An image that is read in parts, from a path or anything that `from_any` takes.

    Args:
        source: what to read; objects in memory are taken as they are.
        spacing_mm: instead of the file's own, along (z, y, x).
        name: for messages.
    """
    if not isinstance(source, (str, Path)):
        return held(from_any(source, spacing_mm=spacing_mm, name=name))
    path = Path(source)
    found = _opened(path)
    if spacing_mm is None:
        return found
    try:
        still = Image(torch.empty((1, *found.grid.shape), dtype=torch.uint8, device="meta"), found.grid, found.name)
        return found.with_grid(still.with_spacing(spacing_mm).grid)
    except InputError as error:
        raise FileError(f"{path}: {error}") from error


def held(image: Image) -> LazyImage:
    """An image in memory as one that is read in parts."""
    data = image.data.detach().cpu().numpy()
    return _of_array(data, image.grid, image.name)


def _opened(path: Path) -> LazyImage:
    chosen = find_format(path)
    finder = getattr(chosen, "stored", None)
    try:
        found: Stored | None = None if finder is None else finder(path)
        if found is not None:
            return _of_stored(path, found)
        volumes = chosen.read(path)
    except InputError as error:
        raise FileError(f"{path}: {error}") from error
    if len(volumes.data) != 1:
        raise _series(path, len(volumes.data))
    return _of_array(volumes.data[0], volumes.grid, path.name)


def _of_stored(path: Path, found: Stored) -> LazyImage:
    if found.volumes != 1:
        raise _series(path, found.volumes)
    return LazyImage(
        grid=found.grid,
        dtype=found.dtype,
        name=path.name,
        channels=found.channels,
        held_bytes=0,
        thickness=found.thickness,
        levels=tuple(_of_stored(path, level) for level in found.levels),
        voxels=found.read,
    )


def _series(path: Path, volumes: int) -> FileError:
    return FileError(
        f"{path}: is a 4-D image with {volumes} volumes where one is expected; extract one, or their mean."
    )


def _of_array(data: Array, grid: Grid, name: str) -> LazyImage:
    """(C, D, H, W) voxels that are in memory."""
    read = functools.partial(_copied, data)
    return LazyImage(grid, data.dtype, name, len(data), int(data.nbytes), 1, (), read)


def _copied(data: Array, channel: int, box: Box) -> Array:
    return np.array(data[(channel, *box)])


def boxes(shape: Sequence[int], size: Sequence[int]) -> Iterator[Box]:
    """Boxes of at most this size that cover a grid, plane by plane."""
    ranges = [[slice(k, min(k + step, n)) for k in range(0, n, step)] for n, step in zip(shape, size, strict=True)]
    return ((z, y, x) for z, y, x in itertools.product(*ranges))
