"""Warnings of what a command is given: points and images of the wrong space, landmarks read the wrong way."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import warpfactor as wf
from warpfactor.cli.options import Source

if TYPE_CHECKING:
    from warpfactor.geometry.grid import Grid, Points
    from warpfactor.geometry.transform import Transform

MARGIN_VOX = 1.0  # a point on the border is inside
CLEARLY = 0.5  # share of the error at which another reading of landmarks is the right one


def warn_of_points_outside(path: Path, points: Points, grid: Grid | None, space: str, *, ras: bool) -> bool:
    """A warning if points lie outside the image they are to belong to; whether it was given."""
    if grid is None:
        return False
    index = grid.world_to_index(points)
    outside = (index < -MARGIN_VOX) | (index > np.asarray(grid.shape) - 1 + MARGIN_VOX)
    count = int(outside.any(axis=1).sum())
    if count:
        frame = "LPS (then leave out --ras)" if ras else "RAS (then add --ras)"
        _warn(
            f"{path}: {count} of {len(points)} points lie outside the {space} image; "
            f"check whether they are {frame}, voxel indices, or of another image."
        )
    return count > 0


def warn_of_landmarks_outside(
    path: Path, points: wf.io.Landmarks, fixed: Grid | None, moving: Grid | None, *, ras: bool
) -> bool:
    """A warning for each side that lies outside its image; whether one was given."""
    sides = ((points.fixed, fixed, "fixed"), (points.moving, moving, "moving"))
    found = [warn_of_points_outside(path, side, grid, space, ras=ras) for side, grid, space in sides]
    return any(found)


def warn_of_misread_landmarks(path: Path, points: wf.io.Landmarks, transform: Transform, *, ras: bool) -> None:
    """A warning if landmarks fit far better with their sides swapped, or as RAS instead of LPS."""
    from warpfactor.io.points import RAS_SIGN

    frame = "LPS (without --ras)" if ras else "RAS (with --ras)"
    flipped = wf.io.Landmarks(points.fixed * RAS_SIGN, points.moving * RAS_SIGN)
    swapped = wf.io.Landmarks(points.moving, points.fixed)
    readings = {"with fixed and moving swapped": swapped, f"as {frame}": flipped}
    errors = {how: _error_mm(other, transform) for how, other in readings.items()}
    error, how = _error_mm(points, transform), min(errors, key=lambda key: errors[key])
    if errors[how] < CLEARLY * error:
        _warn(f"{path}: the landmarks are {error:.2f} mm apart, but {errors[how]:.2f} mm {how}; check the file.")


def warn_of_wrong_space(path: Path, grid: Grid, source: Source, to: str) -> None:
    """A warning if an image that is to be carried to the space `to` seems to lie there already, or nowhere near."""
    grids = {"fixed": source.fixed_grid, "moving": source.moving_grid}
    other = "moving" if to == "fixed" else "fixed"
    own, goal = grids[other], grids.get(to)
    if not source.saved or own is None or goal is None or grid.same_space(own):
        return
    if grid.same_space(goal):
        _warn(
            f"{path}: has the grid of the {to} image, not that of the {other} image, and is carried to {to} space; "
            f"check whether --to {other} is meant."
        )
    elif lie_apart(grid, own):
        _warn(f"{path}: lies outside the {other} image of this result; check whether it is of another image.")


def lie_apart(grid: Grid, other: Grid) -> bool:
    """Whether two grids have no place in common, by the corners of the first."""
    corners = list(itertools.product(*[(-0.5, n - 0.5) for n in grid.shape]))
    index = other.world_to_index(grid.index_to_world(corners))
    return bool(((index.max(axis=0) < -0.5) | (index.min(axis=0) > np.asarray(other.shape) - 0.5)).any())


def _error_mm(points: wf.io.Landmarks, transform: Transform) -> float:
    return wf.quality.target_registration_error(transform.map_points(points.fixed), points.moving).mean


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)
