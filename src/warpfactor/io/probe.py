"""What a file holds, by its header alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from warpfactor.geometry import itk
from warpfactor.geometry.itk import sitk

_INTEGERS = {getattr(sitk, f"sitk{sign}Int{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)}


def count_volumes(path: str | Path) -> int:
    """How many volumes a file holds by its header: 1 unless it is 4-D, and also if it cannot be read at all."""
    header = _header(path)
    return int(header.GetSize()[3]) if header is not None and header.GetDimension() == 4 else 1


def integer_type(path: str | Path) -> int | None:
    """SimpleITK's number for the type of a file's voxels, if they are single whole numbers by its header."""
    header = _header(path)
    return int(header.GetPixelID()) if header is not None and header.GetPixelID() in _INTEGERS else None


def _header(path: str | Path) -> Any:
    """SimpleITK's reader after it has read the header, or None if it cannot."""
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    try:
        with itk.files:
            reader.ReadImageInformation()
    except RuntimeError:
        return None
    return reader
