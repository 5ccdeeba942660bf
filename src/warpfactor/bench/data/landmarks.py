"""Landmarks of a case, in any of the supported file formats."""

from __future__ import annotations

from warpfactor.bench.data.dataset import BenchCase
from warpfactor.errors import FileError
from warpfactor.geometry.grid import Grid
from warpfactor.io import Landmarks
from warpfactor.io.points import read_landmark_files


def read_pair(case: BenchCase, fixed: Grid, moving: Grid) -> Landmarks | None:
    """Read the corresponding landmarks of a case in LPS millimetres; None if it has none.

    Args:
        case: The case.
        fixed: Grid of the fixed image, to which voxel indices refer.
        moving: Grid of the moving image.
    """
    if case.fixed_landmarks is None:
        return None
    return read_landmark_files(case.fixed_landmarks, case.moving_landmarks, fixed, moving)


def landmark_problem(case: BenchCase) -> str:
    """Description of a problem with the landmark files of a case; empty if there is none. Images are not read."""
    anywhere = Grid.from_spacing((2, 2, 2))
    try:
        read_pair(case, anywhere, anywhere)
    except FileError as error:
        return f"case {case.name!r}: {str(error).rstrip('.')}"
    return ""
