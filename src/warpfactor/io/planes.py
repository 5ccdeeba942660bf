"""NIfTI files written some planes at a time: no second copy of an image or a field has to exist, packed or not.

Their header is the one that ITK writes for a small image in the same place, with the true sizes put in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from warpfactor.errors import FileError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid, slabs
from warpfactor.geometry.itk import sitk
from warpfactor.io import packing
from warpfactor.io.atomic import atomic_path

_MOST = (1 << 15) - 1  # voxels along an axis that the format can count
_SIZES, _START = 42, 108  # where the header has them, 16 bits each, and the place of the first voxel, a float
_TYPE = np.dtype("<f4")


def fits(path: Path, grid: Grid) -> bool:
    """Whether this is how a file of that name and size is written."""
    return path.name.lower().endswith((".nii", ".nii.gz")) and max(grid.shape) <= _MOST


def write_image(data: Tensor, grid: Grid, path: Path, *, force: bool) -> None:
    """Write a (C, D, H, W) float32 image."""
    _write(_image_planes(data), data.shape[0], grid, path, force=force)


def write_field(displacement: Tensor, grid: Grid, path: Path, *, force: bool) -> None:
    """Write a (3, D, H, W) voxel displacement as vector image in LPS mm."""
    _write(_field_planes(displacement, grid), grid.ndim, grid, path, force=force)


def _image_planes(data: Tensor) -> Iterator[np.ndarray[Any, Any]]:
    for channel in data.detach():
        yield from (channel[planes].cpu().numpy() for planes in slabs(channel.shape))


def _field_planes(displacement: Tensor, grid: Grid) -> Iterator[np.ndarray[Any, Any]]:
    """All planes of the first component, then those of the next: the format's order."""
    for axis in range(grid.ndim):
        for planes in slabs(grid.shape):
            yield grid.voxels_to_mm(displacement[:, planes].detach(), axis).cpu().numpy()


def _write(planes: Iterable[np.ndarray[Any, Any]], components: int, grid: Grid, path: Path, *, force: bool) -> None:
    with atomic_path(path, force=force) as temporary:
        header = _header(components, grid, temporary.with_name(f"{temporary.name}-header.nii"))
        if header is None:
            raise FileError(f"{path}: could not be written completely; is the disk full?")
        with packing.opened(temporary) as put:
            put(header)
            for plane in planes:
                put(np.ascontiguousarray(plane, dtype=_TYPE).data.cast("B"))


def _header(components: int, grid: Grid, trial: Path) -> bytes | None:
    """All that comes before the first voxel, by way of a small file `trial`; None if that could not be written."""
    sizes = tuple(reversed(grid.shape))[: grid.ndim]
    kind = sitk.sitkVectorFloat32 if components > 1 else sitk.sitkFloat32
    image = itk.place(sitk.Image([min(n, 2) for n in sizes], kind, components), grid)
    try:
        with itk.files:
            sitk.WriteImage(image, str(trial))
        raw = trial.read_bytes()
    except RuntimeError:
        return None
    finally:
        trial.unlink(missing_ok=True)
    if len(raw) < _START + 4:
        return None
    (start,) = struct.unpack_from("<f", raw, _START)
    header = bytearray(raw[: int(start)])
    struct.pack_into(f"<{len(sizes)}h", header, _SIZES, *sizes)
    return bytes(header)
