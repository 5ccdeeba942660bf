"""The registry of image file formats. A new format is one module, as ImageFormat describes it, and one entry below."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from warpfactor.io import nifti, omezarr, simpleitk, tiff
from warpfactor.io.voxels import FileHeader, Volumes, VoxelSource


class ImageFormat(Protocol):
    """A module that reads and writes image files of one or several formats.

    Files that cannot be read or written raise a FileError or an InputError.

    Attributes:
        FIELD_SUFFIXES: of files that can hold a displacement field.

    A module may have `stored(path) -> Stored | None` besides, which opens a file to read it in parts; None if that file
    can only be read as a whole.
    """

    FIELD_SUFFIXES: tuple[str, ...]

    def handles(self, path: Path) -> bool:
        """Return whether this module is responsible for files of that name."""

    def read(self, path: Path, *, field: bool = False) -> Volumes:
        """Read the voxels and their grid.

        Args:
            path: of the file.
            field: the file is expected to hold a displacement field; decides whether a file with one slice and three
                components is 3-D.
        """

    def read_header(self, path: Path) -> FileHeader:
        """Read the number of volumes, their number type and, if it is known, their shape, but not the voxels."""

    def write(self, source: VoxelSource, path: Path, *, force: bool) -> None:
        """Write a file that appears complete or not at all."""


# The first entry that handles a name is used; SimpleITK, which takes any name, is the last.
FORMATS: tuple[ImageFormat, ...] = (omezarr, nifti, tiff, simpleitk)


def find_format(path: Path) -> ImageFormat:
    """Return the format that reads and writes files of that name."""
    return next(entry for entry in FORMATS if entry.handles(path))


def field_suffixes() -> tuple[str, ...]:
    """Return the suffixes of the image files that can hold a displacement field."""
    return tuple(suffix for entry in FORMATS for suffix in entry.FIELD_SUFFIXES)
