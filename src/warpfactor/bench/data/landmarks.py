"""Landmarks of a case, in any of the supported file formats."""

from __future__ import annotations

from pathlib import Path

from warpfactor.bench.data.dataset import BenchCase
from warpfactor.errors import FileError
from warpfactor.geometry.grid import Grid, Points
from warpfactor.io import Landmarks, read_landmarks, read_points
from warpfactor.io.points import is_keypoint_file, read_keypoints


def read_pair(case: BenchCase, fixed: Grid, moving: Grid) -> Landmarks | None:
    """Read the corresponding landmarks of a case in LPS millimetres; None if it has none.

    A file for both images has columns fix_x_lps ... mov_z_lps or fixed_x ... moving_z. With one file per image, each
    is either a table with columns x, y, z in LPS millimetres, or a list of voxel indices i,j,k without column names,
    as in Learn2Reg.

    Args:
        case: The case.
        fixed: Grid of the fixed image, to which voxel indices refer.
        moving: Grid of the moving image.
    """
    if case.fixed_landmarks is None:
        return None
    if case.moving_landmarks is None:
        return read_landmarks(case.fixed_landmarks)
    sides = Landmarks(_points(case.fixed_landmarks, fixed), _points(case.moving_landmarks, moving))
    if len(sides.fixed) != len(sides.moving):
        raise FileError(
            f"{case.fixed_landmarks} has {len(sides.fixed)} points, but {case.moving_landmarks} has "
            f"{len(sides.moving)}; landmarks must correspond one to one."
        )
    return sides


def landmark_problem(case: BenchCase) -> str:
    """Description of a problem with the landmark files of a case; empty if there is none. Images are not read."""
    anywhere = Grid.from_spacing((2, 2, 2))
    try:
        read_pair(case, anywhere, anywhere)
    except FileError as error:
        return f"case {case.name!r}: {str(error).rstrip('.')}"
    return ""


def _points(path: Path, grid: Grid) -> Points:
    return read_keypoints(path, grid) if is_keypoint_file(path) else read_points(path).points
