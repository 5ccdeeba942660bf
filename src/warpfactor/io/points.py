"""Points and landmark pairs in CSV files, in LPS millimetres as ITK and ANTs (RAS on request)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from warpfactor.errors import FileError
from warpfactor.geometry.grid import Points
from warpfactor.io.atomic import atomic_path

_AXES = ("x", "y", "z")
RAS_SIGN = np.array([-1.0, -1.0, 1.0])


@dataclass(frozen=True)
class PointTable:
    """Points and whatever else their file says about them.

    Attributes:
        points: (N, 3) LPS mm; z is 0 if the file has no such column.
        header: column names, in file order.
        rows: the cells of every line as text.
    """

    points: Points
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def planar(self) -> bool:
        """Whether the file has no column z."""
        return _columns(self.header, _AXES)[2] is None


class Landmarks(NamedTuple):
    """Corresponding points, (N, 3) each, LPS mm."""

    fixed: Points
    moving: Points


def read_points(path: str | Path, *, ras: bool = False) -> PointTable:
    """Points from columns x, y and z (2-D: x and y); other columns, as ANTs' t, label and comment, are kept.

    Args:
        ras: the file's coordinates are RAS (nibabel, FSL, FreeSurfer) and not LPS.
    """
    header, rows = _read_rows(Path(path))
    places = _columns(header, _AXES)
    if places[0] is None or places[1] is None:
        raise FileError(f"{path}: needs columns named x, y and z; it has {', '.join(header)}.")
    points = _numbers(Path(path), rows, places)
    return PointTable(points * RAS_SIGN if ras else points, header, rows)


def write_points(
    table: PointTable, points: Points, path: str | Path, *, ras: bool = False, force: bool = False
) -> None:
    """Write `points` in place of those of `table`, to the last digit; every other column stays as it was."""
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
    """A table with columns x, y, z and nothing else, for `write_points`."""
    return PointTable(points, _AXES, (("", "", ""),) * len(points))


def read_landmarks(path: str | Path, *, ras: bool = False) -> Landmarks:
    """Pairs of points, LPS mm, from columns fix_x_lps ... mov_z_lps or fixed_x ... moving_z of one CSV.

    Args:
        ras: the file's coordinates are RAS (nibabel, FSL, FreeSurfer) and not LPS.
    """
    header, rows = _read_rows(Path(path))
    sides = []
    for names in (("fix_{}_lps", "fixed_{}"), ("mov_{}_lps", "moving_{}")):
        for name in names:
            places = _columns(header, tuple(name.format(axis) for axis in _AXES))
            if places[0] is None or places[1] is None:
                continue
            if ras and name.endswith("_lps"):
                raise FileError(f"{path}: its columns are named LPS; leave out ras=True (--ras), or rename them.")
            points = _numbers(Path(path), rows, places)
            sides.append(points * RAS_SIGN if ras else points)
            break
    if len(sides) != 2:
        raise FileError(
            f"{path}: needs columns fix_x_lps ... mov_z_lps or fixed_x ... moving_z, it has {', '.join(header)}."
        )
    return Landmarks(*sides)


def _read_rows(path: Path) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    if not path.is_file():
        raise FileError(f"{path}: there is no such file.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = [tuple(cell.strip() for cell in line) for line in csv.reader(stream) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: is not a CSV text file ({error}).") from error
    if len(lines) < 2:
        raise FileError(f"{path}: holds no points; it needs a line of column names and then one line per point.")
    header, *rows = lines
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise FileError(f"{path}: line {number} has {len(row)} columns, the first line {len(header)}.")
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
                raise FileError(f"{path}: line {number + 2} has {row[place]!r} where a number is meant.") from None
    if not np.all(np.isfinite(points)):
        raise FileError(f"{path}: has coordinates that are not finite.")
    return points
