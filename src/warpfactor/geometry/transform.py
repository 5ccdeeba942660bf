"""Affine, Warp and Chain: frozen maps of points that resample images, invert, compose and say what they map.

A transform maps POINTS of its source space to its target space; therefore it resamples an IMAGE that lives in
the target space onto a grid of the source space. A registration's transform goes from "fixed" to "moving": it
takes landmarks of the fixed image to the moving one, and brings the moving image onto the fixed grid.
`inverse()` swaps the two.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Points, apply_matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.inversion import invert_everywhere
from warpfactor.geometry.resample import VoxelMap, interpolate, resample_through
from warpfactor.kernels import select
from warpfactor.kernels.ops import Ops


class Transform(ABC):
    """What every transform can do; `source` and `target` name the spaces it maps from and to."""

    source: str
    target: str

    @property
    @abstractmethod
    def ndim(self) -> int:
        """Dimension of its files, 2 or 3. Points are (N, 3) in either case."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Affine | Warp, ...]:
        """The elementary transforms, in the order in which points pass through them."""

    @abstractmethod
    def map_points(self, points: ArrayLike) -> Points:
        """(N, 3) LPS mm of source space -> (N, 3) LPS mm of target space."""

    @abstractmethod
    def inverse(self) -> Transform:
        """The map from target back to source."""

    def __matmul__(self, first: Transform) -> Transform:
        """(self @ first): x -> self(first(x)). Neighbouring affines become one; nothing is interpolated."""
        if not isinstance(first, Transform):
            return NotImplemented
        parts = _merge_affines((*first.parts, *self.parts))
        if len(parts) == 1:
            return replace(parts[0], source=first.source, target=self.target)
        return Chain(parts, source=first.source, target=self.target)

    def resample(
        self, image: Image, grid: Grid, *, mode: str = "linear", outside: float = 0.0, ops: Ops | None = None
    ) -> Image:
        """`image` of target space on `grid` of source space, interpolated once.

        Args:
            mode: "linear", "nearest", "label" (linear vote, labels never mix) or "bspline" (cubic).
            outside: value of points that fall outside `image`.
            ops: the backend; the fastest of the image's device by default.
        """
        return resample_through(image, self.on_grid(grid, ops=ops), mode=mode, outside=outside, ops=ops)

    def on_grid(self, grid: Grid, *, ops: Ops | None = None) -> VoxelMap:
        """The map as one displacement on `grid` followed by one affine, the form kernels take."""
        _check_dimension(self.parts, grid)
        return reduce(lambda place, part: part.follow(place, ops), self.parts, VoxelMap(grid, None, np.eye(4)))

    def to_warp(self, grid: Grid) -> Warp:
        """The whole transform, affines included, as one displacement on `grid`."""
        return Warp(self.on_grid(grid).total(), grid, self.source, self.target)


@dataclass(frozen=True, eq=False)
class Affine(Transform):
    """x -> matrix x.

    Attributes:
        matrix: 4x4, LPS mm of `source` to LPS mm of `target`.
        dimension: 2 or 3; in 2-D the matrix leaves z alone.
    """

    matrix: NDArray[Any] = field(default_factory=lambda: np.eye(4))
    source: str = "fixed"
    target: str = "moving"
    dimension: int = 3

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, dtype=np.float64)
        if matrix.shape != (4, 4) or not np.all(np.isfinite(matrix)):
            raise InputError("An affine needs a finite 4x4 matrix.")
        if np.abs(matrix[3] - (0, 0, 0, 1)).max() > 1e-9:
            raise InputError("The last row of an affine must be 0 0 0 1.")
        if abs(np.linalg.det(matrix[:3, :3])) < 1e-12:
            raise InputError("The affine is singular: it flattens space and has no inverse.")
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    def __repr__(self) -> str:
        return f"Affine({self.source} -> {self.target}, {(self.matrix.round(4) + 0.0).tolist()})"

    @property
    def ndim(self) -> int:
        return self.dimension

    @property
    def parts(self) -> tuple[Affine | Warp, ...]:
        return (self,)

    def map_points(self, points: ArrayLike) -> Points:
        return apply_matrix(self.matrix, points)

    def follow(self, place: VoxelMap, ops: Ops | None = None) -> VoxelMap:
        """The composition of `place` and then this transform."""
        return place._replace(affine=self.matrix @ place.affine)

    def inverse(self) -> Affine:
        """The exact inverse."""
        return Affine(np.linalg.inv(self.matrix), self.target, self.source, self.dimension)


@dataclass(frozen=True, eq=False)
class Warp(Transform):
    """x -> x + u(x), u interpolated linearly.

    More than half a voxel outside its grid u is zero, within that rim it keeps its edge value: what ITK, ANTs
    and SimpleITK do with the same field, so the file means the same to all.

    Attributes:
        displacement: (3, D, H, W), u along the array axes (z, y, x) in voxels of `grid`.
        grid: where u is known.
    """

    displacement: Tensor
    grid: Grid
    source: str = "fixed"
    target: str = "moving"

    def __post_init__(self) -> None:
        if tuple(self.displacement.shape) != (3, *self.grid.shape):
            raise InputError(f"A warp on {self.grid.shape} cannot have shape {tuple(self.displacement.shape)}.")
        if not self.displacement.is_floating_point():
            raise InputError(f"A warp must hold floating-point numbers, not {self.displacement.dtype}.")
        if not all(math.isfinite(end) for end in self.displacement.aminmax()):  # NaN passes through
            raise InputError("A warp needs finite displacements; this has NaN or infinite ones.")
        object.__setattr__(self, "displacement", self.displacement.contiguous())

    def __repr__(self) -> str:
        return f"Warp({self.source} -> {self.target}, {self.grid.summary})"

    @property
    def ndim(self) -> int:
        return self.grid.ndim

    @property
    def parts(self) -> tuple[Affine | Warp, ...]:
        return (self,)

    def map_points(self, points: ArrayLike) -> Points:
        index = torch.from_numpy(self.grid.world_to_index(points))
        steps = interpolate(self.displacement.cpu(), index)
        moved: Points = np.atleast_2d(np.asarray(points, dtype=np.float64)) + self.grid.voxels_to_mm(steps.T).T.numpy()
        return moved

    def follow(self, place: VoxelMap, ops: Ops | None = None) -> VoxelMap:
        """The composition of `place` and then this transform; the field itself if it is first and lies on the grid."""
        untouched = place.displacement is None and np.array_equal(place.affine, np.eye(4))
        if untouched and self.grid.same_space(place.grid):
            return place._replace(displacement=self.displacement)
        return place.moved_by(self.displacement, self.grid, ops or select(self.displacement.device))

    def inverse(self) -> Warp:
        """The numerical inverse, on the same grid; see `inverse_with_residual` for its error."""
        return self.inverse_with_residual()[0]

    def inverse_with_residual(
        self, *, iterations: int = 50, tolerance_vox: float = 1e-3, ops: Ops | None = None
    ) -> tuple[Warp, Tensor]:
        """The inverse v and its residual |v(x) + u(x + v(x))| in mm, (D, H, W)."""
        ops = ops or select(self.displacement.device)
        u = self.displacement.to(torch.float32).contiguous()
        v, _ = invert_everywhere(u, ops, iterations=iterations, tolerance=tolerance_vox)
        residual_mm = self.grid.voxels_to_mm(ops.compose(u, v)).norm(dim=0).to(torch.float32)
        return Warp(v, self.grid, self.target, self.source), residual_mm

    def jacobian(self, *, ops: Ops | None = None) -> Image:
        """det(I + du/dx) per voxel: volume change of source space; at or below zero the warp folds."""
        ops = ops or select(self.displacement.device)
        determinant = ops.jacobian_determinant(self.displacement.to(torch.float32).contiguous())
        return Image(determinant[None], self.grid, "jacobian")


@dataclass(frozen=True, eq=False)
class Chain(Transform):
    """Transforms applied first to last: x -> last(... first(x)).

    Attributes:
        transforms: at least one; nested chains are laid out flat.
        source, target: those of the first and the last transform unless given.
    """

    transforms: tuple[Transform, ...]
    source: str = ""
    target: str = ""

    def __post_init__(self) -> None:
        flat = tuple(part for transform in self.transforms for part in transform.parts)
        if not flat:
            raise InputError("A chain needs at least one transform.")
        object.__setattr__(self, "source", self.source or self.transforms[0].source)
        object.__setattr__(self, "target", self.target or self.transforms[-1].target)
        object.__setattr__(self, "transforms", flat)

    @property
    def ndim(self) -> int:
        return min(part.ndim for part in self.parts)

    @property
    def parts(self) -> tuple[Affine | Warp, ...]:
        return tuple(part for transform in self.transforms for part in transform.parts)

    def map_points(self, points: ArrayLike) -> Points:
        return reduce(lambda moved, part: part.map_points(moved), self.parts, np.asarray(points, dtype=np.float64))

    def inverse(self) -> Chain:
        """Inverses in reverse order; warps are inverted numerically."""
        return Chain(tuple(part.inverse() for part in reversed(self.parts)), self.target, self.source)


def _check_dimension(parts: Iterable[Affine | Warp], grid: Grid) -> None:
    """InputError if a part is of files of another dimension than the grid; a 3-D affine may leave z alone."""
    for part in parts:
        flat = isinstance(part, Affine) and np.array_equal(part.matrix[2], (0, 0, 1, 0))
        if part.ndim != grid.ndim and not (grid.ndim == 2 and flat):
            kind = type(part).__name__.lower()
            raise InputError(
                f"The {kind} is {part.ndim}-D, the image {grid.ndim}-D; give a transform for {grid.ndim}-D images."
            )


def _merge_affines(parts: Iterable[Affine | Warp]) -> tuple[Affine | Warp, ...]:
    merged: list[Affine | Warp] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Affine) and isinstance(last, Affine):
            matrix, ndim = part.matrix @ last.matrix, min(part.ndim, last.ndim)
            merged[-1] = Affine(matrix, last.source, part.target, ndim)
        else:
            merged.append(part)
    return tuple(merged)
