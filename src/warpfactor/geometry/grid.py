"""Grid: the voxels of an image and their place in the world; the only file where coordinate frames change.

Array order is (z, y, x). World is LPS millimetres, (x, y, z), as ITK. A 2-D grid is embedded in 3-D,
one slice at z = 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from warpfactor.errors import InputError

Matrix = NDArray[np.float64]
Points = NDArray[np.float64]
Shape = tuple[int, int, int]

RAS_TO_LPS: Matrix = np.diag([-1.0, -1.0, 1.0, 1.0])
# Columns (x, y, z, origin) <-> columns (z, y, x, origin); its own inverse.
_REVERSE_AXES: Matrix = np.eye(4)[:, [2, 1, 0, 3]]


_FURTHEST_MM = 1e9  # of an origin from the world's, or of a voxel from its neighbour: 1000 km

# Voxels worked on at once where a whole image would take several more; the scratch stays below a few tens of MB.
SLAB_VOXELS = 1 << 17


class ItkGeometry(NamedTuple):
    """Geometry as ITK names it: axes in (x, y, z) order, direction row by row; two or three axes."""

    size: tuple[int, ...]
    origin: tuple[float, ...]
    spacing: tuple[float, ...]
    direction: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Grid:
    """Shape and voxel-to-world matrix of an image.

    Attributes:
        shape: (D, H, W); D is 1 in 2-D.
        matrix: 4x4, maps an array-order index (z, y, x, 1) to world (x, y, z, 1) in LPS mm.
        ndim: 2 or 3, the dimension of the files this grid comes from and goes to. A 3-D file with one
            slice has ndim 3 and D = 1: it is registered in its plane and keeps its place in space.
    """

    shape: Shape
    matrix: Matrix
    ndim: int = 3

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, dtype=np.float64)
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        _check(self)

    @classmethod
    def from_spacing(cls, shape: Sequence[int], spacing_mm: Sequence[float] | float = 1.0) -> Grid:
        """Axis-aligned grid with its origin at zero; `shape` and `spacing_mm` in array order, 2-D or 3-D."""
        sizes = tuple(reversed(tuple(shape)))
        count = len(sizes)
        spacing = (spacing_mm,) * count if isinstance(spacing_mm, (int, float)) else tuple(reversed(tuple(spacing_mm)))
        if len(spacing) != count:
            raise InputError(f"The array has {count} axes but {len(spacing)} spacings were given; give one per axis.")
        return cls.from_itk(sizes, (0.0,) * count, spacing, tuple(np.eye(count).ravel()))

    @classmethod
    def from_itk(
        cls,
        size: Sequence[int],
        origin: Sequence[float],
        spacing: Sequence[float],
        direction: Sequence[float],
    ) -> Grid:
        """The grid of an ITK image of two or three dimensions."""
        ndim = len(size)
        if ndim not in (2, 3):
            raise InputError(f"An image must have 2 or 3 dimensions, this one has {ndim}.")
        if not (np.all(np.isfinite(spacing)) and min(spacing) > 0):
            raise InputError(f"The voxel spacing {_listed(spacing)} must be positive; correct the header.")
        lps = np.eye(4)
        lps[:ndim, :ndim] = np.reshape(direction, (ndim, ndim)) * np.asarray(spacing)
        lps[:ndim, 3] = origin
        return cls(_array_shape(size), lps @ _REVERSE_AXES, ndim)

    @classmethod
    def from_ras(cls, size: Sequence[int], affine: ArrayLike) -> Grid:
        """The grid of a nibabel image: `size` in (x, y, z) order, `affine` from such indices to RAS mm."""
        ndim = len(size)
        lps = RAS_TO_LPS @ np.asarray(affine, dtype=np.float64)
        if ndim == 2:
            planar = np.eye(4)
            planar[:2, :2], planar[:2, 3] = lps[:2, :2], lps[:2, 3]
            lps = planar
        return cls(_array_shape(size), lps @ _REVERSE_AXES, ndim)

    def to_itk(self) -> ItkGeometry:
        """Size, origin, spacing and direction in `ndim` dimensions, as ITK defines them."""
        lps = (self.matrix @ _REVERSE_AXES)[: self.ndim]
        spacing = np.linalg.norm(lps[:, : self.ndim], axis=0)
        direction = lps[:, : self.ndim] / spacing
        return ItkGeometry(
            tuple(reversed(self.shape))[: self.ndim],
            tuple(lps[:, 3].tolist()),
            tuple(spacing.tolist()),
            tuple(direction.ravel().tolist()),
        )

    @property
    def spacing_mm(self) -> tuple[float, float, float]:
        """Distance between neighbours along the array axes (z, y, x)."""
        z, y, x = np.linalg.norm(self.matrix[:3, :3], axis=0).tolist()
        return z, y, x

    @property
    def summary(self) -> str:
        """Size and spacing for people, such as "9 x 12 voxels of 2 x 1.5 mm (y, x)"."""
        sizes = " x ".join(str(n) for n in self.shape[-self.ndim :])
        spacing = " x ".join(f"{s:.4g}" for s in self.spacing_mm[-self.ndim :])
        return f"{sizes} voxels of {spacing} mm ({', '.join('zyx'[-self.ndim :])})"

    @property
    def voxel_count(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def index_to_world(self, index: ArrayLike) -> Points:
        """(N, 3) array-order indices (z, y, x) -> (N, 3) world points (x, y, z) in mm."""
        return apply_matrix(self.matrix, index)

    def world_to_index(self, points: ArrayLike) -> Points:
        """(N, 3) world points (x, y, z) in mm -> (N, 3) continuous array-order indices (z, y, x)."""
        return apply_matrix(np.linalg.inv(self.matrix), points)

    def voxel_map(self, moving: Grid, affine: ArrayLike | None = None) -> Tensor:
        """(3, 4) kernel matrix: index here -> index on `moving`, through `affine` (4x4, LPS mm)."""
        through = np.eye(4) if affine is None else np.asarray(affine, dtype=np.float64)
        return torch.from_numpy(np.linalg.solve(moving.matrix, through @ self.matrix)[:3].copy())

    def voxels_to_mm(self, displacement: Tensor, axis: int | None = None) -> Tensor:
        """(3, ...) displacement along array axes in voxels -> (3, ...) world (x, y, z) in mm, float64.

        With `axis` only that of the three, (...).
        """
        if axis is None:
            return _linear(self.matrix[:3, :3], displacement)
        return _linear(self.matrix[axis : axis + 1, :3], displacement)[0]

    def mm_to_voxels(self, vectors: Tensor) -> Tensor:
        """(3, ...) world vectors (x, y, z) in mm -> (3, ...) along array axes in voxels, float64."""
        return _linear(np.linalg.inv(self.matrix[:3, :3]), vectors)

    def scaled(self, factors: float | Sequence[float] | None = None, *, shape: Sequence[int] | None = None) -> Grid:
        """The grid of a coarser (or finer) level: index here = f * level index + (f - 1) / 2 along each axis.

        Args:
            factors: voxels of this grid per level voxel; one for all axes longer than one, or one per axis.
            shape: of the level; without it every voxel is covered (rounded up). Without `factors`,
                f = n / shape, so that both grids span the same field of view.
        """
        if factors is None:
            if shape is None:
                raise InputError("A scaled grid needs factors or a shape.")
            factors = [n / m for n, m in zip(self.shape, shape, strict=True)]
        elif isinstance(factors, (int, float)):
            factors = [float(factors) if n > 1 else 1.0 for n in self.shape]
        f = np.asarray(factors, dtype=np.float64)
        if shape is None:
            shape = np.ceil(np.asarray(self.shape) / f - 1e-9).astype(int).tolist()
        step = np.diag([*f, 1.0])
        step[:3, 3] = (f - 1) / 2
        depth, height, width = shape
        return Grid((depth, height, width), self.matrix @ step, self.ndim)

    def distance_vox(self, other: Grid) -> float:
        """The largest distance between corresponding corners of the two grids, in voxels of this grid."""
        corners = np.array(list(itertools.product(*[(0, n - 1) for n in self.shape])), dtype=np.float64)
        moved = self.world_to_index(other.index_to_world(corners))
        return float(np.linalg.norm(moved - corners, axis=1).max())

    def same_space(self, other: Grid, tolerance: float = 1e-3) -> bool:
        """Whether shapes are equal and no voxel is over `tolerance` voxels off (header noise is less)."""
        return self.shape == other.shape and self.distance_vox(other) <= tolerance

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grid):
            return NotImplemented
        return self.shape == other.shape and self.ndim == other.ndim and np.array_equal(self.matrix, other.matrix)

    def __hash__(self) -> int:
        return hash((self.shape, self.ndim, tuple(self.matrix.ravel().tolist())))


def apply_matrix(matrix: NDArray[Any], points: ArrayLike) -> Points:
    """(N, 3) points through a 4x4 matrix."""
    array = np.atleast_2d(np.asarray(points, dtype=np.float64))
    if array.ndim != 2 or array.shape[1] != 3:
        raise InputError(f"Points must be an array of N rows of 3 numbers, this one has shape {array.shape}.")
    result: Points = array @ matrix[:3, :3].T + matrix[:3, 3]
    return result


def slabs(shape: Sequence[int], voxels: int = SLAB_VOXELS) -> Iterator[slice]:
    """Runs of planes that cover the depth, each of about the same number of voxels, at least one plane."""
    planes = max(1, voxels // (shape[1] * shape[2]))
    return (slice(z, min(z + planes, shape[0])) for z in range(0, shape[0], planes))


def _array_shape(size: Sequence[int]) -> Shape:
    width, height, *depth = size
    return (depth[0] if depth else 1), height, width


def _listed(values: Iterable[float]) -> str:
    return " x ".join(f"{float(value):g}" for value in values)


def _linear(matrix: NDArray[Any], vectors: Tensor) -> Tensor:
    weights = torch.from_numpy(np.array(matrix)).to(vectors.device)
    return (weights @ vectors.reshape(3, -1).double()).reshape(-1, *vectors.shape[1:])


def _check(grid: Grid) -> None:
    if grid.ndim not in (2, 3) or len(grid.shape) != 3 or min(grid.shape) < 1:
        raise InputError(f"A grid needs three sizes of at least one voxel, these are {grid.shape}.")
    if grid.ndim == 2 and grid.shape[0] != 1:
        raise InputError(f"A 2-D grid has one slice, this one has {grid.shape[0]}.")
    if grid.matrix.shape != (4, 4) or not np.all(np.isfinite(grid.matrix)):
        raise InputError("The voxel-to-world matrix must be 4x4 and finite; correct the image header.")
    if np.abs(grid.matrix).max() > _FURTHEST_MM:
        raise InputError(
            f"The voxel-to-world matrix has numbers beyond {_FURTHEST_MM:g} mm, which no image has; correct the header."
        )
    if not np.array_equal(grid.matrix[3], (0, 0, 0, 1)):
        raise InputError("The last row of a voxel-to-world matrix must be 0 0 0 1.")
    lengths = np.linalg.norm(grid.matrix[:3, :3], axis=0)
    if lengths.min() <= 0:
        raise InputError(f"The voxel spacing {_listed(lengths)} must be positive; correct the header.")
    if abs(np.linalg.det(grid.matrix[:3, :3] / lengths)) < 1e-6:
        raise InputError("The voxel axes lie in one plane, so the geometry cannot be inverted; correct the header.")
