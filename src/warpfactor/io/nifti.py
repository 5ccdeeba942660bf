"""What SimpleITK passes over in silence in a NIfTI file: missing data, zero spacing, forms that disagree.

It fills up a truncated file with what it finds, takes a spacing of zero for one, reads NaN as zero, refuses sheared
axes, and forgets where in space a field of one slice is.
"""

from __future__ import annotations

import gzip
import math
import struct
import tempfile
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from warpfactor.errors import FileError, InputError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.itk import sitk

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 22
_TOLERANCE_VOX = 1e-2


class GeometryWarning(UserWarning):
    """A header whose geometry is ambiguous or had to be corrected."""


# (offset, format) of the fields of a NIfTI-1 header. The codes are qform_code and sform_code, side by side.
_LENGTH = 348
_FIELDS = {
    "dim": (40, "8h"),
    "datatype": (70, "h"),
    "bitpix": (72, "h"),
    "pixdim": (76, "8f"),
    "data_offset": (108, "f"),
    "scaling": (112, "2f"),
    "codes": (252, "2h"),
    "quaternion": (256, "6f"),
    "rows": (280, "12f"),
}
_CODES = slice(252, 256)
_INTENT = 68  # where the header says what voxels mean
# numpy types by datatype code
_FLOATS = {16: "f4", 64: "f8"}
_NUMBERS = {2: "u1", 4: "i2", 8: "i4", 256: "i1", 512: "u2", 768: "u4", **_FLOATS}
_UNSCALED = (1.0, 0.0)  # slope and intercept that leave the numbers as they are; so does any slope of 0


@dataclass(frozen=True)
class Header:
    """The fields we check. Matrices map (x, y, z) indices to RAS mm; None if the file does not give them.

    `float_type` and `number_type` are numpy's names of the voxels' type, byte order included. The first is None for
    whole numbers, the second for voxels that are to be scaled or are more than a number.
    """

    dim: tuple[int, ...]
    spacing: tuple[float, ...]
    size_bytes: int
    data_offset: int
    float_type: str | None
    number_type: str | None
    qform: Matrix | None
    sform: Matrix | None


def is_nifti(path: Path) -> bool:
    return path.name.lower().endswith((".nii", ".nii.gz"))


def read_header(path: Path) -> Header:
    """The header; FileError if this is no NIfTI file or if data are missing at its end."""
    with _open(path) as stream:
        try:
            raw = stream.read(_LENGTH)
        except (OSError, EOFError, zlib.error) as error:
            raise FileError(f"{path}: is damaged ({error}); copy it again from its source.") from error
    header = _parse(path, raw)
    _check_complete(path, header.size_bytes)
    return header


def check_spacing(path: Path, header: Header) -> None:
    """FileError if an axis with more than one voxel has no spacing."""
    for size, spacing in zip(header.dim, header.spacing[:3], strict=False):
        if size > 1 and (spacing == 0 or not math.isfinite(spacing)):
            shown = " x ".join(f"{value:g}" for value in header.spacing[: min(len(header.dim), 3)])
            raise FileError(f"{path}: the voxel spacing is {shown} mm; write the true one into the header (pixdim).")


def warn_of_disagreement(path: Path, header: Header, image: Any) -> None:
    """One GeometryWarning if sform and qform put the image in different places; says which one was used."""
    if header.qform is None or header.sform is None or len(header.dim) < 3:
        return
    try:
        by_qform, by_sform = (Grid.from_ras(header.dim[:3], m) for m in (header.qform, header.sform))
    except InputError:
        return
    apart = by_qform.distance_vox(by_sform)
    if apart <= _TOLERANCE_VOX:
        return
    used = itk.grid_of(image)
    name = "sform" if used.distance_vox(by_sform) < used.distance_vox(by_qform) else "qform"
    _warn(f"{path}: sform and qform are up to {apart:.3g} voxels apart; the {name} is used, as in ITK.")


def with_nonfinite(path: Path, header: Header, image: Any) -> Any:
    """The image with NaN and infinity where the file has them; SimpleITK reads them as zero."""
    if header.float_type is None or image.GetNumberOfComponentsPerPixel() > 1:
        return image
    with _open(path) as stream:
        stream.seek(header.data_offset)
        values = np.frombuffer(stream.read(header.size_bytes - header.data_offset), header.float_type)
    lost = ~np.isfinite(values)
    if not lost.any():
        return image
    array = sitk.GetArrayFromImage(image)
    array.ravel()[lost] = values[lost]
    restored = sitk.GetImageFromArray(array, isVector=False)
    restored.CopyInformation(image)
    return restored


def read_plain(path: Path, header: Header) -> tuple[np.ndarray[Any, Any], Any] | None:
    """Voxels as the file has them, (D, H, W) or (H, W), read once, and SimpleITK's reader of the header.

    None if they are not single numbers in two or three dimensions that mean what they are, or if ITK does not take the
    header: its own reader then has to do it.
    """
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    try:
        with itk.files:
            reader.ReadImageInformation()
    except RuntimeError:
        return None
    size = tuple(int(n) for n in reader.GetSize())
    if header.number_type is None or reader.GetNumberOfComponents() != 1 or len(size) not in (2, 3):
        return None
    if math.prod(size) != math.prod(header.dim):
        return None
    voxels = np.empty(size[::-1], header.number_type)
    _read_into(path, header.data_offset, voxels.reshape(-1).view(np.uint8).data)
    return voxels, reader


def read_sheared(path: Path, header: Header) -> Any:
    """SimpleITK image of a file with sheared axes, on the nearest orthogonal ones, with a GeometryWarning."""
    matrix = header.sform if header.sform is not None else header.qform
    if matrix is None:
        raise FileError(f"{path}: has no usable geometry; correct its sform.")
    with tempfile.TemporaryDirectory() as folder, _open(path) as stream:
        raw = bytearray(stream.read())
        raw[_CODES] = bytes(4)
        image = _read_copy(Path(folder) / "plain.nii", raw)
    try:
        sheared = Grid.from_ras(header.dim[:3], matrix)
    except InputError as error:
        raise FileError(f"{path}: {error}") from error
    orthogonal = _orthogonal(sheared)
    apart = sheared.distance_vox(orthogonal)
    _warn(
        f"{path}: the axes of its sform are not at right angles; "
        f"the nearest that are, up to {apart:.3g} voxels away, are used."
    )
    return _with_geometry(image, orthogonal)


def read_slice_field(path: Path) -> Any:
    """A field of three components and one slice, at its place in space; None if this is another file.

    ITK reads it as 2-D, or not at all if its plane is not axial. So its values are read as if it lay nowhere, and its
    place is that of a small image with the same header.
    """
    if not is_nifti(path) or not path.is_file():
        return None
    header = read_header(path)
    if len(header.dim) != 5 or header.dim[2:] != (1, 1, 3):
        return None
    with tempfile.TemporaryDirectory() as folder, _open(path) as stream:
        raw = bytearray(stream.read())
        values = _read_copy(Path(folder) / "values.nii", raw[: _CODES.start] + bytes(4) + raw[_CODES.stop :])
        order = "<" if raw[:4] == struct.pack("<i", _LENGTH) else ">"
        struct.pack_into(order + "8h", raw, _FIELDS["dim"][0], 3, 2, 2, 1, 1, 1, 1, 1)
        struct.pack_into(order + "h", raw, _INTENT, 0)
        try:
            place = _read_copy(Path(folder) / "place.nii", raw)
        except RuntimeError as error:
            raise FileError(f"{path}: the axes of its sform are not at right angles; correct the header.") from error
    field = sitk.JoinSeries(values)
    field.SetOrigin(place.GetOrigin())
    field.SetSpacing(place.GetSpacing())
    field.SetDirection(place.GetDirection())
    return field


def _read_copy(path: Path, raw: bytes | bytearray) -> Any:
    path.write_bytes(raw)
    with itk.files:
        return sitk.ReadImage(str(path))


def _orthogonal(grid: Grid) -> Grid:
    matrix = grid.matrix.copy()
    spacing = np.linalg.norm(matrix[:3, :3], axis=0)
    left, _, right = np.linalg.svd(matrix[:3, :3] / spacing)
    matrix[:3, :3] = (left @ right) * spacing
    return Grid(grid.shape, matrix, grid.ndim)


def _with_geometry(image: Any, grid: Grid) -> Any:
    """The image at the place of a 3-D grid; axes of time keep what they have."""
    _, origin, spacing, direction = grid.to_itk()
    extra = image.GetDimension() - 3
    turn = np.eye(3 + extra)
    turn[:3, :3] = np.reshape(direction, (3, 3))
    image.SetOrigin((*origin, *image.GetOrigin()[3:]))
    image.SetSpacing((*spacing, *image.GetSpacing()[3:]))
    image.SetDirection(turn.ravel().tolist())
    return image


def _warn(message: str) -> None:
    warnings.warn(message, GeometryWarning, stacklevel=2)


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as stream:
        packed = stream.read(2) == _GZIP_MAGIC
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def _read_into(path: Path, start: int, room: memoryview) -> None:
    """Fill `room` with what the file holds from byte `start` on."""
    done = 0
    try:
        with _open(path) as stream:
            stream.seek(start)
            while done < len(room):
                count = stream.readinto(room[done : done + _CHUNK])  # type: ignore[attr-defined]
                if not count:
                    raise EOFError("it ends early")
                done += count
            stream.read(1)  # a packed file is checked when its end is met
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: is damaged ({error}); copy it again from its source.") from error


def _parse(path: Path, raw: bytes) -> Header:
    length = raw[:4]
    if len(raw) == _LENGTH:
        for order in "<>":
            if length == struct.pack(order + "i", _LENGTH):
                return _fields(raw, order)
            if length == struct.pack(order + "i", 540):
                raise FileError(f"{path}: is a NIfTI-2 file, which SimpleITK cannot read; save it as NIfTI-1.")
    raise FileError(f"{path}: is not a NIfTI file although its name says so; check what wrote it.")


def _fields(raw: bytes, order: str) -> Header:
    field = {name: struct.unpack_from(order + kind, raw, place) for name, (place, kind) in _FIELDS.items()}
    count, *sizes = field["dim"]
    dim = tuple(max(1, int(n)) for n in sizes[: max(1, min(int(count), 7))])
    handed, *spacing = field["pixdim"]
    qcode, scode = field["codes"]
    code = field["datatype"][0]
    scaled = field["scaling"][0] != 0 and field["scaling"] != _UNSCALED
    rows = np.vstack([np.reshape(field["rows"], (3, 4)), (0, 0, 0, 1)]).astype(np.float64)
    return Header(
        dim=dim,
        spacing=tuple(abs(value) for value in spacing[: len(dim)]),
        size_bytes=int(field["data_offset"][0]) + math.prod(dim) * field["bitpix"][0] // 8,
        data_offset=int(field["data_offset"][0]),
        float_type=order + _FLOATS[code] if code in _FLOATS else None,
        number_type=order + _NUMBERS[code] if code in _NUMBERS and not scaled else None,
        qform=_from_quaternion(field["quaternion"], spacing, handed) if qcode > 0 else None,
        sform=rows if scode > 0 else None,
    )


def _from_quaternion(fields: tuple[float, ...], spacing: list[float], handed: float) -> Matrix:
    """NIfTI's "method 2": unit quaternion (b, c, d), offsets, and the sign of the third axis."""
    b, c, d = fields[:3]
    a = math.sqrt(max(0.0, 1.0 - b * b - c * c - d * d))
    turn = np.array(
        [
            [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
            [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
            [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
        ]
    )
    matrix: Matrix = np.eye(4)
    matrix[:3, :3] = turn * np.array([spacing[0], spacing[1], spacing[2] * (-1 if handed < 0 else 1)])
    matrix[:3, 3] = fields[3:]
    return matrix


def _check_complete(path: Path, size_bytes: int) -> None:
    """FileError if the file ends early. Gzip's last four bytes are its length: a whole file is not read."""
    with path.open("rb") as stream:
        packed = stream.read(2) == _GZIP_MAGIC
        held, whole = stream.seek(0, 2), True
        if packed:
            stream.seek(-4, 2)
            if struct.unpack("<I", stream.read(4))[0] == size_bytes % (1 << 32):
                return
            held, whole = _unpacked_size(path)
    if held < size_bytes:
        raise FileError(f"{path}: is truncated, {held} of {size_bytes} bytes are there; copy it again from its source.")
    if not whole:
        raise FileError(f"{path}: is damaged at its end; copy it again from its source.")


def _unpacked_size(path: Path) -> tuple[int, bool]:
    """Bytes in a gzip file up to where it breaks off, and whether it is whole."""
    size = 0
    try:
        with gzip.open(path, "rb") as stream:
            while chunk := stream.read1(_CHUNK):  # `read` would give nothing of a chunk that breaks off
                size += len(chunk)
    except (OSError, EOFError, zlib.error):
        return size, False
    return size, True
