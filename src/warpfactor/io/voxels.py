"""Voxels on their way out of and into an image file: the common form that every file format reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfactor.geometry.grid import Grid

Array = NDArray[Any]


@dataclass(frozen=True)
class Volumes:
    """The voxels that an image file holds, and their place in space.

    Attributes:
        data: (T, C, D, H, W), in the number type of the file; T is 1 unless the file is a 4-D series.
        grid: of every volume.
        step: distance between the volumes of a series, usually in seconds.
    """

    data: Array
    grid: Grid
    step: float = 1.0


@dataclass(frozen=True)
class VoxelSource:
    """The voxels to write into an image file, computed slab by slab so that no second copy of them has to exist.

    Attributes:
        slabs: called with the numbers of a volume and a channel; yields (planes, H, W) arrays that cover the depth.
        dtype: number type of the file.
        grid: of every volume.
        channels: number of components per voxel.
        volumes: number of volumes.
        step: distance between the volumes of a 4-D series; None writes a 2-D or 3-D file.
    """

    slabs: Callable[[int, int], Iterator[Array]]
    dtype: np.dtype[Any]
    grid: Grid
    channels: int = 1
    volumes: int = 1
    step: float | None = None


Box = tuple[slice, slice, slice]  # of voxels along z, y, x; starts and stops are given


@dataclass(frozen=True)
class Stored:
    """The voxels of a file that can be read in parts.

    Attributes:
        grid: of every volume.
        dtype: number type as they are read.
        channels, volumes: how many there are.
        read: called with a channel and a box; returns a (D, H, W) array of its own, of the first volume.
        thickness: planes that are unpacked together.
        levels: coarser forms of the image that the file holds, fine to coarse.
    """

    grid: Grid
    dtype: np.dtype[Any]
    channels: int
    volumes: int
    read: Callable[[int, Box], Array]
    thickness: int = 1
    levels: tuple[Stored, ...] = ()


class FileHeader(NamedTuple):
    """What is known about a file without reading its voxels.

    Attributes:
        volumes: number of volumes; 1 unless the file is a 4-D series.
        dtype: number type of the voxels as they are read.
        shape: number of voxels of a volume along (z, y, x), or (y, x) if the file is 2-D; None if it is not known.
    """

    volumes: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None = None
