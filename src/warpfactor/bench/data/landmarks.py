"""Landmarks of a case, in whichever of the known forms its files are."""

from __future__ import annotations

from pathlib import Path

from warpfactor.bench.data.dataset import Case
from warpfactor.errors import FileError
from warpfactor.geometry.grid import Grid, Points
from warpfactor.io import Landmarks, read_landmarks, read_points
from warpfactor.io.points import is_keypoint_file, read_keypoints


def read_pair(case: Case, fixed: Grid, moving: Grid) -> Landmarks | None:
    """Corresponding points of a case, LPS mm; None if it has none.

    One file for both sides has columns fix_x_lps ... mov_z_lps or fixed_x ... moving_z. With a file per side each is
    either a table with columns x, y, z in LPS mm, or Learn2Reg's keypoints: lines i,j,k of voxel indices, no header.

    Args:
        fixed, moving: grids of the images, in which voxel indices count.
    """
    if case.fixed_landmarks is None:
        return None
    if case.moving_landmarks is None:
        return read_landmarks(case.fixed_landmarks)
    sides = Landmarks(_points(case.fixed_landmarks, fixed), _points(case.moving_landmarks, moving))
    if len(sides.fixed) != len(sides.moving):
        raise FileError(
            f"{case.fixed_landmarks} has {len(sides.fixed)} points and {case.moving_landmarks} "
            f"{len(sides.moving)}; they must correspond one to one."
        )
    return sides


def landmark_problem(case: Case) -> str:
    """What is wrong with the landmark files of a case; empty if nothing is. Images are not read."""
    anywhere = Grid.from_spacing((2, 2, 2))
    try:
        read_pair(case, anywhere, anywhere)
    except FileError as error:
        return f"case {case.name!r}: {str(error).rstrip('.')}"
    return ""


def _points(path: Path, grid: Grid) -> Points:
    return read_keypoints(path, grid) if is_keypoint_file(path) else read_points(path).points
