"""NIfTI-1 and NIfTI-2 files (.nii, .nii.gz).

nibabel reads and writes the header. The voxels are streamed through this module, because nibabel's array proxy needs
more time and twice the memory: for 320x320x320 float32 voxels in a .nii.gz file 0.70 CPU seconds and 250 MB, compared
with 0.34 CPU seconds and 125 MB here, where Intel's ISA-L decompresses into the array that is returned.

Where a file lies in space follows ITK, so that warpfactor, ANTs and SimpleITK agree about every file: the voxel spacing
is `pixdim`, and `choose_form` selects the sform or the qform for the axes and the origin.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from isal import igzip, isal_zlib
from nibabel import nifti1, nifti2
from nibabel.spatialimages import HeaderDataError

from warpfactor.errors import FileError, InputError
from warpfactor.geometry.grid import RAS_TO_LPS, Grid, Matrix
from warpfactor.io.atomic import atomic_path
from warpfactor.io.voxels import Array, Box, FileHeader, Stored, Volumes, VoxelSource
from warpfactor.memory import check_memory

FIELD_SUFFIXES: tuple[str, ...] = (".nii", ".nii.gz")

_GZIP_MAGIC = b"\x1f\x8b"
_LARGEST_RATIO = 1032  # a deflate stream cannot expand further
# ISA-L's level 1 suits displacements and interpolated images, whose low bytes are noise. The warp of a 1 mm brain
# (162x214x167, 3 x float32, 69 MB) takes 0.10 CPU seconds to reach 65.5 MB; zlib takes 2.1 s to reach 64.2 MB. A
# label map of that size takes 5 ms to reach 475 kB; zlib takes 93 ms to reach 262 kB.
_COMPRESSION_LEVEL = 1
_CHUNK_VOXELS = 1 << 18
_MOST_EXTRA_BYTES = 1 << 20  # read after the last voxel
_NIFTI1_LARGEST_AXIS = (1 << 15) - 1

_VECTOR_INTENTS = (1005, 1006, 1007)  # symmetric matrix, displacement vector, vector
_DISPLACEMENT_INTENT = 1006
_SCANNER_CODE = 1
_UNITS_MM = {1: 1e3, 3: 1e-3}  # metres and micrometres; everything else counts as millimetres
_UNITS_S = {16: 1e-3, 24: 1e-6}  # milliseconds and microseconds
_FORM_TOLERANCE = 1e-4  # of the entries of a matrix, as in ITK
_WARNING_VOX = 1e-2  # distance of sform and qform from which on a warning is due

# nibabel and isal carry no types, or only some.
_Header = Any
_Nifti1Header: Any = nifti1.Nifti1Header
_Nifti2Header: Any = nifti2.Nifti2Header
_GzipFile: Any = igzip.IGzipFile
_DAMAGE: tuple[type[Exception], ...] = (gzip.BadGzipFile, cast(Any, isal_zlib.error))


class GeometryWarning(UserWarning):
    """The geometry in a file header is ambiguous or had to be corrected."""


class _Layout(NamedTuple):
    """How the voxels of a file are arranged.

    Attributes:
        shape: (C, T, D, H, W), the order of the file.
        planar: the file is 2-D.
    """

    shape: tuple[int, int, int, int, int]
    planar: bool


def handles(path: Path) -> bool:
    """Return whether this is the name of a NIfTI file; a folder of that name is left to the DICOM reader."""
    return path.name.lower().endswith(FIELD_SUFFIXES) and not path.is_dir()


def read(path: Path, *, field: bool = False) -> Volumes:
    """Read the voxels and their grid.

    Args:
        path: of the file.
        field: a file with one slice and three components is a 3-D displacement field, not a 2-D colour image.
    """
    with _reading(path) as stream:
        header = _parse_header(path, stream)
        layout = _layout(path, header, field=field)
        grid = _grid(path, header, layout)
        data = _read_voxels(path, stream, header, layout)
    if int(header["intent_code"]) == _DISPLACEMENT_INTENT and data.dtype.kind == "f":
        data[:, :2] *= -1  # from RAS, which this intent prescribes, to LPS
    return Volumes(data, grid, _time_step(header))


def read_header(path: Path) -> FileHeader:
    """Read the number of volumes, their shape and number type, but not the voxels."""
    with _reading(path) as stream:
        header = _parse_header(path, stream)
    layout = _layout(path, header, field=False)
    stored, scaling = _number_type(path, header)
    shape = layout.shape[3:] if layout.planar else layout.shape[2:]
    return FileHeader(layout.shape[1], _read_type(stored, scaling), shape)


def stored(path: Path) -> Stored | None:
    """The voxels of an uncompressed file of plain numbers, read in parts; None for any other file."""
    with _reading(path) as stream:
        header = _parse_header(path, stream)
        plain = not isinstance(stream, _GzipFile)
    layout = _layout(path, header, field=False)
    dtype, scaling = _number_type(path, header)
    if not plain or scaling is not None or dtype.names is not None:
        return None
    offset = _data_offset(path, header)
    if path.stat().st_size < offset + math.prod(layout.shape) * dtype.itemsize:
        raise FileError(f"{path}: is truncated, it ends before the data that its header announces.")

    def read(channel: int, box: Box) -> Array:
        mapped = np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=layout.shape)
        return np.array(mapped[(channel, 0, *box)])

    return Stored(_grid(path, header, layout), dtype.newbyteorder("="), layout.shape[0], layout.shape[1], read)


def write(source: VoxelSource, path: Path, *, force: bool) -> None:
    """Write a file that means the same to ITK and ANTs; NIfTI-2 if an axis is too long for NIfTI-1."""
    header = _make_header(source)
    with atomic_path(path, force=force) as temporary, _writing(temporary) as stream:
        header.write_to(stream)
        for channel in range(source.channels):
            for volume in range(source.volumes):
                for slab in source.slabs(volume, channel):
                    stream.write(np.ascontiguousarray(slab, dtype=source.dtype).data.cast("B"))


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    """Open a file, compressed or not whatever its name says; damage that shows inside the block is a FileError."""
    if not path.is_file():
        raise FileError(f"{path}: there is no such file.")
    try:
        with path.open("rb") as raw:
            compressed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            if not compressed:
                yield raw
                return
            with _GzipFile(fileobj=raw, mode="rb") as stream:
                yield cast(BinaryIO, stream)
    except EOFError as error:
        raise FileError(
            f"{path}: is truncated, it ends before the data that its header announces; copy it again from its source."
        ) from error
    except _DAMAGE as error:
        raise FileError(f"{path}: is damaged ({error}); copy it again from its source.") from error
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error}); check its permissions.") from error


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file, compressed if its name ends in .gz.

    Python's global lock is free during compression, so that several files can be compressed at once. The same voxels
    always give the same bytes: neither the time nor the temporary name is stored.
    """
    with path.open("wb") as raw:
        if path.suffix.lower() != ".gz":
            yield raw
            return
        with _GzipFile("", "wb", _COMPRESSION_LEVEL, fileobj=raw, mtime=0) as stream:
            yield cast(BinaryIO, stream)


def _parse_header(path: Path, stream: BinaryIO) -> _Header:
    raw = stream.read(_Nifti2Header.sizeof_hdr)
    for kind in (_Nifti1Header, _Nifti2Header):
        if kind.may_contain_header(raw):
            return kind(raw[: kind.sizeof_hdr], check=False)
    raise FileError(f"{path}: is not a NIfTI file, although its suffix says so; check the program that wrote it.")


def _layout(path: Path, header: _Header, *, field: bool) -> _Layout:
    count, *sizes = (int(n) for n in header["dim"])
    if not 1 <= count <= 7:
        raise FileError(f"{path}: its header claims {count} dimensions (dim[0]); correct the header.")
    if min(sizes[:count]) < 1:
        shape = " x ".join(str(n) for n in sizes[:count])
        raise FileError(f"{path}: its header claims a size of {shape} voxels (dim); correct the header.")
    width, height, depth, volumes, channels, *others = sizes[:count] + [1] * (7 - count)
    vector = int(header["intent_code"]) in _VECTOR_INTENTS
    if count == 1 or max(others) > 1 or (channels > 1 and not vector):
        shape = " x ".join(str(n) for n in sizes[:count])
        raise FileError(
            f"{path}: is an array of {shape}; an image has 2 or 3 dimensions, a series 4, and a vector image 5 and "
            "the intent code 1007."
        )
    planar = count == 2
    if vector and depth == volumes == 1:
        planar = channels == 2 if field else _in_plane(header)
    return _Layout((channels, volumes, depth, height, width), planar)


def _in_plane(header: _Header) -> bool:
    """Whether the header of a file with one slice is what a 2-D image has: vector files do not store which it was."""
    _, matrix = choose_form(header)
    return matrix is None or not (matrix[2, [0, 1, 3]].any() or matrix[:2, 2].any())


def _grid(path: Path, header: _Header, layout: _Layout) -> Grid:
    depth, height, width = layout.shape[2:]
    size = (width, height) if layout.planar else (width, height, depth)
    ndim = len(size)
    _check_forms(path, header)
    unit = _UNITS_MM.get(int(header["xyzt_units"]) & 7, 1.0)
    spacing = _spacing(path, header, size) * unit
    name, matrix = choose_form(header)
    if matrix is None and name == "none":
        return Grid.from_itk(size, (0.0,) * ndim, spacing.tolist(), np.eye(ndim).ravel().tolist())
    if matrix is None:
        return _orthogonal_grid(path, header, size, unit)
    if ndim == 3:
        _warn_of_conflict(path, header, size, name)
    lps = RAS_TO_LPS @ matrix
    axes = lps[:ndim, :ndim]
    direction = axes / np.linalg.norm(axes, axis=0)
    return Grid.from_itk(size, (lps[:ndim, 3] * unit).tolist(), spacing.tolist(), direction.ravel().tolist())


def _check_forms(path: Path, header: _Header) -> None:
    """Raise a FileError if a form that is in use has a number that is not finite."""
    forms = {
        "sform": ("srow_x", "srow_y", "srow_z"),
        "qform": ("quatern_b", "quatern_c", "quatern_d", "qoffset_x", "qoffset_y", "qoffset_z"),
    }
    for form, names in forms.items():
        if int(header[f"{form}_code"]) > 0 and not all(np.all(np.isfinite(header[name])) for name in names):
            raise FileError(f"{path}: its {form} has a number that is not finite; correct the header.")


def _spacing(path: Path, header: _Header, size: tuple[int, ...]) -> Array:
    """Voxel spacing by `pixdim`; that of an axis with a single voxel may be missing and is then one."""
    spacing: Array = np.abs(header["pixdim"][1 : len(size) + 1].astype(np.float64))
    missing = (spacing == 0) | ~np.isfinite(spacing)
    if np.any(missing & (np.asarray(size) > 1)):
        shown = " x ".join(f"{value:g}" for value in spacing)
        raise FileError(f"{path}: the voxel spacing is {shown} mm; write the true spacing into the header (pixdim).")
    return np.where(missing, 1.0, spacing)


def choose_form(header: _Header) -> tuple[str, Matrix | None]:
    """Choose between the two voxel-to-world matrices (RAS) of a header, by the rules of ITK.

    The sform is used if its axes are orthogonal and if it is the only form, has the code "scanner" (1) or equals the
    qform. Otherwise the qform is used.

    Returns:
        The name "sform" or "qform" and the matrix; "none" and None if the header has neither; "sheared" and None if the
        only form is an sform whose axes are not orthogonal.
    """
    sform, qform = _sform(header), _qform(header)
    if sform is None and qform is None:
        return "none", None
    if sform is None:
        return "qform", qform
    preferred = (
        qform is None
        or int(header["sform_code"]) == _SCANNER_CODE
        or np.allclose(sform, qform, rtol=0, atol=_FORM_TOLERANCE)
    )
    if preferred and _is_orthogonal(sform):
        return "sform", sform
    return ("sheared", None) if qform is None else ("qform", qform)


def _sform(header: _Header) -> Matrix | None:
    return header.get_sform().astype(np.float64) if int(header["sform_code"]) > 0 else None


def _qform(header: _Header) -> Matrix | None:
    """The matrix of the quaternion, in the precision of the header; None without one or if it is no rotation."""
    if int(header["qform_code"]) <= 0:
        return None
    try:
        matrix: Matrix = header.get_qform().astype(header["quatern_b"].dtype).astype(np.float64)
    except (ValueError, HeaderDataError):
        return None
    return matrix


def _is_orthogonal(matrix: Matrix) -> bool:
    lengths = np.linalg.norm(matrix[:3, :3], axis=0)
    if not (np.all(np.isfinite(matrix)) and lengths.min() > 0):
        return False
    axes = matrix[:3, :3] / lengths
    return np.allclose(axes @ axes.T, np.eye(3), rtol=0, atol=_FORM_TOLERANCE)


def _warn_of_conflict(path: Path, header: _Header, size: tuple[int, ...], used: str) -> None:
    """Warn if sform and qform put the image in different places."""
    sform, qform = _sform(header), _qform(header)
    if sform is None or qform is None:
        return
    try:
        apart = Grid.from_ras(size, qform).distance_vox(Grid.from_ras(size, sform))
    except InputError:  # one of them is singular
        return
    if apart > _WARNING_VOX:
        _warn(f"{path}: sform and qform are up to {apart:.3g} voxels apart; the {used} is used, as in ITK.")


def _orthogonal_grid(path: Path, header: _Header, size: tuple[int, ...], unit: float) -> Grid:
    """The grid with the orthogonal axes that are nearest to those of a sheared sform."""
    matrix = header.get_sform().astype(np.float64)
    matrix[:3] *= unit
    sheared = Grid.from_ras(size, matrix)
    spacing = np.linalg.norm(sheared.matrix[:3, :3], axis=0)
    left, _, right = np.linalg.svd(sheared.matrix[:3, :3] / spacing)
    orthogonal = sheared.matrix.copy()
    orthogonal[:3, :3] = (left @ right) * spacing
    grid = Grid(sheared.shape, orthogonal, sheared.ndim)
    _warn(
        f"{path}: the axes of its sform are not at right angles; the nearest orthogonal axes, up to "
        f"{sheared.distance_vox(grid):.3g} voxels away, are used."
    )
    return grid


def _time_step(header: _Header) -> float:
    if int(header["dim"][0]) < 4:
        return 1.0
    return float(header["pixdim"][4]) * _UNITS_S.get(int(header["xyzt_units"]) & 56, 1.0)


def _number_type(path: Path, header: _Header) -> tuple[np.dtype[Any], tuple[float, float] | None]:
    """The number type in the file, and the slope and intercept that apply to it, if any."""
    try:
        stored: np.dtype[Any] = header.get_data_dtype()
        slope, intercept = header.get_slope_inter()
    except KeyError as error:
        raise FileError(f"{path}: has the unknown data type {error}; save it in another number type.") from error
    except HeaderDataError as error:
        raise FileError(f"{path}: its header cannot be used ({error}); correct the header.") from error
    bits = int(header["bitpix"])
    if bits not in (0, 8 * stored.itemsize):  # some programs leave it out
        raise FileError(
            f"{path}: its header claims {bits} bits a voxel (bitpix), its data type has {8 * stored.itemsize}; correct "
            "the header."
        )
    if stored.names is None and (stored.kind not in "iufc" or stored.itemsize > 16 or stored.str[1:] == "f16"):
        raise FileError(f"{path}: has the data type {int(header['datatype'])}; save it in another number type.")
    if stored.kind == "c":
        raise FileError(f"{path}: The image has complex values; save their magnitude or phase.")
    scaled = slope is not None and (slope, intercept) != (1.0, 0.0)
    return stored, (float(slope), float(intercept)) if scaled and stored.names is None else None


def _read_type(stored: np.dtype[Any], scaling: tuple[float, float] | None) -> np.dtype[Any]:
    """The number type of voxels as they are read: scaled integers become float32; colours are bytes."""
    if stored.names is not None:
        return np.dtype(np.uint8)
    return np.dtype(np.float32) if scaling is not None and stored.kind != "f" else stored


def _read_voxels(path: Path, stream: BinaryIO, header: _Header, layout: _Layout) -> Array:
    """(T, C, D, H, W) voxels. Apart from the result only one chunk of them is in memory at a time."""
    stored, scaling = _number_type(path, header)
    kind = _read_type(stored, scaling)
    colours = len(stored.names) if stored.names is not None else 1
    offset = _data_offset(path, header)
    needed = math.prod(layout.shape) * stored.itemsize
    _check_size(path, offset + needed)
    check_memory(
        math.prod(layout.shape) * colours * kind.itemsize, f"{path}: It", remedy="crop it, or correct its header"
    )
    stream.seek(offset)
    flat = np.empty(math.prod(layout.shape) * colours, kind)
    for start in range(0, len(flat), _CHUNK_VOXELS):
        part = flat[start : start + _CHUNK_VOXELS]
        if scaling is None:
            _fill(stream, part)
        else:
            chunk = np.empty(len(part), stored)
            _fill(stream, chunk)
            with np.errstate(over="ignore", invalid="ignore"):  # infinite voxels do not count
                part[:] = chunk.astype(np.float64) * scaling[0] + scaling[1]
    _check_end(path, stream)
    if colours > 1:
        return np.moveaxis(flat.reshape(*layout.shape[1:], colours), -1, 1)
    return flat.reshape(layout.shape).swapaxes(0, 1)


def _data_offset(path: Path, header: _Header) -> int:
    offset, least = float(header["vox_offset"]), int(header.sizeof_hdr) + 4
    if offset == 0:
        return least
    if not math.isfinite(offset) or offset < least or offset != int(offset):
        raise FileError(
            f"{path}: the start of its voxels (vox_offset) is {offset:g}, but the header has {least} bytes; correct "
            "the header."
        )
    return int(offset)


def _check_end(path: Path, stream: BinaryIO) -> None:
    """Read on to the end, where a compressed file verifies its checksum, and warn of bytes that no voxel has."""
    extra = len(stream.read(_MOST_EXTRA_BYTES))
    if extra:
        least = "at least " if extra == _MOST_EXTRA_BYTES else ""
        _warn(f"{path}: has {least}{extra} bytes more than its header announces; check its size (dim).")


def _check_size(path: Path, needed: int) -> None:
    """Raise EOFError if a file is too small whatever its compression, before memory is allocated for its voxels."""
    if needed > path.stat().st_size * _LARGEST_RATIO:
        raise EOFError


def _fill(stream: BinaryIO, part: Array) -> None:
    room = part.view(np.uint8).data
    while len(room):
        count = stream.readinto(room)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        room = room[count:]


def _make_header(source: VoxelSource) -> _Header:
    """A header with the fields that ITK writes."""
    shape: tuple[int, ...] = source.grid.shape[::-1][: source.grid.ndim]
    if source.channels > 1:
        shape = (*source.grid.shape[::-1], source.volumes, source.channels)
    elif source.step is not None:
        shape = (*source.grid.shape[::-1], source.volumes)
    header = (_Nifti1Header if max(shape) <= _NIFTI1_LARGEST_AXIS else _Nifti2Header)()
    header.set_data_dtype(source.dtype)
    header.set_data_shape(shape)
    if source.channels > 1:
        header.set_intent("vector")
    ras = RAS_TO_LPS @ source.grid.matrix[:, [2, 1, 0, 3]]
    header.set_qform(ras, code=_SCANNER_CODE)
    header.set_sform(ras, code=_SCANNER_CODE)
    header["pixdim"][1:4] = source.grid.spacing_mm[::-1]
    header["pixdim"][4] = source.step or 0
    header.set_xyzt_units("mm", "sec")
    header.set_slope_inter(1, 0)
    return header


def _warn(message: str) -> None:
    warnings.warn(message, GeometryWarning, stacklevel=2)
