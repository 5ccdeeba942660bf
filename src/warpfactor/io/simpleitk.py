"""Image files that SimpleITK reads and writes: NRRD, MetaImage, DICOM folders, PNG, JPEG and others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from warpfactor.errors import FileError, InputError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.itk import sitk
from warpfactor.io.atomic import atomic_path
from warpfactor.io.headers import check_image, dicom
from warpfactor.io.voxels import Array, FileHeader, Volumes, VoxelSource

FIELD_SUFFIXES: tuple[str, ...] = (".nrrd", ".mha", ".mhd")

_ALTERED = (".jpg", ".jpeg", ".bmp")  # formats that give other numbers back, or three channels of one
_PHOTO_SUFFIXES = (".png", ".bmp")  # formats with an alpha channel
_PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")  # formats that hold one plane of unsigned integers
_LARGEST_ROUNDING = 0.02  # share of the intensity range that rounding to integers may change
_NEGLIGIBLE_ROUNDING = 1e-3  # and what it may change in any case
_OPAQUE = (255, 65535)
# Formats without compression and without a module in `headers`; ITK leaves what a truncated file lacks at zero.
_UNPACKED = ("GiplImageIO", "MRCImageIO", "StimulateImageIO", "VTKImageIO", "BioRadImageIO")
# Formats that put the voxels into a second file, which cannot appear together with the first one.
_TWO_FILES = {".mhd": ".mha", ".nhdr": ".nrrd", ".hdr": ".nii", ".img": ".nii"}
# ITK's library for these formats ends the process when the disk is full.
_HDF5 = (".h5", ".hdf5", ".hdf", ".he5", ".hd5", ".h4", ".hdf4", ".he4", ".mnc", ".mnc2")
_HDF5_ROOM = 1 << 20  # bytes besides the voxels
_FAILURES = (RuntimeError, ValueError, OverflowError)  # how ITK and its Python wrapping report a file they cannot read
_POSITION, _ORIENTATION = "0020|0032", "0020|0037"  # DICOM tags
_INTEGERS = {f"sitk{sign}Int{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}


def handles(path: Path) -> bool:
    """Return True: SimpleITK finds out from the content of a file what it is."""
    del path
    return True


def read(path: Path, *, field: bool = False) -> Volumes:
    """Read the voxels and their grid from a file, or from a folder that holds one DICOM series."""
    del field  # these formats store their number of dimensions
    found = _volumes(_load_dicom(path) if path.is_dir() else _load(path))
    return without_opaque_alpha(found) if path.suffix.lower() in _PHOTO_SUFFIXES else found


def read_header(path: Path) -> FileHeader:
    """Read the number of volumes, their shape and number type, but not the voxels."""
    reader = _reader(path)
    try:
        with itk.files:
            reader.ReadImageInformation()
    except _FAILURES as error:
        raise FileError(f"{path}: cannot be read as an image ({reason_of(error)}).") from error
    volumes = int(reader.GetSize()[3]) if reader.GetDimension() == 4 else 1
    shape = tuple(int(n) for n in reversed(reader.GetSize()[:3]))
    return FileHeader(volumes, _number_type(reader.GetPixelID()), shape)


def _number_type(pixel_id: int) -> np.dtype[Any]:
    """The number type of an image: its own if it has integers, single precision otherwise."""
    return np.dtype(next((own for name, own in _INTEGERS.items() if getattr(sitk, name) == pixel_id), "float32"))


def write(source: VoxelSource, path: Path, *, force: bool) -> None:
    """Write a file that appears complete or not at all; SimpleITK finds the format by the suffix."""
    whole = _TWO_FILES.get(path.suffix.lower())
    if whole is not None:
        raise FileError(f"{path}: this format needs a second file for the voxels; write {whole}, which holds both.")
    image = _image(source, path)
    with atomic_path(path, force=force, need_bytes=_need_bytes(path, image)) as temporary:
        try:
            with itk.files:
                sitk.WriteImage(image, str(temporary), useCompression=True)
        except RuntimeError as error:
            raise cannot_write(path, temporary, error) from error
        if not _holds(temporary, image):
            raise FileError(f"{path}: could not be written completely; is the disk full?")


def _need_bytes(path: Path, image: Any) -> int:
    """Free space that must be there before a file is begun; 0 for formats that notice a full disk."""
    if path.suffix.lower() not in _HDF5:
        return 0
    voxels = image.GetNumberOfPixels() * image.GetNumberOfComponentsPerPixel()
    return int(voxels * image.GetSizeOfPixelComponent()) + _HDF5_ROOM


def is_picture(path: str | Path) -> bool:
    """Return whether files of that name hold one plane of unsigned integers."""
    return Path(path).suffix.lower() in _PICTURE_SUFFIXES


def without_opaque_alpha(found: Volumes) -> Volumes:
    """The voxels of a picture without its fourth channel, if that only says that every pixel is opaque."""
    if found.data.shape[1] != 4:
        return found
    low, high = found.data[:, 3].min(), found.data[:, 3].max()
    opaque = bool(low == high) and int(high) in _OPAQUE
    return Volumes(found.data[:, :3], found.grid, found.step) if opaque else found


def reason_of(error: Exception) -> str:
    """The last sentence of an ITK error, without its source lines and addresses."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = next((line for line in lines if "ERROR:" in line), lines[-1] if lines else "no reason given")
    return last.split("ERROR:")[-1].split("): ")[-1].strip().rstrip(".")


def cannot_write(path: Path, temporary: Path, error: Exception) -> FileError:
    """The error to raise when ITK refuses to write `path`, which it knows by its temporary name."""
    reason = reason_of(error).replace(temporary.name.removesuffix(path.name), "")
    if "Unable to determine ImageIO writer" in reason:
        return FileError(
            f"{path}: cannot be written, no image format has this suffix; use .nii.gz, .nrrd, .mha or .tif."
        )
    return FileError(f"{path}: cannot be written ({reason}).")


def _holds(path: Path, image: Any) -> bool:
    """Whether a file that was just written can be read, with the voxels of the image: some writers of ITK do not notice
    that a disk is full.
    """
    try:
        if path.suffix.lower() in _ALTERED:
            check_image(path)
            return True
        with itk.files:
            found = sitk.ReadImage(str(path))
    except (FileError, *_FAILURES):
        return False
    equal_nan = image.GetPixelID() in (sitk.sitkFloat32, sitk.sitkFloat64)
    written, wanted = (sitk.GetArrayViewFromImage(each) for each in (found, image))
    return np.array_equal(written, wanted, equal_nan=equal_nan)


def _reader(path: Path) -> Any:
    """ITK's reader for a file whose header was found to be sound."""
    if not path.exists():
        raise FileError(f"{path}: there is no such file.")
    reader = sitk.ImageFileReader()
    reader.SetImageIO(check_image(path))
    reader.SetFileName(str(path))
    return reader


def _load(path: Path) -> Any:
    reader = _reader(path)
    try:
        with itk.files:
            image = reader.Execute()
            kind = reader.GetImageIO() or reader.GetImageIOFromFileName(str(path))
    except _FAILURES as error:
        raise FileError(f"{path}: cannot be read as an image ({reason_of(error)}).") from error
    size = image.GetNumberOfPixels() * image.GetNumberOfComponentsPerPixel() * image.GetSizeOfPixelComponent()
    if kind in _UNPACKED and path.suffix.lower() != ".gz" and size > path.stat().st_size:
        raise FileError(f"{path}: is truncated, it has fewer bytes than voxels; copy it again from its source.")
    return image


def _load_dicom(folder: Path) -> Any:
    check_image(folder)
    reader = sitk.ImageSeriesReader
    with itk.files:
        series = reader.GetGDCMSeriesIDs(str(folder))
        files = {name: reader.GetGDCMSeriesFileNames(str(folder), name) for name in series}
    if not series:
        raise FileError(f"{folder}: the folder holds no DICOM series; give an image file or a DICOM folder.")
    if len(series) > 1:
        found = ", ".join(f"{name} ({len(names)} files)" for name, names in files.items())
        raise FileError(f"{folder}: holds {len(series)} DICOM series; move the one to read to its own folder: {found}.")
    try:
        dicom.check_files(folder, files[series[0]])
        return _read_series(files[series[0]])
    except (*_FAILURES, InputError) as error:
        raise FileError(f"{folder}: the DICOM series cannot be read ({reason_of(error)}).") from error


def _read_series(files: list[str]) -> Any:
    """A volume of evenly spaced slices."""
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames(files)
    reader.MetaDataDictionaryArrayUpdateOn()
    with itk.files:
        image = reader.Execute()
    said = [
        reader.GetMetaData(number, tag) if reader.HasMetaDataKey(number, tag) else ""
        for tag, count in ((_POSITION, len(files)), (_ORIENTATION, 1))
        for number in range(count)
    ]
    dicom.check_positions(said[:-1], said[-1])
    return image


def _volumes(image: Any) -> Volumes:
    dimension, components = image.GetDimension(), image.GetNumberOfComponentsPerPixel()
    if dimension > 4:
        raise InputError(f"An image has 2 or 3 dimensions and a series 4, this file has {dimension}.")
    array = sitk.GetArrayViewFromImage(image)
    if np.iscomplexobj(array):
        raise InputError("The image has complex values; save their magnitude or phase.")
    spatial = min(dimension, 3)
    direction = np.reshape(image.GetDirection(), (dimension, dimension))[:spatial, :spatial].ravel().tolist()
    grid = Grid.from_itk(
        image.GetSize()[:spatial], image.GetOrigin()[:spatial], image.GetSpacing()[:spatial], direction
    )
    channels_last = array.reshape(-1, *grid.shape, components)
    step = float(image.GetSpacing()[3]) if dimension == 4 else 1.0
    return Volumes(np.array(np.moveaxis(channels_last, -1, 1), order="C"), grid, step)


def _image(source: VoxelSource, path: Path) -> Any:
    """The SimpleITK image of the voxels, in a number type that the format can hold."""
    grid = source.grid
    data = np.empty((source.volumes, *grid.shape, source.channels), source.dtype)
    for volume in range(source.volumes):
        for channel in range(source.channels):
            start = 0
            for slab in source.slabs(volume, channel):
                data[volume, start : start + len(slab), ..., channel] = slab
                start += len(slab)
    if is_picture(path):
        data = _picture(source, data, path)
    spatial = grid.shape[-grid.ndim :] if source.step is None else (source.volumes, *grid.shape)
    vector = source.channels > 1
    image = sitk.GetImageFromArray(data.reshape(*spatial, *([source.channels] if vector else [])), isVector=vector)
    return itk.place(image, grid) if source.step is None else _place_series(image, grid, source.step)


def _place_series(image: Any, grid: Grid, step: float) -> Any:
    _, origin, spacing, direction = Grid(grid.shape, grid.matrix, 3).to_itk()
    turn = np.eye(4)
    turn[:3, :3] = np.reshape(direction, (3, 3))
    image.SetOrigin((*origin, 0.0))
    image.SetSpacing((*spacing, step))
    image.SetDirection(turn.ravel().tolist())
    return image


def _picture(source: VoxelSource, data: Array, path: Path) -> Array:
    """Voxels as unsigned integers; FileError if a picture cannot hold them."""
    if source.step is not None or source.grid.shape[0] > 1:
        planes = source.volumes * source.grid.shape[0]
        raise FileError(f"{path}: this format stores one slice, but the image has {planes}; write .nii.gz.")
    low, high = float(data.min()), float(data.max())
    limit = 65535 if path.suffix.lower() == ".png" else 255
    if not (low >= 0 and high <= limit):  # NaN fails both comparisons
        raise FileError(
            f"{path}: this format stores integers from 0 to {limit}, but the image ranges from {low:g} to {high:g}; "
            "write .nii.gz or .tif."
        )
    rounded = np.round(data)
    if float(np.abs(data - rounded).max()) > max(_LARGEST_ROUNDING * (high - low), _NEGLIGIBLE_ROUNDING):
        raise FileError(
            f"{path}: this format stores integers, but the image has fractions between {low:g} and {high:g}; "
            "write .nii.gz or .tif."
        )
    return rounded.astype(np.uint16 if high > 255 else np.uint8)
