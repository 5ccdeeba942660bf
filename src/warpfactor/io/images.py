"""Image files through SimpleITK: NIfTI, NRRD, MetaImage, DICOM folders, PNG, TIFF and what else it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import FileError, InputError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.itk import sitk
from warpfactor.io import nifti, planes
from warpfactor.io.atomic import atomic_path
from warpfactor.io.probe import integer_type

_ADAPTERS = {"SimpleITK": Image.from_sitk, "nibabel": Image.from_nibabel, "ants": Image.from_ants}
_T = TypeVar("_T")
_PICTURES = (".png", ".tif", ".tiff", ".bmp")
_PLANAR = (".png", ".jpg", ".jpeg", ".bmp")
_ROUNDED = 0.02  # of the range of an image may be lost to whole numbers
_NOISE = 1e-3  # and as much in any case
_OPAQUE = (255, 65535)
_INT32 = torch.iinfo(torch.int32)


@dataclass(frozen=True)
class Series:
    """A 4-D image, volume by volume; iterate over it for Images.

    Attributes:
        step: distance between volumes, usually seconds.
        name: of its file.
    """

    volumes: Any
    step: float
    name: str

    def __len__(self) -> int:
        return int(self.volumes.GetSize()[3])

    def __iter__(self) -> Iterator[Image]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Image:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return Image.from_sitk(_volume(self.volumes, number), name=f"{self.name}[{number}]")


def from_any(source: Any, *, spacing_mm: Sequence[float] | float | None = None, name: str | None = None) -> Image:
    """An Image from a path, an Image, an array (with `spacing_mm`), or a SimpleITK, nibabel or ANTs image."""
    if isinstance(source, (np.ndarray, Tensor)):
        return Image.from_array(source, spacing_mm, name=name or "array")
    if spacing_mm is not None:
        raise InputError("A spacing belongs to an array only; this image brings its own.")
    if isinstance(source, Image):
        return source
    if isinstance(source, (str, Path)):
        return read_image(source)
    adapter = _ADAPTERS.get(type(source).__module__.split(".")[0])
    if adapter is not None:
        return adapter(source, **({"name": name} if name else {}))
    raise InputError(
        f"A {type(source).__name__} is not an image; give a path, an array, or a SimpleITK, nibabel or ANTs image."
    )


def read_image(path: str | Path) -> Image:
    """One image, as float32, from a file or a folder that holds one DICOM series.

    A 3-D file with a single slice keeps its place in space and is worked on in its plane, as if it were 2-D.
    """
    data, grid = _checked(path, lambda: _load(Path(path)))
    return Image(data.to(torch.float32), grid, Path(path).name)


def read_labels(path: str | Path) -> Image:
    """A label map, as int32, every value exact; FileError if a value is not whole or does not fit."""
    data, grid = _checked(path, lambda: _load(Path(path)))
    _check_single(path, data, "label map")
    if data.is_floating_point() and not torch.equal(data, data.round()):
        raise FileError(f"{path}: is not a label map, it has values that are not whole numbers.")
    if int(data.max()) > _INT32.max or int(data.min()) < _INT32.min:
        raise FileError(f"{path}: has labels beyond 32 bits; renumber them.")
    return Image(data.to(torch.int32), grid, Path(path).name)


def read_mask(path: str | Path) -> Image:
    """A mask, as uint8: one where the file is neither zero nor NaN. FileError if that is nowhere."""
    data, grid = _checked(path, lambda: _load(Path(path)))
    _check_single(path, data, "mask")
    mask = (data != 0) & (data == data)
    if not mask.any():
        raise FileError(f"{path}: the mask is empty; at least one voxel must be other than zero.")
    return Image(mask.to(torch.uint8), grid, Path(path).name)


def read_series(path: str | Path) -> Series:
    """The volumes of a 4-D file; a 3-D file is a series of one."""
    image = load_sitk(Path(path))
    if image.GetDimension() == 3:
        image = sitk.JoinSeries([image])
    if image.GetDimension() != 4:
        raise FileError(f"{path}: has {image.GetDimension()} dimensions; a series has 4.")
    return Series(image, float(image.GetSpacing()[3]), Path(path).name)


def write_image(image: Image, path: str | Path, *, force: bool = False, rough: bool = False) -> None:
    """Write `image`; the format follows from the name. The file appears complete or not at all.

    Args:
        force: replace an existing file.
        rough: pack intensities in a way that suits interpolated ones: quicker, and without a copy of the image.
    """
    path = Path(path)
    if rough and image.data.dtype == torch.float32 and planes.fits(path, image.grid):
        planes.write_image(image.data, image.grid, path, force=force)
    else:
        write_sitk(_fitting(image, path), path, force=force)


def is_picture(path: str | Path) -> bool:
    """Whether a file of that name holds one plane of whole numbers that are not negative."""
    return Path(path).suffix.lower() in _PLANAR


def write_labels(labels: Image, path: str | Path, *, like: str | Path | None = None, force: bool = False) -> None:
    """Write a label map in the integer type of the file `like`, or in 32 bits if that type cannot hold it."""
    made = _fitting(labels, Path(path))
    wanted = None if like is None else integer_type(like)
    if wanted is not None and made.GetPixelID() == sitk.sitkInt32:
        cast = sitk.Cast(made, wanted)
        limits = sitk.GetArrayViewFromImage(cast)
        if int(limits.min()) == int(labels.data.min()) and int(limits.max()) == int(labels.data.max()):
            made = cast
    write_sitk(made, Path(path), force=force)


def write_series(images: Iterable[Image], path: str | Path, *, step: float = 1.0, force: bool = False) -> None:
    """Write volumes of one grid as a 4-D file."""
    volumes = [image.to_sitk() for image in images]
    if not volumes:
        raise InputError("A series needs at least one volume.")
    if is_picture(path):
        raise FileError(f"{path}: holds one plane, not a series; write .nii.gz.")
    write_sitk(sitk.JoinSeries(volumes, 0.0, step), Path(path), force=force)


def write_sitk(image: Any, path: Path, *, force: bool) -> None:
    """Write a SimpleITK image atomically, and make sure that all of it is there."""
    with atomic_path(path, force=force) as temporary:
        try:
            with itk.files:
                sitk.WriteImage(image, str(temporary), useCompression=True)
        except RuntimeError as error:
            raise cannot_write(path, temporary, error) from error
        if nifti.is_nifti(temporary):
            try:
                nifti.read_header(temporary)  # SimpleITK does not notice a full disk
            except FileError as error:
                raise FileError(f"{path}: could not be written completely; is the disk full?") from error


def _fitting(image: Image, path: Path) -> Any:
    """The SimpleITK image in a number type that the format can hold."""
    if not is_picture(path):
        return image.to_sitk()
    if image.grid.shape[0] > 1:
        raise FileError(f"{path}: holds one plane, the image has {image.grid.shape[0]}; write .nii.gz.")
    low, high = float(image.data.min()), float(image.data.max())
    limit = 65535 if path.suffix.lower() == ".png" else 255
    if low < 0 or high > limit or image.nonfinite_count:
        raise FileError(
            f"{path}: holds whole numbers from 0 to {limit}, the image goes from {low:g} to {high:g}; "
            "write .nii.gz or .tif."
        )
    data = image.data.float()
    rounded = data.round()
    if float((data - rounded).abs().max()) > max(_ROUNDED * (high - low), _NOISE):
        raise FileError(
            f"{path}: holds whole numbers, the image has fractions between {low:g} and {high:g}; write .nii.gz or .tif."
        )
    kind = (sitk.sitkUInt8, sitk.sitkUInt16) if image.channels == 1 else (sitk.sitkVectorUInt8, sitk.sitkVectorUInt16)
    return sitk.Cast(Image(rounded, image.grid).to_sitk(), kind[high > 255])


def _load(path: Path) -> tuple[Tensor, Grid]:
    """(C, D, H, W) voxels in their own number type, and their grid; FileError for a series."""
    if path.is_file() and nifti.is_nifti(path):
        header = nifti.read_header(path)
        nifti.check_spacing(path, header)
        found = nifti.read_plain(path, header)
        if found is not None:
            voxels, reader = found
            nifti.warn_of_disagreement(path, header, reader)
            grid = itk.grid_of(reader)
            return itk.to_tensor(voxels.reshape(1, *grid.shape), copy=False), grid
    data, grid = itk.image_from_sitk(_load_volume(path))
    return (data[:-1] if _is_opaque(path, data) else data), grid


def _is_opaque(path: Path, data: Tensor) -> bool:
    """Whether the fourth channel of a picture says that nothing can be seen through it."""
    if path.suffix.lower() not in _PICTURES or data.shape[0] != 4:
        return False
    low, high = data[-1].aminmax()
    return bool(low == high) and int(high) in _OPAQUE


def _check_single(path: str | Path, data: Tensor, kind: str) -> None:
    if data.shape[0] != 1:
        raise FileError(
            f"{path}: a {kind} has one channel, this has {data.shape[0]}; "
            "save a picture that has colours or a palette with one number per pixel."
        )


def _load_volume(path: Path) -> Any:
    """SimpleITK image of two or three dimensions; FileError for a series."""
    image = load_sitk(path)
    if image.GetDimension() <= 3:
        return image
    volumes = image.GetSize()[3]
    if image.GetDimension() > 4 or volumes != 1:
        raise FileError(
            f"{path}: is a 4-D image with {volumes} volumes where one is meant; extract one, or their mean."
        )
    return _volume(image, 0)


def _volume(image: Any, number: int) -> Any:
    return sitk.Extract(image, [*image.GetSize()[:3], 0], [0, 0, 0, number])


def load_sitk(path: Path) -> Any:
    """SimpleITK image of any dimension; every way in which this can fail is a FileError."""
    if path.is_dir():
        return _load_dicom(path)
    if not path.exists():
        raise FileError(f"{path}: there is no such file.")
    if not nifti.is_nifti(path):
        return _read(path)
    header = nifti.read_header(path)
    nifti.check_spacing(path, header)
    try:
        with itk.files:
            image = sitk.ReadImage(str(path))
    except RuntimeError as error:
        if "orthonormal" not in str(error):
            raise FileError(f"{path}: cannot be read ({reason_of(error)}).") from error
        return nifti.read_sheared(path, header)
    nifti.warn_of_disagreement(path, header, image)
    return nifti.with_nonfinite(path, header, image)


def _read(path: Path) -> Any:
    try:
        with itk.files:
            return sitk.ReadImage(str(path))
    except RuntimeError as error:
        raise FileError(f"{path}: cannot be read as an image ({reason_of(error)}).") from error


def _load_dicom(folder: Path) -> Any:
    reader = sitk.ImageSeriesReader
    with itk.files:
        series = reader.GetGDCMSeriesIDs(str(folder))
        files = {name: reader.GetGDCMSeriesFileNames(str(folder), name) for name in series}
    if not series:
        raise FileError(f"{folder}: the folder holds no DICOM series; give an image file or a DICOM folder.")
    if len(series) > 1:
        found = ", ".join(f"{name} ({len(names)} files)" for name, names in files.items())
        raise FileError(f"{folder}: holds {len(series)} DICOM series; put the one you mean in its own folder: {found}.")
    try:
        with itk.files:
            return sitk.ReadImage(files[series[0]])
    except RuntimeError as error:
        raise FileError(f"{folder}: the DICOM series cannot be read ({reason_of(error)}).") from error


def reason_of(error: Exception) -> str:
    """The last sentence of an ITK error, without its source lines and addresses."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = next((line for line in lines if "ERROR:" in line), lines[-1] if lines else "no reason given")
    return last.split("ERROR:")[-1].split("): ")[-1].strip().rstrip(".")


def cannot_write(path: Path, temporary: Path, error: Exception) -> FileError:
    """What to raise when ITK refuses to write `path`; it knows the file by its temporary name."""
    reason = reason_of(error).replace(temporary.name.removesuffix(path.name), "")
    if "Unable to determine ImageIO writer" in reason:
        return FileError(
            f"{path}: cannot be written, no image format has this suffix; use .nii.gz, .nrrd, .mha or .tif."
        )
    return FileError(f"{path}: cannot be written ({reason}).")


def _checked(path: str | Path, read: Callable[[], _T]) -> _T:
    """What `read` returns; complaints about the content become a FileError that names the file."""
    try:
        return read()
    except InputError as error:
        raise FileError(f"{path}: {error}") from error
