"""Headers of files that ITK reads, checked before ITK sees them.

ITK believes what a header says. A damaged one can end the process (an .mha with 2147483647 dimensions), or give an
image whose missing part is zero. The modules here look at what decides that: sizes, number types, the length of what
follows, checksums. They make nothing of the content, which remains ITK's task. A format that has no module here is
tried in another process first (`trial`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from warpfactor.errors import FileError, InputError, OutOfMemoryError
from warpfactor.io.headers import metaimage, nrrd, pictures
from warpfactor.io.headers.trial import try_image


class CheckedFormat(NamedTuple):
    """A format whose files are checked here.

    Attributes:
        suffixes: of its files.
        reader: ITK's class for it. It is asked for by name, so that no other one takes the file for its own.
        check: raises an InputError about a damaged file.
    """

    suffixes: tuple[str, ...]
    reader: str
    check: Callable[[Path], None]


CHECKED = (
    CheckedFormat((".mha", ".mhd"), "MetaImageIO", metaimage.check),
    CheckedFormat((".nrrd", ".nhdr"), "NrrdImageIO", nrrd.check),
    CheckedFormat((".png",), "PNGImageIO", pictures.check_png),
    CheckedFormat((".jpg", ".jpeg"), "JPEGImageIO", pictures.check_jpeg),
    CheckedFormat((".bmp",), "BMPImageIO", pictures.check_bmp),
)


def check_image(path: Path) -> str:
    """Raise a FileError if ITK must not read this file or DICOM folder.

    Returns:
        The name of the ITK class that reads it, empty if ITK may choose.
    """
    known = next((entry for entry in CHECKED if path.name.lower().endswith(entry.suffixes)), None)
    if not path.is_file() and not path.is_dir():  # a pipe or a device would block
        raise FileError(f"{path}: is not a regular file; give the name of a file.")
    if path.is_dir() or known is None:
        try_image(path)
        return ""
    try:
        known.check(path)
    except InputError as error:
        raise FileError(f"{path}: cannot be read as an image ({str(error).rstrip('.')}).") from error
    except OutOfMemoryError as error:
        raise OutOfMemoryError(f"{path}: {error}") from error
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error}); check its permissions.") from error
    return known.reader
