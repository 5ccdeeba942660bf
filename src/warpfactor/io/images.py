"""Images, label maps, masks and 4-D series, read from and written to any format that `formats` knows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import FileError, InputError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid, slabs
from warpfactor.geometry.image import Image
from warpfactor.io.formats import find_format
from warpfactor.io.voxels import Array, Volumes, VoxelSource

_ADAPTERS: dict[str, Callable[..., Image]] = {
    "SimpleITK": Image.from_sitk,
    "nibabel": Image.from_nibabel,
    "ants": Image.from_ants,
}
_log = logging.getLogger(__name__)
_INT32 = torch.iinfo(torch.int32)
_WRITTEN_AS = {"b1": "u1", "f2": "f4"}  # types that no image format holds


@dataclass(frozen=True)
class Series:
    """A 4-D image, volume by volume; iterate over it for Images.

    Attributes:
        volumes: the voxels and their grid.
        name: of its file.
    """

    volumes: Volumes
    name: str

    @property
    def step(self) -> float:
        """Distance between volumes, usually in seconds."""
        return self.volumes.step

    def __len__(self) -> int:
        return len(self.volumes.data)

    def __iter__(self) -> Iterator[Image]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Image:
        if not 0 <= number < len(self):
            raise IndexError(number)
        data = itk.to_tensor(self.volumes.data[number], copy=False)
        return Image(data.to(torch.float32), self.volumes.grid, f"{self.name}[{number}]")


def from_any(source: Any, *, spacing_mm: Sequence[float] | float | None = None, name: str | None = None) -> Image:
    """Make an Image from a path, an Image, an array, or a SimpleITK, nibabel or ANTs image.

    Args:
        source: what to make it from.
        spacing_mm: of an array along (z, y, x), or of a file, instead of what it says.
        name: for messages.
    """
    if isinstance(source, (np.ndarray, Tensor)):
        return Image.from_array(source, spacing_mm, name=name or "array")
    if isinstance(source, (str, Path)):
        return read_image(source) if spacing_mm is None else _with_spacing(Path(source), spacing_mm)
    if spacing_mm is not None:
        raise InputError("A spacing can be given for an array or a file only; this image has its own.")
    if isinstance(source, Image):
        return source
    adapter = _ADAPTERS.get(type(source).__module__.split(".")[0])
    if adapter is not None:
        return adapter(source, **({"name": name} if name else {}))
    raise InputError(
        f"An object of type {type(source).__name__} is not an image; give a path, an array, or a SimpleITK, nibabel "
        "or ANTs image."
    )


def read_image(path: str | Path) -> Image:
    """Read one image as float32, from a file or from a folder that holds one DICOM series.

    A 3-D file with a single slice keeps its place in space and is registered in its plane, like a 2-D image.
    """
    data, grid = _read_volume(Path(path))
    return Image(data.to(torch.float32), grid, Path(path).name)


def _with_spacing(path: Path, spacing_mm: Sequence[float] | float) -> Image:
    image = read_image(path)
    try:
        return image.with_spacing(spacing_mm)
    except InputError as error:
        raise FileError(f"{path}: {error}") from error


def read_labels(path: str | Path) -> Image:
    """Read a label map as int32, without rounding.

    Raises:
        FileError: if a value is not an integer or does not fit into 32 bits.
    """
    data, grid = _read_volume(Path(path))
    _check_single(path, data, "label map")
    if data.is_floating_point() and not torch.equal(data, data.round()):
        raise FileError(f"{path}: is not a label map, it has values that are not integers.")
    if float(data.max()) > _INT32.max or float(data.min()) < _INT32.min:  # infinity is no integer to Python
        raise FileError(f"{path}: has labels that do not fit into 32 bits; renumber them.")
    return Image(data.to(torch.int32), grid, Path(path).name)


def read_mask(path: str | Path) -> Image:
    """Read a mask as uint8: one where the file is neither zero nor NaN.

    Raises:
        FileError: if the mask is empty.
    """
    data, grid = _read_volume(Path(path))
    _check_single(path, data, "mask")
    mask = (data != 0) & (data == data)
    if not mask.any():
        raise FileError(f"{path}: the mask is empty; at least one voxel must be other than zero.")
    return Image(mask.to(torch.uint8), grid, Path(path).name)


def read_series(path: str | Path) -> Series:
    """Read the volumes of a 4-D file; a 3-D file is a series of one volume."""
    return Series(_read(Path(path)), Path(path).name)


def count_volumes(path: str | Path) -> int:
    """Return how many volumes a file holds by its header: 1 unless it is 4-D, and also if it cannot be read."""
    try:
        return find_format(Path(path)).read_header(Path(path)).volumes
    except (FileError, InputError):
        return 1


def write_image(image: Image, path: str | Path, *, force: bool = False) -> None:
    """Write an image; the suffix selects the format. The file appears complete or not at all.

    Args:
        image: to write, in its own number type.
        path: of the file.
        force: replace an existing file.
    """
    if not isinstance(image, Image):
        raise InputError(
            f"Only an Image can be written, and this is of the type {type(image).__name__}; make one of an array with "
            "wf.Image.from_array(array, spacing_mm)."
        )
    _write([image], _written_type(image), Path(path), force=force)


def write_labels(labels: Image, path: str | Path, *, like: str | Path | None = None, force: bool = False) -> None:
    """Write a label map in the integer type of the file `like`, or in its own type if that cannot hold it."""
    dtype = _written_type(labels)
    if like is not None and not labels.data.is_floating_point():
        wanted = _integer_type(Path(like))
        if wanted is not None and _fits(labels.data, wanted):
            dtype = wanted
    _write([labels], dtype, Path(path), force=force)


def write_series(images: Iterable[Image], path: str | Path, *, step: float = 1.0, force: bool = False) -> None:
    """Write volumes that share one grid as a 4-D file, `step` seconds apart."""
    volumes = list(images)
    if not volumes:
        raise InputError("A series needs at least one volume.")
    _write(volumes, _written_type(volumes[0]), Path(path), step=step, force=force)


def _write(
    images: Sequence[Image], dtype: np.dtype[Any], path: Path, *, step: float | None = None, force: bool
) -> None:
    first = images[0]

    def parts(volume: int, channel: int) -> Iterator[Array]:
        data = images[volume].data[channel].detach()
        return (data[planes].cpu().numpy() for planes in slabs(first.grid.shape))

    source = VoxelSource(parts, dtype, first.grid, first.channels, len(images), step)
    find_format(path).write(source, path, force=force)


def _written_type(image: Image) -> np.dtype[Any]:
    own = image.data[:0].cpu().numpy().dtype
    return np.dtype(_WRITTEN_AS.get(own.str[1:], own))


def _integer_type(path: Path) -> np.dtype[Any] | None:
    """The number type of a file if it holds integers by its header."""
    try:
        dtype = find_format(path).read_header(path).dtype
    except (FileError, InputError):
        return None
    return dtype.newbyteorder("=") if dtype.kind in "iu" else None


def _fits(data: Tensor, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return int(limits.min) <= int(data.min()) and int(data.max()) <= int(limits.max)


def _read(path: Path) -> Volumes:
    """The content of a file; FileError, with the name of the file, for everything that can be wrong with it."""
    _log.debug("reading %s", path)
    try:
        return find_format(path).read(path)
    except InputError as error:
        raise FileError(f"{path}: {error}") from error


def _read_volume(path: Path) -> tuple[Tensor, Grid]:
    """(C, D, H, W) voxels in the number type of the file, and their grid; FileError for a series."""
    found = _read(path)
    if len(found.data) != 1:
        raise FileError(
            f"{path}: is a 4-D image with {len(found.data)} volumes where one is expected; extract one, or their mean."
        )
    try:
        return itk.to_tensor(found.data[0], copy=False), found.grid
    except InputError as error:
        raise FileError(f"{path}: {error}") from error


def _check_single(path: str | Path, data: Tensor, kind: str) -> None:
    if data.shape[0] != 1:
        raise FileError(
            f"{path}: a {kind} has one channel, this file has {data.shape[0]}; "
            "save colour or palette images with one number per pixel."
        )
