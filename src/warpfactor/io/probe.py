"""What a file holds, by its header alone."""

from __future__ import annotations

from pathlib import Path

from warpfactor.itk import sitk


def count_volumes(path: str | Path) -> int:
    """How many volumes a file holds by its header: 1 unless it is 4-D, and also if it cannot be read at all."""
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    try:
        reader.ReadImageInformation()
    except RuntimeError:
        return 1
    size = reader.GetSize()
    return int(size[3]) if len(size) == 4 else 1
