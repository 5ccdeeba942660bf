"""Where a linear registration may start: the world as it is, centres, principal axes, turns and shifts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from warpfactor.geometry.grid import Grid, Matrix, apply_matrix
from warpfactor.scene.object import shown
from warpfactor.scene.scene import Scene, Side
from warpfactor.stages.linear.motion import Vector, about, centre_of, plane_axes

STARTS = ("identity", "centre", "mass", "axes", "turns", "shifts", "size")
TURN = math.radians(30)
SHIFT = 0.15  # of the fixed image's extent along each axis
SIZED = 1.1  # factor between the sizes of two objects from which it is tried
POINTS = 4000  # of the foreground, enough for a share to a hundredth


@dataclass(frozen=True)
class Start:
    """A transform to begin with: its name for people and its 4x4 matrix, fixed to moving, LPS mm."""

    name: str
    matrix: Matrix


@dataclass(frozen=True)
class Object:
    """What an image shows, without its background.

    Attributes:
        points: (N, 3) world points spread over it.
        centre: (3,) its centre of mass.
        axes: (3, 3) its principal axes as columns, longest first, right-handed.
        size_mm: root of the mean squared distance from the centre.
        grid: of the image.
    """

    points: NDArray[np.float64]
    centre: Vector
    axes: Matrix
    size_mm: float
    grid: Grid

    @classmethod
    def of(cls, side: Side) -> Object:
        """The object in an image: what differs from the border by more than Otsu's threshold.

        Only where it is counts, not how bright: negative intensities and other contrasts do no harm.
        """
        grid = side.grid
        index = torch.nonzero(shown(side)).cpu().numpy()
        points = grid.index_to_world(index)
        centre = points.mean(axis=0)
        spread = (points - centre).T @ (points - centre) / len(points)
        size_mm = math.sqrt(np.trace(spread))
        return cls(points[:: 1 + len(points) // POINTS], centre, _principal_axes(spread, grid), size_mm, grid)

    def share_inside(self, grid: Grid, matrix: Matrix) -> float:
        """Share of the object that a transform takes into a grid."""
        through = np.linalg.solve(grid.matrix, matrix)
        index = through[:3, :3] @ self.points.T + through[:3, 3:]
        size = np.asarray(grid.shape)[:, None]
        inside = ((index >= -0.5) & (index <= size - 0.5)) | (size == 1)
        return float(inside.all(axis=0).mean())


@dataclass(frozen=True)
class Overlap:
    """How much of the smaller object a transform keeps inside the other image."""

    fixed: Object
    moving: Object

    @classmethod
    def of(cls, scene: Scene) -> Overlap:
        return cls(Object.of(scene.fixed), Object.of(scene.moving))

    def share(self, matrix: Matrix) -> float:
        """Between 0 and 1; a crop of the other image has 1 although most of the other one is outside it."""
        share = self.fixed.share_inside(self.moving.grid, matrix)
        if share == 1:
            return share
        back = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        return max(share, self.moving.share_inside(self.fixed.grid, back))


def plain_starts(overlap: Overlap, names: Iterable[str]) -> list[Start]:
    """World, centres of frame, centres of mass: no turn, only a shift."""
    fixed, moving = overlap.fixed, overlap.moving
    targets = {
        "identity": np.zeros(3),
        "centre": centre_of(moving.grid) - centre_of(fixed.grid),
        "mass": moving.centre - fixed.centre,
    }
    return [Start(n, about(np.zeros(3), np.eye(3), t)) for n, t in targets.items() if n in names]


def axes_starts(overlap: Overlap) -> list[Start]:
    """Centre on centre of mass and principal axes on principal axes, each way round that is a rotation."""
    fixed, moving = overlap.fixed, overlap.moving
    signs = _ROTATION_SIGNS
    if fixed.grid.shape[0] == 1:  # normal on normal: neither slice is seen from behind, however its pixels are ordered
        side = 1 if fixed.axes[:, 2] @ moving.axes[:, 2] >= 0 else -1
        signs = [(1, side, side), (-1, -side, side)]
    turns = [moving.axes @ np.diag(np.array(s, dtype=np.float64)) @ fixed.axes.T for s in signs]
    return [Start(f"axes {k}", about(fixed.centre, turn, moving.centre)) for k, turn in enumerate(turns, 1)]


_ROTATION_SIGNS = [(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)]


def sized_starts(overlap: Overlap) -> list[Start]:
    """Slices that show objects of different size: centre on centre, as large as each other; straight and by axes.

    Pixels often have no size, or a wrong one. Volumes have it, and find their scale from any start.
    """
    fixed, moving = overlap.fixed, overlap.moving
    if fixed.grid.shape[0] > 1 or any(each.size_mm < max(each.grid.spacing_mm[1:]) for each in (fixed, moving)):
        return []
    ratio = moving.size_mm / fixed.size_mm
    if abs(math.log(ratio)) < math.log(SIZED):
        return []
    frame = plane_axes(fixed.grid)
    scale = frame @ np.diag([ratio, ratio, 1.0]) @ frame.T
    plain = Start("size", about(fixed.centre, scale, moving.centre))
    turned = [
        Start(f"size, {s.name}", about(fixed.centre, s.matrix[:3, :3] @ scale, moving.centre))
        for s in axes_starts(overlap)
    ]
    return [plain, *turned]


def turned_starts(overlap: Overlap, start: Start) -> list[Start]:
    """The start turned by ± TURN about each axis through the object's centre."""
    centre, axes = overlap.fixed.centre, plane_axes(overlap.fixed.grid)
    target = apply_matrix(start.matrix, centre)[0]
    found = []
    for k in (2,) if overlap.fixed.grid.shape[0] == 1 else range(3):
        for angle in (-TURN, TURN):
            turn = rotation(axes[:, k], angle) @ start.matrix[:3, :3]
            name = f"{start.name}, turned {math.degrees(angle):+.0f} degrees about axis {k + 1}"
            found.append(Start(name, about(centre, turn, target)))
    return found


def shifted_starts(overlap: Overlap, start: Start) -> list[Start]:
    """The start shifted by ± SHIFT of the fixed image's extent along each of its axes."""
    grid, found = overlap.fixed.grid, []
    for axis, n in enumerate(grid.shape):
        for share in (-SHIFT, SHIFT) if n > 1 else ():
            matrix = start.matrix.copy()
            matrix[:3, 3] += matrix[:3, :3] @ (share * n * grid.matrix[:3, axis])
            found.append(Start(f"{start.name}, shifted {share:+.0%} along array axis {axis}", matrix))
    return found


def _principal_axes(spread: Matrix, grid: Grid) -> Matrix:
    """Right-handed eigenvectors, longest first; in a slice two in its plane, then its normal."""
    frame = plane_axes(grid)
    free = 2 if grid.shape[0] == 1 else 3
    _, vectors = np.linalg.eigh((frame.T @ spread @ frame)[:free, :free])
    axes = np.eye(3)
    axes[:free, :free] = vectors[:, ::-1]
    axes[:, free - 1] *= np.sign(np.linalg.det(axes))
    return frame @ axes


def rotation(axis: Vector, angle: float) -> Matrix:
    """(3, 3) rotation about a unit axis (Rodrigues)."""
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    result: Matrix = np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross
    return result
