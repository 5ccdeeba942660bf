"""Parts of an image that are not there: its background value where the other image shows the inside of an object.

Where a third of a brain was cut off and filled with zeros, the edge of the zeros looks like the edge of a brain, and a
warp draws the whole of the other brain into what is left. Such a part is found once the images lie on each other, and
is masked as a user would mask it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels.ops import Ops
from warpfactor.scene.object import foreground, rim
from warpfactor.scene.prepare import masked
from warpfactor.scene.scene import Scene, Side, in_single

SIDES = ("fixed", "moving")
POINTS = 48  # of the lattice along an image's longest axis: every 4 mm of a head
CLOSED = 1  # steps: furrows of an object no wider than two of them belong to it
DEEP = 2  # steps from the surface: shapes differ by less once an affine is found
LEAST = 0.02  # of an object's inside; ordinary pairs have at most 0.004, brains that lost a sixth 0.05 and more
FEWEST = 8  # points: fewer are holes in tissue so thin that hardly a point lies deep in it
GROWN = 4  # steps: over the other object's surface, and what an affine leaves
SMALLER = 0.8  # of the other object's volume
BORDER = 0.15  # of the border at least has the background value, or there is none
BORDER_SAMPLES = 20_000
PLAIN = 0.5  # of an object's points with one value: a label, a silhouette
EVEN = 0.35  # of neighbouring points with one value; label maps have 0.65 and more, images at most 0.1


@dataclass(frozen=True)
class Gap:
    """A part of an image that is missing.

    Attributes:
        side: "fixed" or "moving".
        share: of the inside of the other image's object, how much falls into the part.
        voxels: (D, H, W) bool, on the image's grid.
    """

    side: str
    share: float
    voxels: Tensor


class Lookout:
    """What is seen of a scene's two images; what does not depend on how they lie is found once."""

    def __init__(self, scene: Scene) -> None:
        self._fixed, self._moving = _Seen("fixed", scene.fixed), _Seen("moving", scene.moving)

    def gaps(self, matrix: Matrix) -> tuple[Gap, ...]:
        """What is missing from either image, most often nothing.

        An image that has a mask is passed over: whoever gave it knows better.

        Args:
            matrix: 4x4, LPS mm, fixed to moving.
        """
        back = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        found = (_gap(self._fixed, self._moving, matrix), _gap(self._moving, self._fixed, back))
        return tuple(gap for gap in found if gap is not None)

    def smaller(self) -> tuple[str, ...]:
        """The image whose object is much the smaller, if its background is one value and it has no mask."""
        sides = (self._fixed, self._moving)
        if not any(seen.guessable for seen in sides):
            return ()
        most = max(seen.volume_mm3 for seen in sides)
        return tuple(seen.name for seen in sides if seen.guessable and seen.volume_mm3 < SMALLER * most)


def gap_shares(gaps: Sequence[Gap]) -> tuple[float, float]:
    """How much is missing from the fixed and from the moving image."""
    shares = {gap.side: gap.share for gap in gaps}
    return shares.get("fixed", 0.0), shares.get("moving", 0.0)


def without_gaps(scene: Scene, gaps: Sequence[Gap], ops: Ops) -> Scene:
    """The scene with the gaps masked."""
    for gap in gaps:
        scene = _with_mask(scene, gap.side, gap.voxels, ops)
    return scene


def without_background(scene: Scene, names: Sequence[str], ops: Ops) -> Scene:
    """The scene with all that has the background value masked in the images named, so that no outline misleads."""
    for name in names:
        seen = _Seen(name, getattr(scene, name))
        scene = _with_mask(scene, name, seen.empty(seen.side.data), ops)
    return scene


def _with_mask(scene: Scene, name: str, lost: Tensor, ops: Ops) -> Scene:
    side = masked(getattr(scene, name), lost, ops)
    return Scene(side, scene.moving) if name == "fixed" else Scene(scene.fixed, side)


class _Seen:
    """One image of a scene, what its background is, and its object at the points of a lattice."""

    def __init__(self, name: str, side: Side) -> None:
        self.name, self.side = name, side
        self.lattice = _Lattice(side.grid)

    @cached_property
    def background(self) -> tuple[list[Tensor], float]:
        """Per channel the commonest value of the border, and how much of the border has it at least."""
        values, shares = list[Tensor](), list[float]()
        for channel in self.side.data:
            border = rim(channel)
            found, counts = torch.unique(border[:: 1 + border.numel() // BORDER_SAMPLES], return_counts=True)
            values.append(found[counts.argmax()])
            shares.append(float(counts.max() / counts.sum()))
        return values, min(shares)

    @property
    def guessable(self) -> bool:
        """Whether the image has a background to be missing with, and nobody said where it counts.

        A shape of one value is nothing but where its background is not: that must count.
        """
        return self.side.mask is None and self.background[1] >= BORDER and self._textured

    def empty(self, image: Tensor) -> Tensor:
        """Where all channels of the image, or of some of its points, have the background value to the last bit."""
        same = [channel == value for channel, value in zip(image, self.background[0], strict=True)]
        return torch.stack(same).all(0)

    @cached_property
    def object(self) -> Tensor:
        """Points of the lattice at which the image shows something."""
        points = in_single(self.lattice.of(self.side.data), self.side.units)
        mask = None if self.side.mask is None else self.lattice.of(self.side.mask)
        if mask is not None and not bool(mask.any()):  # it passes between the points
            return torch.zeros_like(mask, dtype=torch.bool)
        borders = in_single(torch.stack(self.background[0]).reshape(-1, 1, 1, 1), self.side.units)
        return foreground(points, mask, borders.flatten().tolist())

    @cached_property
    def _textured(self) -> bool:
        """Whether the object shows more than one value, to the last bit, and is no label map."""
        points = self.lattice.of(self.side.data)
        shown = points[:, self.object]
        commonest = [int(torch.unique(channel, return_counts=True)[1].max()) for channel in shown if channel.numel()]
        if not commonest or min(commonest) >= PLAIN * shown.shape[1]:
            return False
        return min(_evenness(channel, self.object) for channel in points) < EVEN

    @property
    def volume_mm3(self) -> float:
        """Of the object; of an image of one slice as if that were as thick as its header says."""
        return float(self.object.sum()) * math.prod(self.lattice.stride) * math.prod(self.side.grid.spacing_mm)

    @cached_property
    def inside(self) -> Tensor:
        """Points that lie deep in the object."""
        step = self.lattice.step
        wide = widened(self.object, [CLOSED * n for n in step])
        return ~widened(~wide, [(CLOSED + DEEP) * n for n in step])  # beyond the image the object goes on


class _Lattice:
    """Every so many-th voxel of a grid along each axis.

    Attributes:
        stride, first: in voxels.
        step: points to the step, which is as long along all axes; 0 for an axis of one voxel.
    """

    def __init__(self, grid: Grid) -> None:
        sizes = list(zip(grid.shape, grid.spacing_mm, strict=True))
        step_mm = max(n * s for n, s in sizes if n > 1) / POINTS
        self.stride = [max(1, round(step_mm / s)) if n > 1 else 1 for n, s in sizes]
        self.first = [(min(k, n) - 1) // 2 for k, n in zip(self.stride, grid.shape, strict=True)]
        apart_mm = [k * s for k, s in zip(self.stride, grid.spacing_mm, strict=True)]
        self.step = [max(1, round(step_mm / a)) if n > 1 else 0 for a, n in zip(apart_mm, grid.shape, strict=True)]

    def of(self, volumes: Tensor) -> Tensor:
        """The points of (..., D, H, W) volumes."""
        z, y, x = (slice(f, None, k) for f, k in zip(self.first, self.stride, strict=True))
        return volumes[..., z, y, x]

    def index(self, points: Tensor) -> Tensor:
        """(..., 3) voxel indices of the points."""
        axes = [f + k * torch.arange(n) for f, k, n in zip(self.first, self.stride, points.shape, strict=True)]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).to(points.device, torch.float32)

    def look_up(self, points: Tensor, index: Tensor) -> Tensor:
        """Values of the points next to (..., 3) voxel indices."""
        nearest = [self._nearest(index[..., axis], points, axis) for axis in range(3)]
        return points[nearest[0], nearest[1], nearest[2]]

    def spread(self, points: Tensor, grid: Grid) -> Tensor:
        """(D, H, W) values of the points next to each voxel."""
        for axis, n in enumerate(grid.shape):
            index = torch.arange(n, device=points.device)
            points = points.index_select(axis, self._nearest(index, points, axis))
        return points

    def _nearest(self, index: Tensor, points: Tensor, axis: int) -> Tensor:
        found = (index - self.first[axis]) / self.stride[axis]
        return found.round().long().clamp(0, points.shape[axis] - 1)


def _gap(seen: _Seen, other: _Seen, through: Matrix) -> Gap | None:
    """What is missing from one image.

    Args:
        through: 4x4, LPS mm, from it to the other image.
    """
    if not seen.guessable:
        return None
    empty = seen.empty(seen.lattice.of(seen.side.data))
    matrix = VoxelMap(seen.side.grid, None, through).matrix(other.side.grid).to(empty.device, torch.float32)
    index = seen.lattice.index(empty) @ matrix[:, :3].T + matrix[:, 3]
    size = torch.tensor(other.side.grid.shape, device=empty.device)
    there = ((index >= -0.5) & (index <= size - 0.5)).all(-1) & other.lattice.look_up(other.inside, index)
    lost = there & empty
    count = float(lost.sum())
    share = count / max(1.0, float(there.sum()))
    return Gap(seen.name, share, _grown(seen, lost, empty)) if share > LEAST and count >= FEWEST else None


def _grown(seen: _Seen, lost: Tensor, empty: Tensor) -> Tensor:
    """(D, H, W) bool: the empty voxels around the lost points, and a voxel more, which may be half empty."""
    step = seen.lattice.step
    for _ in range(GROWN):
        lost = widened(lost, step) & empty
    around = seen.lattice.spread(widened(lost, step), seen.side.grid)
    return _one_more(around & seen.empty(seen.side.data))


def _one_more(voxels: Tensor) -> Tensor:
    """A voxel more on every side; bytes only, as this is of the image's size."""
    for axis in range(3):
        n, before = voxels.shape[axis], voxels.clone()
        voxels.narrow(axis, 1, n - 1).logical_or_(before.narrow(axis, 0, n - 1))
        voxels.narrow(axis, 0, n - 1).logical_or_(before.narrow(axis, 1, n - 1))
    return voxels


def _evenness(points: Tensor, where: Tensor) -> float:
    """Share of the neighbouring points, both in `where`, that have the same value to the last bit."""
    same = count = 0
    for axis, n in enumerate(points.shape):
        (a, b), (here, there) = ((t.narrow(axis, 0, n - 1), t.narrow(axis, 1, n - 1)) for t in (points, where))
        both = here & there
        same, count = same + int(((a == b) & both).sum()), count + int(both.sum())
    return same / max(count, 1)


def widened(points: Tensor, radius: Sequence[int]) -> Tensor:
    """(D, H, W) bool: what has a point that is set within so many points along each axis."""
    found = points[None, None].to(torch.float32)
    for axis, r in enumerate(radius):
        size, padding = [1, 1, 1], [0, 0, 0]
        size[axis], padding[axis] = 2 * r + 1, r
        found = functional.max_pool3d(found, size, 1, padding) if r else found
    return found[0, 0] > 0
