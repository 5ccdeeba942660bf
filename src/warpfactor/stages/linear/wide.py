"""Starts all round: turns by any angle, and slices of other sizes, about the centre of what the image shows."""

from __future__ import annotations

import math

import numpy as np

from warpfactor.geometry.grid import Matrix
from warpfactor.stages.linear.motion import Vector, about, centre_of, plane_axes
from warpfactor.stages.linear.starts import SHIFT, SIZED, Overlap, Start, rotation

TURNS_IN_PLANE = 24  # every 15 degrees
TURNS_IN_SPACE = 160  # none is farther than about 30 degrees from the nearest
SIZES = (1.0, 0.7, 1.4)  # tried in a plane, where pixels often have no size
ASTRAY = math.radians(40)
BESIDE = 0.75  # root mean square radii: from the centre of half a disc to that of the whole
FIRST, SECOND = math.sqrt(2), 1.533751168755204288118041  # of the spirals by which rotations are spread evenly


def wide_starts(overlap: Overlap, *, sized: bool) -> list[list[Start]]:
    """Starts turned all round, in groups that each have a size and a place; the first group is of equal size.

    The centre of one object, or of its frame, lies on that of the other; in a plane also beside it, as it must if half
    of the object is missing.
    """
    fixed, moving = overlap.fixed, overlap.moving
    frame, flat = plane_axes(fixed.grid), fixed.grid.shape[0] == 1
    groups = []
    for size in _sizes(overlap) if sized else (1.0,):
        scale = frame @ np.diag([size, size, 1.0 if flat else size]) @ frame.T
        words = f", size {size:.2f}" if size != 1 else ""
        groups.append(_turned(overlap, "mass", (fixed.centre, moving.centre), scale, words))
        if flat:
            frames = centre_of(fixed.grid), centre_of(moving.grid)
            groups[-1] += _turned(overlap, "centre", frames, scale, words)
    return [*groups, *_beside(overlap)] if flat else groups


def _beside(overlap: Overlap) -> list[list[Start]]:
    """Turned all round with the centre of one object beside that of the smaller one, where it is if half is missing."""
    fixed, moving = overlap.fixed, overlap.moving
    smaller, found = (moving if moving.size_mm <= fixed.size_mm else fixed), list[list[Start]]()
    for axis in (1, 2):
        along = smaller.grid.matrix[:3, axis] / smaller.grid.spacing_mm[axis]
        for sign, word in ((-1, "before"), (1, "behind")):
            aside: Vector = sign * BESIDE * smaller.size_mm * along
            points = (
                (fixed.centre, moving.centre + aside) if smaller is moving else (fixed.centre + aside, moving.centre)
            )
            found.append(_turned(overlap, f"{word} along array axis {axis}", points, np.eye(3), ""))
    return found


def _turned(overlap: Overlap, place: str, points: tuple[Vector, Vector], scale: Matrix, words: str) -> list[Start]:
    """A start that takes the one point to the other, turned all round."""
    here, there = points
    return [Start(f"{place}, turned {name}{words}", about(here, turn @ scale, there)) for name, turn in _turns(overlap)]


def wrong_transforms(overlap: Overlap, count: int) -> list[Matrix]:
    """Turns all round that are not the true one, save by accident; evenly chosen."""
    starts = wide_starts(overlap, sized=False)[0]
    return [start.matrix for start in starts[:: max(1, len(starts) // count)]]


def led_astray(overlap: Overlap, matrix: Matrix, count: int) -> list[Matrix]:
    """A transform turned by at least ASTRAY about the fixed object's centre and shifted, in about so many ways."""
    grid, here = overlap.fixed.grid, overlap.fixed.centre
    turns = [turn for _, turn in _turns(overlap) if (np.trace(turn) - 1) / 2 < math.cos(ASTRAY)]
    axes = [axis for axis, n in enumerate(grid.shape) if n > 1]
    found = []
    for k, turn in enumerate(turns[:: max(1, len(turns) // count)]):
        axis, sign = axes[k % len(axes)], 1 - 2 * (k // len(axes) % 2)
        aside = sign * SHIFT * grid.shape[axis] * grid.matrix[:3, axis]
        found.append(np.asarray(matrix @ about(here, turn, here + aside)))
    return found


def _sizes(overlap: Overlap) -> tuple[float, ...]:
    """Sizes of the moving object, in units of the fixed one's, that are worth trying."""
    fixed, moving = overlap.fixed, overlap.moving
    ratio = moving.size_mm / max(fixed.size_mm, 1e-12)
    known = (ratio,) if 1 / 3 < ratio < 3 and abs(math.log(ratio)) > math.log(SIZED) else ()
    return (*SIZES, *known) if fixed.grid.shape[0] == 1 else (1.0, *known)


def _turns(overlap: Overlap) -> list[tuple[str, Matrix]]:
    """Rotations spread evenly over all there are, with names; in the plane of a slice, or in space."""
    grid = overlap.fixed.grid
    if grid.shape[0] == 1:
        normal = plane_axes(grid)[:, 2]
        step = 360 / TURNS_IN_PLANE
        return [(f"{k * step:.0f} degrees", rotation(normal, math.radians(k * step))) for k in range(TURNS_IN_PLANE)]
    return [("0 degrees", np.eye(3)), *(_spread_turn(k) for k in range(TURNS_IN_SPACE))]


def _spread_turn(k: int) -> tuple[str, Matrix]:
    """The k-th of TURNS_IN_SPACE rotations: super-Fibonacci spirals of unit quaternions (Alexa 2022)."""
    s = k + 0.5
    t, d = s / TURNS_IN_SPACE, 2 * math.pi * s
    r, q = math.sqrt(t), math.sqrt(1 - t)
    a, b = d / FIRST, d / SECOND
    w, axis = q * math.cos(b), np.array([r * math.sin(a), r * math.cos(a), q * math.sin(b)])
    angle = 2 * math.atan2(float(np.linalg.norm(axis)), w)
    unit: Vector = axis / max(float(np.linalg.norm(axis)), 1e-12)
    return f"{math.degrees(angle):.0f} degrees about ({unit[0]:.1f}, {unit[1]:.1f}, {unit[2]:.1f})", rotation(
        unit, angle
    )
