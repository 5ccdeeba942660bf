"""Half of a linear transform, and the grid half-way between two images.

Everything here treats the two images alike: with the images exchanged and the transform inverted, halves are exchanged
and the grid is the same, to rounding.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np

from warpfactor.geometry.grid import Grid, Matrix, Shape

ITERATIONS = 30  # of the square root, which converges quadratically: about eight are needed
EXACT = 1e-13  # relative change at which it ends
ROUNDING = 0.01  # voxels: an extent that exceeds whole voxels by less is not another voxel


def square_root(matrix: Matrix) -> Matrix | None:
    """The principal square root H of a 4x4 transform, H H = matrix; None if there is none.

    The iteration of Denman and Beavers finds H and its inverse together, so that the root of the inverse is the inverse
    of the root to rounding. A transform that mirrors has no real root: nothing lies half-way to it. Of half a turn, the
    root is a quarter turn, in the direction to which rounding tips it.
    """
    root, inverse = np.array(matrix, dtype=np.float64), np.eye(4)
    for _ in range(ITERATIONS):
        before = root
        try:
            root, inverse = (root + np.linalg.inv(inverse)) / 2, (inverse + np.linalg.inv(root)) / 2
        except np.linalg.LinAlgError:
            return None
        if np.abs(root - before).max() <= EXACT * np.abs(root).max():
            break
    if not np.all(np.isfinite(root)) or not np.allclose(root @ root, matrix, rtol=1e-6, atol=1e-6):
        return None
    root[3] = (0, 0, 0, 1)
    return root


def mean_transform(first: Matrix, second: Matrix) -> Matrix:
    """The transform half-way between two, first (first^-1 second)^(1/2), which treats both alike.

    The mean of the inverses is the inverse of the mean. Nothing lies half-way between two that mirror each other; it is
    the first then.
    """
    step = square_root(np.asarray(np.linalg.solve(first, second), dtype=np.float64))
    result: Matrix = first @ (np.eye(4) if step is None else step)
    result[3] = (0, 0, 0, 1)
    return result


def middle_grid(first: Grid, second: Grid) -> Grid:
    """A grid between two: the mean of their directions, of their boxes and (geometrically) of their spacings.

    Axes are taken in the order and direction that come next to those of the world (z, y, x), so that it does not matter
    how either image is stored. Two grids that are stored in that order and are the same have themselves as middle. The
    box contains all that both grids contain, up to what an oblique one has in its corners.

    Args:
        first, second: grids whose columns need not be at right angles, as linear transforms leave them.
    """
    boxes = _Box(first), _Box(second)
    axes = _nearest_rotation(boxes[0].axes + boxes[1].axes)
    spacing = np.sqrt(boxes[0].spacing * boxes[1].spacing)
    low = (boxes[0].low(axes) + boxes[1].low(axes)) / 2
    high = (boxes[0].high(axes) + boxes[1].high(axes)) / 2
    shape = _whole((high - low) / spacing, flat=first.shape[0] == 1 and second.shape[0] == 1)
    matrix = np.eye(4)
    matrix[:3, :3] = axes * spacing
    matrix[:3, 3] = axes @ ((low + high) / 2) - matrix[:3, :3] @ ((np.array(shape) - 1) / 2)
    if first.ndim == 2 and second.ndim == 2:
        matrix[2], matrix[:2, 0] = (1, 0, 0, 0), 0
    return Grid(shape, matrix, min(first.ndim, second.ndim))


def moved_grid(grid: Grid, matrix: Matrix) -> Grid:
    """The grid as a linear transform carries it, 4x4, LPS mm."""
    return Grid(grid.shape, matrix @ grid.matrix, grid.ndim)


class _Box:
    """A grid with its axes in the world's order and direction.

    Attributes:
        axes: (3, 3), unit vectors of the array axes as columns.
        spacing, lengths: (3,) in mm.
        centre: (3,) world.
    """

    def __init__(self, grid: Grid) -> None:
        columns = grid.matrix[:3, :3]
        units = columns / np.linalg.norm(columns, axis=0)
        order = _order(units, flat=grid.shape[0] == 1)
        signs = np.sign([units[2 - k, axis] or 1.0 for k, axis in enumerate(order)])
        self.axes = _nearest_rotation(units[:, order] * signs)
        self.spacing = np.linalg.norm(columns, axis=0)[list(order)]
        self.lengths = self.spacing * np.array(grid.shape)[list(order)]
        self.centre = grid.index_to_world((np.asarray(grid.shape) - 1) / 2)[0]

    def low(self, axes: Matrix) -> Matrix:
        """(3,) where the box begins along some axes; its own are taken to be along them."""
        result: Matrix = axes.T @ self.centre - self.lengths / 2
        return result

    def high(self, axes: Matrix) -> Matrix:
        """(3,) where it ends."""
        result: Matrix = axes.T @ self.centre + self.lengths / 2
        return result


def _order(units: Matrix, *, flat: bool) -> tuple[int, ...]:
    """The order of array axes that comes next to (z, y, x) of the world; the first axis of a slice stays the first."""
    orders = [order for order in permutations(range(3)) if not flat or order[0] == 0]
    return max(orders, key=lambda order: sum(abs(units[2 - k, axis]) for k, axis in enumerate(order)))


def _nearest_rotation(columns: Matrix) -> Matrix:
    """(3, 3) orthonormal columns nearest to some; those of the world if there is nothing to go by."""
    u, stretches, vt = np.linalg.svd(columns)
    if stretches[-1] < 1e-3:
        return np.eye(3)[:, ::-1].copy()
    result: Matrix = u @ vt
    return result


def _whole(voxels: Matrix, *, flat: bool) -> Shape:
    """Numbers of voxels, rounded up; one along the first axis of slices."""
    z, y, x = (max(1, math.ceil(float(n) - ROUNDING)) for n in voxels)
    return (1 if flat else z), y, x
