"""Keypoints in voxel coordinates, as Learn2Reg gives them: a CSV without column names, one point a line."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from warpfactor.errors import FileError
from warpfactor.geometry.grid import Grid, Points

_AXES = 3


def is_keypoint_file(path: str | Path) -> bool:
    """Whether the first line of a file is three numbers: keypoints have no line of column names."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as stream:
            cells = next(csv.reader(stream), [])
        return len([float(cell) for cell in cells]) == _AXES
    except (OSError, UnicodeDecodeError, ValueError, csv.Error):
        return False


def read_keypoints(path: str | Path, grid: Grid) -> Points:
    """(N, 3) LPS mm, from lines i,j,k: continuous indices, from 0, of the array as nibabel gives it (x first).

    Args:
        grid: of the image the keypoints were found in.
    """
    if not Path(path).is_file():
        raise FileError(f"{path}: there is no such file.")
    try:
        indices = np.loadtxt(path, delimiter=",", ndmin=2, dtype=np.float64, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise FileError(f"{path}: is not a list of keypoints i,j,k ({error}).") from error
    if indices.shape[1] != _AXES or not len(indices) or not np.all(np.isfinite(indices)):
        raise FileError(f"{path}: keypoints are three finite numbers a line, and at least one line.")
    return grid.index_to_world(indices[:, ::-1])
