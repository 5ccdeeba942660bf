"""Files that nothing here can check: another process reads them first, which may end badly without harm."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from warpfactor.errors import FileError

_LONGEST_S = 900
# What the other process does; it knows nothing but SimpleITK. An error that ITK reports is left to the real reading.
_IMAGE = """
import sys, SimpleITK as sitk
name, reader = sys.argv[1], sitk.ImageSeriesReader
if sys.argv[2] == "folder":
    found = reader.GetGDCMSeriesIDs(name)
    name = reader.GetGDCMSeriesFileNames(name, found[0]) if len(found) == 1 else None
if name:
    sitk.ReadImage(name)
"""
_TRANSFORM = "import sys, SimpleITK as sitk; sitk.ReadTransform(sys.argv[1])"


def try_image(path: Path) -> None:
    """Raise a FileError if reading an image file or a DICOM folder ends the process that does it."""
    if path.exists():
        _try(_IMAGE, str(path.absolute()), "folder" if path.is_dir() else "file", _stamp(path))


def try_transform(path: Path) -> None:
    """Raise a FileError if reading a transform file ends the process that does it."""
    _try(_TRANSFORM, str(path.absolute()), "transform", _stamp(path))


def _stamp(path: Path) -> tuple[int, int]:
    """What changes when a file, or a file of a folder, does."""
    found = [each.stat() for each in (path, *(path.iterdir() if path.is_dir() else ()))]
    return max(each.st_mtime_ns for each in found), sum(each.st_size for each in found)


@functools.lru_cache(maxsize=256)
def _try(script: str, path: str, kind: str, stamp: tuple[int, int]) -> None:
    """Read a file in another process; once for each state of it."""
    del stamp
    if not Path(sys.executable or "").name.lower().startswith(("python", "pypy")):
        return  # Python inside another program cannot be started by itself
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, path, kind],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=_LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FileError(f"{path}: could not be read within {_LONGEST_S} s; copy it again from its source.") from error
    except OSError:  # no process can be started; the real reading takes the risk
        return
    if done.returncode not in (0, 1):
        raise FileError(
            f"{path}: is damaged, and the process that read it crashed (code {done.returncode}); copy it again from "
            "its source."
        )
