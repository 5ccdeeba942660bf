"""An image on another grid, through a displacement and an affine; every image is interpolated once.

Points more than half a voxel beyond the outermost voxel centres are outside; in that rim the edge value holds
(ITK's rule).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid, Matrix, slabs
from warpfactor.geometry.image import Image
from warpfactor.geometry.itk import sitk
from warpfactor.kernels import select
from warpfactor.kernels.ops import Ops

_EXACT_IN_FLOAT32 = 1 << 24


class VoxelMap(NamedTuple):
    """A transform seen from one grid: world point y = affine(x + displacement(x)) for the voxels x of `grid`.

    Attributes:
        grid: the voxels that are mapped.
        displacement: (3, *grid.shape) in voxels of `grid`, or None for zero.
        affine: 4x4, LPS mm.
    """

    grid: Grid
    displacement: Tensor | None
    affine: Matrix

    def matrix(self, moving: Grid) -> Tensor:
        """(3, 4) kernel matrix to `moving`; two one-slice grids are one plane, z stays zero between them."""
        matrix = self.grid.voxel_map(moving, self.affine)
        if self.grid.shape[0] == 1 and moving.shape[0] == 1:
            matrix[0] = 0.0
        return matrix

    def moved_by(self, displacement: Tensor, grid: Grid, ops: Ops) -> VoxelMap:
        """This map followed by y -> y + u(y), u being `displacement` in voxels of `grid`, zero outside it."""
        steps = _by_kernel(displacement.to(torch.float32), grid, self, "linear", 0.0, ops)
        back = np.linalg.solve((self.affine @ self.grid.matrix)[:3, :3], grid.matrix[:3, :3])
        moved = torch.einsum("ab,bzyx->azyx", torch.from_numpy(back).to(steps), steps)
        return self._replace(
            displacement=moved if self.displacement is None else moved.add_(self.displacement.to(moved))
        )

    def total(self) -> Tensor:
        """(3, *grid.shape) float32 displacement in voxels with the affine inside it."""
        matrix = self.grid.voxel_map(self.grid, self.affine)
        result = torch.empty((3, *self.grid.shape), dtype=torch.float32)
        for planes in slabs(self.grid.shape):
            index = slab_index(self.grid.shape, planes)
            moved = self.moved_index(planes) @ matrix[:, :3].T + matrix[:, 3]
            result[:, planes] = (moved - index).T.reshape(3, -1, *self.grid.shape[1:]).float()
        return result

    def moved_index(self, planes: slice) -> Tensor:
        """(N, 3) float64 index + displacement of the voxels in a slab."""
        index = slab_index(self.grid.shape, planes)
        if self.displacement is not None:
            index += self.displacement[:, planes].reshape(3, -1).T.cpu()
        return index


def resample_through(
    image: Image, place: VoxelMap, *, mode: str = "linear", outside: float = 0.0, ops: Ops | None = None
) -> Image:
    """`image` at the points of `place`, as an Image on `place.grid`.

    Args:
        mode: "linear"; "nearest"; "label", the label with the largest linear weight: labels never mix and
            borders are smoother than nearest; "bspline", cubic, by SimpleITK.
        outside: value of points outside the image.
        ops: the backend; the fastest of the image's device by default.
    """
    methods = {"linear": _linear, "nearest": _nearest, "label": _label, "bspline": _bspline}
    if mode not in methods:
        raise InputError(f"Unknown interpolation {mode!r}; use one of {', '.join(methods)}.")
    if image.grid.ndim != place.grid.ndim:
        raise InputError(
            f"{image.name} is a {image.grid.ndim}-D image, but the grid to resample it to is {place.grid.ndim}-D; "
            "both must have the same dimension: give an image like those that were registered."
        )
    backend = ops or select(image.data.device)
    return Image(methods[mode](image, place, outside, backend), place.grid, image.name)


def corners(index: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """The eight voxels around each point: inside (N,), flat voxel numbers (8, N), linear weights (8, N).

    Args:
        index: (N, 3) continuous array-order indices.
        shape: (D, H, W) of the array they point into.
    """
    size = torch.tensor(shape, device=index.device)
    inside = ((index >= -0.5) & (index <= size - 0.5)).all(dim=1)
    clamped = torch.where(inside[:, None], index, 0.0).clamp(min=0).minimum(size - 1.0)
    low = clamped.long()
    high = (low + 1).minimum(size - 1)
    fraction = clamped - low
    flat, weight = [], []
    for corner in range(8):
        bits = torch.tensor([corner >> 2 & 1, corner >> 1 & 1, corner & 1], dtype=torch.bool, device=index.device)
        z, y, x = torch.where(bits, high, low).T
        flat.append((z * shape[1] + y) * shape[2] + x)
        weight.append(torch.where(bits, fraction, 1 - fraction).prod(dim=1))
    return inside, torch.stack(flat), torch.stack(weight)


def interpolate(field: Tensor, index: Tensor) -> Tensor:
    """(N, C) linear interpolation of a (C, D, H, W) field at (N, 3) indices, float64; zero outside."""
    inside, flat, weight = corners(index, tuple(field.shape[1:]))
    values = field.reshape(field.shape[0], -1)
    total = torch.zeros((index.shape[0], field.shape[0]), dtype=torch.float64, device=field.device)
    for voxel, share in zip(flat, weight, strict=True):
        total += (values[:, voxel] * share).T
    return total * inside[:, None]


def slab_index(shape: tuple[int, int, int], planes: slice) -> Tensor:
    """(N, 3) float64 array-order indices of the voxels in a slab."""
    axes = [torch.arange(n, dtype=torch.float64) for n in shape]
    return torch.cartesian_prod(axes[0][planes], axes[1], axes[2]).reshape(-1, 3)


def _linear(image: Image, place: VoxelMap, outside: float, ops: Ops) -> Tensor:
    return _by_kernel(image.data.to(torch.float32), image.grid, place, "linear", outside, ops)


def _nearest(image: Image, place: VoxelMap, outside: float, ops: Ops) -> Tensor:
    data = image.data
    if data.is_floating_point():
        return _by_kernel(data, image.grid, place, "nearest", outside, ops)
    if int(data.max()) < _EXACT_IN_FLOAT32 and int(data.min()) > -_EXACT_IN_FLOAT32:
        return _by_kernel(data.float(), image.grid, place, "nearest", outside, ops).to(data.dtype)
    values, codes = torch.unique(data, return_inverse=True)
    code = _by_kernel(codes.float(), image.grid, place, "nearest", -1.0, ops).long()
    return torch.where(code < 0, int(outside), values[code.clamp(min=0)]).to(data.dtype)


def _label(image: Image, place: VoxelMap, outside: float, ops: Ops) -> Tensor:
    """Per voxel, the label whose corners weigh most; the cost does not grow with the number of labels."""
    matrix, field = _arguments(image.data, image.grid, place)
    sampled = [
        ops.sample_labels(channel.contiguous(), field, matrix, shape=place.grid.shape, outside=outside)
        for channel in image.data
    ]
    return torch.stack(sampled)


def _by_kernel(data: Tensor, moving: Grid, place: VoxelMap, mode: str, outside: float, ops: Ops) -> Tensor:
    matrix, field = _arguments(data, moving, place)
    sampled = [
        ops.sample(channel.contiguous(), field, matrix, shape=place.grid.shape, mode=mode, outside=outside)
        for channel in data
    ]
    return torch.stack(sampled)


def _arguments(data: Tensor, moving: Grid, place: VoxelMap) -> tuple[Tensor, Tensor | None]:
    """What the kernels take besides the image: the matrix to its voxels, the displacement."""
    field = None
    if place.displacement is not None:
        field = place.displacement.to(device=data.device, dtype=torch.float32).contiguous()
    return place.matrix(moving), field


def _bspline(image: Image, place: VoxelMap, outside: float, ops: Ops) -> Tensor:
    ndim = place.grid.ndim
    transform = sitk.CompositeTransform(ndim)
    transform.AddTransform(itk.affine_to_sitk(place.affine, ndim))
    if place.displacement is not None:
        transform.AddTransform(itk.warp_to_sitk(place.displacement, place.grid))
    size, origin, spacing, direction = place.grid.to_itk()
    smooth = Image(image.data.to(torch.float32), image.grid).to_sitk()
    result = sitk.Resample(
        smooth, size, transform, sitk.sitkBSpline, origin, spacing, direction, outside, sitk.sitkUnknown
    )
    return itk.image_from_sitk(result)[0].to(image.data.device)
