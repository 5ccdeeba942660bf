"""TIFF, OME-TIFF and ImageJ files: voxels with their axes, channels and spacing, through tifffile."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from warpfactor.errors import FileError, InputError, OutOfMemoryError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.itk import sitk
from warpfactor.io import simpleitk
from warpfactor.io.headers.tiff import check
from warpfactor.io.headers.trial import try_image
from warpfactor.io.units import unit_mm
from warpfactor.io.voxels import Array, Box, FileHeader, Stored, Volumes, VoxelSource
from warpfactor.memory import check_memory

FIELD_SUFFIXES: tuple[str, ...] = ()

SUFFIXES = (".tif", ".tiff", ".btf")
RESOLUTION_MM = {2: 25.4, 3: 10.0}  # of the tag ResolutionUnit: inch, centimetre
CHANNELS, DEPTH, TIME = "CS", "ZIQ", "T"


def handles(path: Path) -> bool:
    """Return whether the name ends as that of a TIFF."""
    return path.name.lower().endswith(SUFFIXES)


def read(path: Path, *, field: bool = False) -> Volumes:
    """Read the voxels and their grid; a file of one plane is 2-D."""
    del field  # no field is written as a TIFF
    with _opened(path) as file:
        series = _series(path, file)
        spacing_mm, axes, voxels = _spacing_mm(file, series), series.axes, _voxels(path, series)
    voxels = _ordered(path, voxels, axes)
    flat = voxels.shape[1] == 1
    shape = voxels.shape[2:] if flat else voxels.shape[1:]
    grid = _file_grid(path, shape, spacing_mm[1:] if flat else spacing_mm)
    return simpleitk.without_opaque_alpha(Volumes(np.ascontiguousarray(voxels)[None], grid))


def stored(path: Path) -> Stored | None:
    """The voxels of a file without compression, read in parts; None if they do not lie in one piece."""
    with _opened(path) as file:
        series = _series(path, file)
        offset, shape, axes = series.dataoffset, series.shape, series.axes
        kind = np.dtype(series.dtype).newbyteorder(file.byteorder)
        spacing_mm = _spacing_mm(file, series)
    if offset is None:
        return None
    whole = functools.partial(np.memmap, path, dtype=kind, mode="r", offset=offset, shape=shape)
    form = _ordered(path, whole(), axes).shape
    if form[0] > 1:  # whether a channel is opacity shows when all are read
        return None
    flat = form[1] == 1
    grid = _file_grid(path, form[2:] if flat else form[1:], spacing_mm[1:] if flat else spacing_mm)

    def read(channel: int, box: Box) -> Array:
        return np.array(_ordered(path, whole(), axes)[(channel, *box)]).astype(kind.newbyteorder("="), copy=False)

    return Stored(grid, kind.newbyteorder("="), 1, 1, read)


def _file_grid(path: Path, shape: tuple[int, ...], spacing_mm: tuple[float, ...]) -> Grid:
    try:
        return Grid.from_spacing(tuple(shape), spacing_mm)
    except InputError as error:
        raise FileError(f"{path}: {error} Give the right one with --spacing.") from error


def read_header(path: Path) -> FileHeader:
    """Read the shape and the number type; there is one volume, as files with time points are refused."""
    with _opened(path) as file:
        if not file.series:
            raise FileError(f"{path}: holds no image.")
        first = file.series[0]
        return FileHeader(1, np.dtype(first.dtype), _shape(first.shape, first.axes))


def _shape(lengths: tuple[int, ...], axes: str) -> tuple[int, ...]:
    """Voxels along (z, y, x), or (y, x) if there is one slice."""
    by_axis = dict(zip(axes, lengths, strict=True))
    depth = next((by_axis[letter] for letter in DEPTH if by_axis.get(letter, 1) > 1), 1)
    plane = (by_axis.get("Y", 1), by_axis.get("X", 1))
    return plane if depth == 1 else (depth, *plane)


def write(source: VoxelSource, path: Path, *, force: bool) -> None:
    """Write a file that appears complete or not at all, by SimpleITK."""
    simpleitk.write(source, path, force=force)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file by tifffile; FileError for what can be wrong with it."""
    import tifffile

    if not path.is_file():
        raise FileError(f"{path}: there is no such file.")
    try:
        check(path)
        with tifffile.TiffFile(path) as file:
            yield file
    except (FileError, OutOfMemoryError):
        raise
    except Exception as error:  # a damaged tag can raise anything in its reader
        reason = " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__
        raise FileError(f"{path}: cannot be read as a TIFF ({reason}).") from error


def _series(path: Path, file: Any) -> Any:
    """The image in the file; of several, as slide scanners write, the first."""
    if not file.series:
        raise FileError(f"{path}: holds no image.")
    if len(file.series) > 1:
        shapes = ", ".join("x".join(str(n) for n in each.shape) for each in file.series)
        warnings.warn(
            f"{path}: holds {len(file.series)} images ({shapes}); the first is used. To use another one, save it "
            "as a file of its own.",
            stacklevel=2,
        )
    _check_pages(path, file.series[0])
    return file.series[0]


def _check_pages(path: Path, series: Any) -> None:
    """Raise a FileError if the file ends before its pixels do: their reader would leave the rest at zero."""
    check_memory(int(series.nbytes), f"{path}: It", remedy="crop it, or check the program that wrote it")
    size = path.stat().st_size
    for page in series.pages:
        if page is None:  # a plane that the file leaves out
            continue
        ends = (start + count for start, count in zip(page.dataoffsets, page.databytecounts, strict=False))
        if len(page.dataoffsets) != len(page.databytecounts) or max(ends, default=0) > size:
            raise FileError(
                f"{path}: is truncated, it ends before the data that its header announces; copy it again from its "
                "source."
            )


def _voxels(path: Path, series: Any) -> Array:
    """The voxels along the series' axes; SimpleITK unpacks what tifffile alone cannot."""
    try:
        return np.asarray(series.asarray())
    except (ValueError, ImportError) as error:  # a codec of the package imagecodecs
        try_image(path)
        try:
            with itk.files:
                found: Array = sitk.GetArrayFromImage(sitk.ReadImage(str(path)))
        except RuntimeError:
            found = np.empty(0)
        if found.size != np.prod(series.shape):
            raise FileError(
                f"{path}: its compression cannot be read ({str(error).rstrip('.')}); install the package imagecodecs, "
                "or save the file without compression."
            ) from error
        return found.reshape(series.shape)


def _ordered(path: Path, voxels: Array, axes: str) -> Array:
    """The voxels as (C, Z, Y, X)."""
    if len(axes) != voxels.ndim:
        raise FileError(f"{path}: its axes {axes} are not those of its pixels; check the program that wrote it.")
    kept = [k for k, n in enumerate(voxels.shape) if n > 1 or axes[k] in "YX"]
    voxels, axes = voxels.reshape([voxels.shape[k] for k in kept]), "".join(axes[k] for k in kept)
    if TIME in axes:
        raise FileError(
            f"{path}: has {voxels.shape[axes.index(TIME)]} time points, but a single image is needed; save one of "
            "them as a file of its own."
        )
    other = "".join(letter for letter in axes if letter not in f"YX{CHANNELS}{DEPTH}")
    if other or sum(letter in DEPTH for letter in axes) > 1:
        raise FileError(
            f"{path}: has the axes {axes}; an image has channels (C), slices (Z), rows (Y) and columns (X), so save "
            "a file that has these only."
        )
    channels = [k for k, letter in enumerate(axes) if letter in CHANNELS]
    depth = [k for k, letter in enumerate(axes) if letter in DEPTH]
    rows, columns = axes.index("Y"), axes.index("X")
    moved = voxels.transpose([*channels, *depth, rows, columns])
    count = int(np.prod([voxels.shape[k] for k in channels], dtype=np.int64))
    return moved.reshape(count, voxels.shape[depth[0]] if depth else 1, voxels.shape[rows], voxels.shape[columns])


def _spacing_mm(file: Any, series: Any) -> tuple[float, float, float]:
    """Along (z, y, x), 1 where the file does not tell."""
    if file.is_ome and file.ome_metadata:
        return _ome_spacing_mm(file.ome_metadata)
    x, y = (_pixel(series.keyframe, tag) for tag in ("XResolution", "YResolution"))
    if file.is_imagej:
        known = file.imagej_metadata or {}
        unit = unit_mm(str(known.get("unit", "")))
        if unit is None:
            return 1.0, 1.0, 1.0
        return float(known.get("spacing") or 1.0) * unit, y * unit, x * unit
    tag = series.keyframe.tags.get("ResolutionUnit")
    unit = RESOLUTION_MM.get(2 if tag is None else int(tag.value))
    return (1.0, 1.0, 1.0) if unit is None else (1.0, y * unit, x * unit)


def _pixel(page: Any, name: str) -> float:
    """A pixel in units of the resolution tag; 1 unit without the tag."""
    tag = page.tags.get(name)
    if tag is None:
        return 1.0
    count, unit = tag.value
    return unit / count if count and unit else 1.0


def _ome_spacing_mm(text: str) -> tuple[float, float, float]:
    """What the first image of OME's XML says of its pixels; micrometres where it names no unit."""
    pixels: Any = next((e for e in ElementTree.fromstring(text).iter() if e.tag.rpartition("}")[2] == "Pixels"), None)
    found = [1.0, 1.0, 1.0]
    for k, axis in enumerate("ZYX" if pixels is not None else ""):
        size, name = pixels.get(f"PhysicalSize{axis}"), pixels.get(f"PhysicalSize{axis}Unit") or "µm"
        unit = unit_mm(name)
        if size is not None and unit is not None:
            found[k] = float(size) * unit
    return found[0], found[1], found[2]
