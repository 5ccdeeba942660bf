"""OME-Zarr (NGFF 0.4 and 0.5, Zarr 2 and 3, sharded or not): images with axes, units, translations and stored levels.

A name such as `brain.ome.zarr` is the finest stored level, `brain.ome.zarr/2` the array of that name in it. A Zarr
array without such metadata is an image with voxels of 1 mm.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from warpfactor.errors import FileError, InputError
from warpfactor.geometry.grid import Grid
from warpfactor.io.atomic import atomic_folder
from warpfactor.io.chunks import check_chunks
from warpfactor.io.units import unit_mm
from warpfactor.io.voxels import Array, Box, FileHeader, Stored, Volumes, VoxelSource

SUFFIX = ".zarr"
N5 = ".n5"  # the related format, which zarr-python reads no more; its files are recognised to say so
FIELD_SUFFIXES: tuple[str, ...] = (SUFFIX,)  # the components of a displacement are channels, x first, in LPS mm

SPACE, KINDS = "zyx", {"t": "time", "c": "channel", **dict.fromkeys("zyx", "space")}
UNNAMED_UNIT = "micrometer"  # of files that name no unit, as OME-TIFF has it
VERSION = "0.4"  # that is written, with Zarr 2: every reader of OME-Zarr reads it
NESTED = {"name": "v2", "separator": "/"}  # how chunks are named; OME-Zarr knows no other way
CHUNK = 128  # voxels along an axis
SMALLEST = 64  # voxels along the longest axis at which no coarser level is written


def handles(path: Path) -> bool:
    """Return whether the name is that of a Zarr or N5 folder, or of something in one."""
    return any(part.lower().endswith((SUFFIX, N5)) for part in path.parts)


@dataclass(frozen=True)
class _Level:
    """A stored array and its place in space.

    Attributes:
        array: of zarr.
        axes: a letter for each axis, of "tczyx".
        scale, translation: for each axis, in millimetres where it is one of space.
    """

    array: Any
    axes: str
    scale: tuple[float, ...]
    translation: tuple[float, ...]

    def along(self, axis: str, values: Sequence[float], otherwise: float) -> float:
        return values[self.axes.index(axis)] if axis in self.axes else otherwise

    def length(self, axis: str) -> int:
        return int(self.along(axis, self.array.shape, 1))


def read(path: Path, *, field: bool = False) -> Volumes:
    """Read the voxels and their grid; time points are volumes of a series, and an image of one plane is 2-D."""
    del field  # its components are channels
    with _opened(path) as level:
        check_chunks(path, level.array)
        voxels = np.asarray(level.array[...])
    order = [level.axes.index(axis) for axis in "tczyx" if axis in level.axes]
    shape = tuple(level.length(axis) for axis in "tczyx")
    data = np.ascontiguousarray(voxels.transpose(order).reshape(shape))
    return Volumes(data, _grid(path, level), level.along("t", level.scale, 1.0))


def read_header(path: Path) -> FileHeader:
    """Read the number of time points, the number type and the shape, but not the voxels."""
    with _opened(path) as level:
        return FileHeader(level.length("t"), np.dtype(level.array.dtype), _space_shape(level))


def stored(path: Path) -> Stored:
    """The array and the coarser ones after it, read in parts; levels that are announced must be there."""
    with _opened(path) as level:
        found = _stored(path, level)
    return replace(found, levels=tuple(_stored(path, coarser) for coarser in _coarser(path)))


def _stored(path: Path, level: _Level) -> Stored:
    own = [axis for axis in level.axes if axis in SPACE]
    turn = [own.index(axis) for axis in SPACE if axis in own]

    def read(channel: int, box: Box) -> Array:
        wanted: dict[str, int | slice] = {"t": 0, "c": channel, **dict(zip(SPACE, box, strict=True))}
        selection = tuple(wanted[axis] for axis in level.axes)
        with _damage(path):
            check_chunks(path, level.array, selection)
            found = np.asarray(level.array[selection])
        shape = tuple(part.stop - part.start for part in box)
        return np.ascontiguousarray(found.transpose(turn)).reshape(shape)

    chunk = getattr(level.array, "shards", None) or level.array.chunks
    return Stored(
        grid=_grid(path, level),
        dtype=np.dtype(level.array.dtype),
        channels=level.length("c"),
        volumes=level.length("t"),
        read=read,
        thickness=int(level.along("z", chunk, 1)),
    )


def _coarser(path: Path) -> Iterator[_Level]:
    """The stored levels after the one that a path names, fine to coarse."""
    zarr = _zarr()
    with _damage(path):
        node = zarr.open(str(path), mode="r")
        if not isinstance(node, zarr.Group):
            return
        described = _multiscale(node)
        assert described is not None  # the finest was found
        for entry in described["datasets"][1:]:
            if entry["path"] not in node:
                raise FileError(
                    f"{path}: its metadata lists the level {entry['path']}, which does not exist; write the levels "
                    "again, or name "
                    f"the one to use, {path}/{described['datasets'][0]['path']}."
                )
            yield _level(path, node[entry["path"]], described, entry)


def write(source: VoxelSource, path: Path, *, force: bool) -> None:
    """Write a Zarr 2 folder of version 0.4, with coarser levels, that appears complete or not at all.

    Coarser levels hold every other voxel of the finer one, so that labels stay labels; they are for viewers.
    """
    zarr = _zarr()
    _check_name(path)
    _check_axes(path, source.grid)
    axes = ("t" if source.step is not None else "") + ("c" if source.channels > 1 else "")
    axes += SPACE[-source.grid.ndim :]
    with atomic_folder(path, force=force) as folder:
        group = zarr.open_group(str(folder), mode="w", zarr_format=2)
        _write_finest(group, source, axes)
        count = _write_coarser(group, axes)
        group.attrs["multiscales"] = [_description(source, axes, count, path.name)]


@contextmanager
def writing(path: Path, grid: Grid, dtype: Any, channels: int, *, force: bool) -> Iterator[Path]:
    """A folder whose voxels are `put` block by block inside the block; its levels follow, and then it appears."""
    zarr = _zarr()
    _check_name(path)
    _check_axes(path, grid)
    source = VoxelSource(lambda _, __: iter(()), np.dtype(dtype), grid, channels)
    axes = ("c" if channels > 1 else "") + SPACE[-grid.ndim :]
    with atomic_folder(path, force=force) as folder:
        group = zarr.open_group(str(folder), mode="w", zarr_format=2)
        space = tuple(grid.shape)[-grid.ndim :]
        _create(group, "0", (*([channels] if channels > 1 else []), *space), axes, source.dtype)
        yield folder
        count = _write_coarser(group, axes)
        group.attrs["multiscales"] = [_description(source, axes, count, path.name)]


def put(folder: Path, channel: int, box: Box, values: Array) -> None:
    """Write a block of whole chunks into a folder of `writing`; only one process may write a chunk."""
    array = _zarr().open_array(str(folder / "0"), mode="r+")
    place: tuple[Any, ...] = box
    values = values.astype(array.dtype, copy=False)
    if array.ndim == 4:
        place = (channel, *box)
    elif array.ndim == 2:
        place, values = box[1:], values[0]
    array[place] = values


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise InputError("OME-Zarr needs the package zarr; install it with: pip install 'warpfactor[zarr]'.") from error
    return zarr


def _check_name(path: Path) -> None:
    """FileError for N5."""
    if not any(part.lower().endswith(SUFFIX) for part in path.parts):
        raise FileError(
            f"{path}: is N5, which zarr-python no longer reads since its version 3; convert it to OME-Zarr, for "
            "instance "
            "with the N5 plugins of Fiji."
        )


@contextmanager
def _opened(path: Path) -> Iterator[_Level]:
    """The array that a path means; FileError for what can be wrong with it."""
    zarr = _zarr()
    _check_name(path)
    if not path.is_dir():
        raise FileError(f"{path}: there is no such Zarr folder.")
    with _damage(path):
        yield _find_level(path, zarr.open(str(path), mode="r"), zarr)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn whatever a damaged store raises inside the block into a FileError."""
    try:
        yield
    except (FileError, InputError):
        raise
    except Exception as error:  # codecs, stores and metadata each have exceptions of their own
        reason = str(error).strip().rstrip(".") or type(error).__name__
        raise FileError(
            f"{path}: cannot be read as OME-Zarr ({reason}); a chunk or its metadata is damaged."
        ) from error


def _find_level(path: Path, node: Any, zarr: Any) -> _Level:
    if isinstance(node, zarr.Group):
        described = _multiscale(node)
        if described is None:
            names = ", ".join(sorted(node.keys())) or "nothing"
            raise FileError(f"{path}: has no image of its own, but holds {names}; add the name of one of these.")
        first = described["datasets"][0]
        return _level(path, node[first["path"]], described, first)
    for parent in _parents_in_zarr(path):
        group = zarr.open(str(parent), mode="r")
        described = _multiscale(group) if isinstance(group, zarr.Group) else None
        own = path.relative_to(parent).as_posix()
        entry = next((each for each in (described or {"datasets": ()})["datasets"] if each["path"] == own), None)
        if described is not None and entry is not None:
            return _level(path, node, described, entry)
    return _plain(path, node)


def _parents_in_zarr(path: Path) -> Iterator[Path]:
    inside = itertools.takewhile(lambda each: not each.name.lower().endswith(SUFFIX), (path, *path.parents))
    return (each.parent for each in inside)


def _multiscale(group: Any) -> dict[str, Any] | None:
    """The description of an image with levels: of version 0.5 under "ome", before that at the top."""
    attributes = dict(group.attrs)
    found = attributes.get("ome", attributes).get("multiscales")
    return dict(found[0]) if found else None


def _plain(path: Path, array: Any) -> _Level:
    if array.ndim not in (2, 3):
        raise FileError(
            f"{path}: is a Zarr array of {array.ndim} axes without OME-Zarr metadata; an image has 2 or 3 axes."
        )
    return _Level(array, SPACE[-array.ndim :], (1.0,) * array.ndim, (0.0,) * array.ndim)


def _level(path: Path, array: Any, described: dict[str, Any], entry: dict[str, Any]) -> _Level:
    axes, units = _axes(path, described, array.ndim)
    scale, translation = np.ones(array.ndim), np.zeros(array.ndim)
    for step in (*entry.get("coordinateTransformations", ()), *described.get("coordinateTransformations", ())):
        if step["type"] == "scale":
            scale, translation = scale * step["scale"], translation * step["scale"]
        elif step["type"] == "translation":
            translation = translation + step["translation"]
        elif step["type"] != "identity":
            raise FileError(f"{path}: has a coordinate transformation of type {step['type']}, which is not supported.")
    return _Level(array, axes, tuple((scale * units).tolist()), tuple((translation * units).tolist()))


def _axes(path: Path, described: dict[str, Any], count: int) -> tuple[str, Array]:
    """A letter for each axis, and the millimetres of its unit."""
    given = [a if isinstance(a, dict) else {"name": a} for a in described.get("axes") or "tczyx"[-count:]]
    axes = "".join(str(axis["name"]).lower() for axis in given)
    if len(axes) != count or set(axes) - set(KINDS) or len(set(axes)) != count or not {"y", "x"} <= set(axes):
        raise FileError(f"{path}: has the axes {axes} and an array of {count}; an image has some of t, c, z, y, x.")
    if not any("unit" in axis for axis in given if axis["name"].lower() in SPACE):
        warnings.warn(f"{path}: names no unit of length; its numbers are taken as micrometres.", stacklevel=2)
    return axes, np.array([_unit(path, axis) for axis in given])


def _unit(path: Path, axis: dict[str, Any]) -> float:
    if axis["name"].lower() not in SPACE:
        return 1.0
    name = str(axis.get("unit") or UNNAMED_UNIT)
    known = unit_mm(name)
    if known is None:
        raise FileError(f"{path}: its axis {axis['name']} is in {name}, which is not a unit of length that is known.")
    return known


def _space_shape(level: _Level) -> tuple[int, ...]:
    """Voxels along (z, y, x), or (y, x) if there is one plane."""
    shape = tuple(level.length(axis) for axis in SPACE)
    return shape if shape[0] > 1 else shape[1:]


def _grid(path: Path, level: _Level) -> Grid:
    shape = _space_shape(level)
    space = SPACE[-len(shape) :]
    spacing = [level.along(axis, level.scale, 1.0) for axis in space]
    origin = [level.along(axis, level.translation, 0.0) for axis in space]
    try:
        direction = np.eye(len(shape)).ravel().tolist()
        return Grid.from_itk(shape[::-1], origin[::-1], spacing[::-1], direction)
    except InputError as error:
        raise FileError(f"{path}: {error} Give the right one with --spacing.") from error


def _check_axes(path: Path, grid: Grid) -> None:
    """InputError if the grid is turned, which OME-Zarr cannot hold."""
    if not np.allclose(grid.to_itk().direction, np.eye(grid.ndim).ravel(), atol=1e-6):
        raise InputError(
            f"{path}: OME-Zarr holds no orientation, and this image has one; write it as .nii.gz or .nrrd."
        )


def _write_finest(group: Any, source: VoxelSource, axes: str) -> None:
    space = tuple(source.grid.shape)[-source.grid.ndim :]
    ahead = axes[: -len(space)]
    shape = (*({"t": source.volumes, "c": source.channels}[axis] for axis in ahead), *space)
    array = _create(group, "0", shape, axes, source.dtype)
    for volume, channel in itertools.product(range(source.volumes), range(source.channels)):
        where = tuple({"t": volume, "c": channel}[axis] for axis in ahead)
        for plane, slab in _thick(source.slabs(volume, channel)):
            part = (...,) if len(space) == 2 else (slice(plane, plane + len(slab)),)
            array[(*where, *part)] = slab[0] if len(space) == 2 else slab


def _thick(slabs: Iterator[Array]) -> Iterator[tuple[int, Array]]:
    """The slabs put together to as many planes as a chunk has, so that a chunk is packed once; each with its start."""
    held: list[Array] = []
    start = 0
    for plane in itertools.chain.from_iterable(slabs):
        held.append(plane)
        if len(held) == CHUNK:
            yield start, np.stack(held)
            start, held = start + CHUNK, []
    if held:
        yield start, np.stack(held)


def _create(group: Any, name: str, shape: tuple[int, ...], axes: str, dtype: Any) -> Any:
    chunks = tuple(min(n, CHUNK) if axis in SPACE else 1 for n, axis in zip(shape, axes, strict=True))
    return group.create_array(name, shape=shape, chunks=chunks, dtype=dtype, chunk_key_encoding=NESTED)


def _write_coarser(group: Any, axes: str) -> int:
    """Levels of every other voxel until they are small; how many levels there are."""
    number, finer = 1, group["0"]
    while max(n for n, axis in zip(finer.shape, axes, strict=True) if axis in SPACE) > SMALLEST:
        halves = tuple(-(-n // 2) if axis in SPACE else n for n, axis in zip(finer.shape, axes, strict=True))
        coarser = _create(group, str(number), halves, axes, finer.dtype)
        _copy_every_other(finer, coarser, axes)
        number, finer = number + 1, coarser
    return number


def _copy_every_other(finer: Any, coarser: Any, axes: str) -> None:
    """One row of chunks at a time along the first axis of space."""
    first = next(k for k, axis in enumerate(axes) if axis in SPACE)
    step = [slice(None, None, 2) if axis in SPACE else slice(None) for axis in axes]
    for start in range(0, coarser.shape[first], CHUNK):
        stop = min(start + CHUNK, coarser.shape[first])
        step[first] = slice(2 * start, 2 * stop - 1, 2)
        coarser[(*(slice(None),) * first, slice(start, stop))] = finer[tuple(step)]


def _description(source: VoxelSource, axes: str, levels: int, name: str) -> dict[str, Any]:
    place_itk = source.grid.to_itk()
    place = dict(zip("xyz", zip(place_itk.spacing, place_itk.origin, strict=True), strict=False))
    described = [{"name": axis, "type": KINDS[axis]} for axis in axes]
    for axis in described:
        if axis["type"] != "channel":
            axis["unit"] = "millimeter" if axis["type"] == "space" else "second"
    return {
        "version": VERSION,
        "name": name,
        "axes": described,
        "datasets": [
            {
                "path": str(number),
                "coordinateTransformations": [
                    {"type": "scale", "scale": [_scale(axis, place, number, source.step) for axis in axes]},
                    {"type": "translation", "translation": [place[a][1] if a in place else 0.0 for a in axes]},
                ],
            }
            for number in range(levels)
        ],
    }


def _scale(axis: str, place: dict[str, tuple[float, float]], level: int, step: float | None) -> float:
    if axis in place:
        return place[axis][0] * math.pow(2, level)
    return (step or 1.0) if axis == "t" else 1.0
