"""Whether a folder holds all of a DICOM series: files that cannot be read are left out of it, slices may be missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from warpfactor.errors import InputError

_MARK, _MARK_AT = b"DICM", 128
_UNEVEN = 0.1  # share of the usual distance by which that of two slices may differ


def check_files(folder: Path, series: Sequence[str]) -> None:
    """Raise an InputError if a file that looks like one of the series is not in it."""
    known, suffixes = ({getattr(Path(name), part).lower() for name in series} for part in ("name", "suffix"))
    for path in sorted(folder.iterdir()):
        if path.name.lower() in known or not path.is_file() or path.name.startswith("."):
            continue
        if path.name.upper() != "DICOMDIR" and (_is_marked(path) or (path.suffix and path.suffix.lower() in suffixes)):
            raise InputError(
                f"{path.name} cannot be read as part of the series, it may be damaged; copy it again or remove it "
                "from the folder."
            )


def _is_marked(path: Path) -> bool:
    with path.open("rb") as stream:
        start = stream.read(_MARK_AT + len(_MARK))
    return start[_MARK_AT:] == _MARK or len(start) < _MARK_AT


def check_positions(positions: Sequence[str], orientation: str) -> None:
    """Raise an InputError if slices are not evenly spaced.

    Args:
        positions: of the slices, as DICOM writes them (x, y and z in mm, separated by backslashes).
        orientation: of rows and columns, six such numbers.
    """
    try:
        places = np.array([[float(part) for part in text.split("\\")] for text in positions])
        along = np.array([float(part) for part in orientation.split("\\")]).reshape(2, 3)
        steps = np.abs(np.diff(places.reshape(-1, 3) @ np.cross(*along)))
    except ValueError:  # not said
        return
    if len(steps) < 2:
        return
    usual = float(np.median(steps))
    if not np.all(np.abs(steps - usual) <= _UNEVEN * usual) or usual <= 0:
        raise InputError(
            f"The distance between its slices varies from {steps.min():.4g} to {steps.max():.4g} mm; a slice may be "
            "missing."
        )
