"""Points, landmark pairs and keypoints in CSV files.

Coordinates are LPS millimetres, as in ITK and ANTs; RAS on request. Keypoints, as the Learn2Reg challenge provides
them, are voxel indices in a file without column names.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from warpfactor.errors import FileError
from warpfactor.geometry.grid import Grid, Points
from warpfactor.io.atomic import atomic_path

_AXES = ("x", "y", "z")
RAS_SIGN = np.array([-1.0, -1.0, 1.0])


@dataclass(frozen=True)
class PointTable:
    """Points, and the other columns of their file.

    Attributes:
        points: (N, 3) LPS mm; z is 0 if the file has no such column.
        header: column names, in the order of the file.
        rows: the cells of every line, as text.
    """

    points: Points
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def planar(self) -> bool:
        """Whether the file has no z column."""
        return _columns(self.header, _AXES)[2] is None


class Landmarks(NamedTuple):
    """Corresponding points, (N, 3) each, LPS mm."""

    fixed: Points
    moving: Points


def read_points(path: str | Path, *, ras: bool = False) -> PointTable:
    """Read points from columns x, y and z (2-D: x and y); other columns, such as t and label in ANTs, are kept.

    Args:
        path: of a CSV file whose first line names the columns.
        ras: the coordinates in the file are RAS (nibabel, FSL, FreeSurfer) instead of LPS.
    """
    header, rows = _read_rows(Path(path))
    places = _columns(header, _AXES)
    if places[0] is None or places[1] is None:
        raise FileError(f"{path}: needs columns named x, y and z, it has {', '.join(header)}; rename them.")
    points = _numbers(Path(path), rows, places)
    return PointTable(points * RAS_SIGN if ras else points, header, rows)


def write_points(
    table: PointTable, points: Points, path: str | Path, *, ras: bool = False, force: bool = False
) -> None:
    """Write `points` in place of those of `table`, without rounding; the other columns are copied.

    Args:
        table: what was read, or the result of `make_table`.
        points: (N, 3) LPS mm.
        path: of the CSV file.
        ras: write RAS coordinates instead of LPS.
        force: replace an existing file.
    """
    values = points * RAS_SIGN if ras else points
    places = _columns(table.header, _AXES)
    with (
        atomic_path(path, force=force) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as stream,
    ):
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(table.header)
        for row, point in zip(table.rows, values.tolist(), strict=True):
            cells = list(row)
            for place, value in zip(places, point, strict=True):
                if place is not None:
                    cells[place] = repr(value + 0.0)
            writer.writerow(cells)


def make_table(points: Points) -> PointTable:
    """Make a table with the columns x, y and z only, for `write_points`."""
    return PointTable(points, _AXES, (("", "", ""),) * len(points))


def read_landmarks(path: str | Path, *, ras: bool = False) -> Landmarks:
    """Read pairs of points from columns fix_x_lps ... mov_z_lps or fixed_x ... moving_z of one CSV file.

    Args:
        path: of a CSV file whose first line names the columns.
        ras: the coordinates in the file are RAS (nibabel, FSL, FreeSurfer) instead of LPS.
    """
    header, rows = _read_rows(Path(path))
    sides = []
    for names in (("fix_{}_lps", "fixed_{}"), ("mov_{}_lps", "moving_{}")):
        for name in names:
            places = _columns(header, tuple(name.format(axis) for axis in _AXES))
            if places[0] is None or places[1] is None:
                continue
            if ras and name.endswith("_lps"):
                raise FileError(f"{path}: its columns are named LPS; leave out --ras (ras=True), or rename them.")
            points = _numbers(Path(path), rows, places)
            sides.append(points * RAS_SIGN if ras else points)
            break
    if len(sides) != 2:
        raise FileError(
            f"{path}: needs columns fix_x_lps ... mov_z_lps or fixed_x ... moving_z, it has {', '.join(header)}; "
            "rename them."
        )
    return Landmarks(*sides)


def read_landmark_files(fixed_file: Path, moving_file: Path | None, fixed: Grid, moving: Grid) -> Landmarks:
    """Corresponding landmarks in LPS millimetres, from a file for both images or from one file per image.

    A file for both has columns fix_x_lps ... mov_z_lps or fixed_x ... moving_z. With one file per image, each is either
    a table with columns x, y, z in LPS millimetres, or a list of voxel indices i,j,k without column names, as in
    Learn2Reg.

    Args:
        fixed_file, moving_file: the files; without the second the first is for both images.
        fixed, moving: grids of the images, to which voxel indices refer.
    """
    if moving_file is None:
        return read_landmarks(fixed_file)
    sides = Landmarks(_points_on(fixed_file, fixed), _points_on(moving_file, moving))
    if len(sides.fixed) != len(sides.moving):
        raise FileError(
            f"{fixed_file} has {len(sides.fixed)} points, but {moving_file} has {len(sides.moving)}; landmarks must "
            "correspond one to one."
        )
    return sides


def _points_on(path: Path, grid: Grid) -> Points:
    return read_keypoints(path, grid) if is_keypoint_file(path) else read_points(path).points


def is_keypoint_file(path: str | Path) -> bool:
    """Return whether the first line of a file is three numbers: keypoint files have no line of column names."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as stream:
            cells = next(csv.reader(stream), [])
        return len([float(cell) for cell in cells]) == len(_AXES)
    except (OSError, UnicodeDecodeError, ValueError, csv.Error):
        return False


def read_keypoints(path: str | Path, grid: Grid) -> Points:
    """Read keypoints from lines i,j,k and return them as (N, 3) LPS mm.

    Args:
        path: of a CSV file without column names; i, j and k are continuous indices, from 0, of the array that nibabel
            returns (x first).
        grid: of the image in which the keypoints were found.
    """
    if not Path(path).is_file():
        raise FileError(f"{path}: there is no such file.")
    try:
        indices = np.loadtxt(path, delimiter=",", ndmin=2, dtype=np.float64, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise FileError(f"{path}: is not a list of keypoints i,j,k ({error}); correct it.") from error
    if indices.shape[1] != len(_AXES) or not len(indices) or not np.all(np.isfinite(indices)):
        raise FileError(f"{path}: write at least one keypoint, each as three finite numbers on a line.")
    return grid.index_to_world(indices[:, ::-1])


def _read_rows(path: Path) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    if not path.is_file():
        raise FileError(f"{path}: there is no such file.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = [tuple(cell.strip() for cell in line) for line in csv.reader(stream) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: is not a CSV text file ({error}); save it as CSV in UTF-8.") from error
    if len(lines) < 2:
        raise FileError(f"{path}: holds no points; write a line of column names and then one line per point.")
    header, *rows = lines
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise FileError(
                f"{path}: line {number} has {len(row)} columns, the first line {len(header)}; make them equal."
            )
    return header, tuple(rows)


def _columns(header: tuple[str, ...], names: tuple[str, ...]) -> list[int | None]:
    lower = [name.lower() for name in header]
    return [lower.index(name) if name in lower else None for name in names]


def _numbers(path: Path, rows: tuple[tuple[str, ...], ...], places: list[int | None]) -> Points:
    points: Points = np.zeros((len(rows), 3))
    for number, row in enumerate(rows):
        for axis, place in enumerate(places):
            if place is None:
                continue
            try:
                points[number, axis] = float(row[place])
            except ValueError:
                raise FileError(
                    f"{path}: line {number + 2} has {row[place]!r} where a number is expected; correct it."
                ) from None
    if not np.all(np.isfinite(points)):
        raise FileError(f"{path}: has coordinates that are not finite; remove those points.")
    return points
