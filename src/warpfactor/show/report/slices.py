"""The slices that a report shows: a few per plane, as grids whose voxels are square pixels.

A plane is a grid (slice, row, column) in the world: an image resampled onto it is ready to be shown. The left of the
page is the right of the patient (radiological convention), up is superior, in axial slices anterior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.planes import nearest_axes

SLICES = 25  # at most, per plane
PIXELS = 800_000  # of all slices of a plane together, so that seven stacks of three planes stay below 5 MB
FLAT_PIXELS = 900_000  # of an image that has one slice only
MARGIN = 0.06  # of the object's size around it
SAME_SIZE = 1e-4  # relative tolerance for pixels and voxels of the same size
TILE = 8  # pixels: a JPEG block; slices side by side on a sheet must not share one


class _View(NamedTuple):
    """A plane by the world axes (0 x left, 1 y posterior, 2 z superior) of its slices, rows and columns."""

    name: str
    normal: int
    rows: int
    columns: int
    down: int  # +1 if rows go along their world axis from top to bottom
    letters: tuple[str, str, str, str]  # at the left, right, top and bottom


_VIEWS = (
    _View("Axial", 2, 1, 0, 1, ("R", "L", "A", "P")),
    _View("Coronal", 1, 2, 0, -1, ("R", "L", "S", "I")),
    _View("Sagittal", 0, 2, 1, -1, ("A", "P", "S", "I")),
)


@dataclass(frozen=True)
class SlicePlane:
    """Slices of one orientation.

    Attributes:
        name: "Axial", "Coronal", "Sagittal", or "Slice" if the image has only one.
        grid: (slice, row, column) in the world; pixels are square.
        positions_mm: world coordinate of each slice along the axis nearest to its normal.
        letters: directions at the left, right, top and bottom; empty if they are not known.
    """

    name: str
    grid: Grid
    positions_mm: tuple[float, ...]
    letters: tuple[str, ...]

    @property
    def pixel_mm(self) -> float:
        """Size of a pixel."""
        return self.grid.spacing_mm[2]


def choose_planes(grid: Grid, box: NDArray[np.int64]) -> list[SlicePlane]:
    """The planes of an image: three of a volume, one of a slice.

    Args:
        grid: of the fixed image.
        box: (2, 3) first and last index (z, y, x) of its object.
    """
    axes = nearest_axes(grid)
    signs = tuple(1 if grid.matrix[world, axis] >= 0 else -1 for world, axis in enumerate(axes))
    if 1 not in grid.shape:
        return [_plane(grid, box, view, axes, signs) for view in _VIEWS]
    thin = grid.shape.index(1)
    view = next(view for view in _VIEWS if axes[view.normal] == thin)
    if grid.ndim == 2:
        view = view._replace(letters=("", "", "", ""))
    return [_plane(grid, box, view._replace(name="Slice"), axes, signs)]


class _Run(NamedTuple):
    """Samples along one array axis: first index, step (negative to run backwards) and number."""

    first: float
    step: float
    number: int


def _plane(
    grid: Grid, box: NDArray[np.int64], view: _View, axes: tuple[int, ...], signs: tuple[int, ...]
) -> SlicePlane:
    normal, row, column = (axes[world] for world in (view.normal, view.rows, view.columns))
    slices = _slices(int(box[0, normal]), int(box[1, normal]), signs[view.normal])
    spacing = grid.spacing_mm
    spans = [_span(grid.shape[axis], box[:, axis]) for axis in (row, column)]
    lengths = [(high - low + 1) * spacing[axis] for (low, high), axis in zip(spans, (row, column), strict=True)]
    room = FLAT_PIXELS if slices.number == 1 and 1 in grid.shape else PIXELS
    pixel = max(min(spacing[row], spacing[column]), math.sqrt(math.prod(lengths) * slices.number / room))
    rows = _pixels(spans[0], spacing[row], pixel, view.down * signs[view.rows])
    columns = _pixels(spans[1], spacing[column], pixel, signs[view.columns])
    matrix = np.eye(4)
    matrix[:3, :3] = 0
    for number, (axis, run) in enumerate(((normal, slices), (row, rows), (column, columns))):
        matrix[axis, number] = run.step
        matrix[axis, 3] = run.first
    made = Grid((slices.number, rows.number, columns.number), _in_world(grid, matrix), grid.ndim)
    middle = [(k, (rows.number - 1) / 2, (columns.number - 1) / 2) for k in range(slices.number)]
    positions = made.index_to_world(middle)[:, view.normal]
    return SlicePlane(view.name, made, tuple(positions.tolist()), tuple(letter for letter in view.letters if letter))


def _in_world(grid: Grid, matrix: Matrix) -> Matrix:
    whole: Matrix = grid.matrix @ matrix
    return whole


def _slices(low: int, high: int, sign: int) -> _Run:
    """Every n-th slice of the object, centred in it."""
    step = max(1, math.ceil((high - low + 1) / SLICES))
    count = (high - low) // step + 1
    first = low + ((high - low) - (count - 1) * step) // 2
    return _Run(first if sign > 0 else first + (count - 1) * step, sign * step, count)


def _span(size: int, box: NDArray[np.int64]) -> tuple[float, float]:
    """The extent of the object with a margin, inside the image."""
    margin = MARGIN * (box[1] - box[0] + 1)
    return max(0.0, box[0] - margin), min(size - 1.0, box[1] + margin)


def _pixels(span: tuple[float, float], spacing: float, pixel: float, sign: int) -> _Run:
    """The pixels over a span; the voxels of the image if these have the same size."""
    low, high = span
    own = math.isclose(pixel, spacing, rel_tol=SAME_SIZE)
    step = 1.0 if own else pixel / spacing
    count = max(1, round((high - low + 1) / step))
    first = (low + high) / 2 - (count - 1) / 2 * step
    first = round(first) if own else first
    return _Run(first if sign > 0 else first + (count - 1) * step, sign * step, count)
