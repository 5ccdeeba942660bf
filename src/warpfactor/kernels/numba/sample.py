"""CPU form of `sample` and `sample_gradient`: one pass over the rows, with coordinates in double precision."""

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, parallel
from warpfactor.kernels.numba.arrays import array, check_field, displacement_array, matrix_array, target, volume
from warpfactor.kernels.numba.interpolate import field_at, is_inside, locate
from warpfactor.kernels.numba.interpolate_rows import CHUNKS, gradient_row, place_row, row_buffers, value_row


@parallel
def _linear(image, u, moved, A, outside, out):  # type: ignore[no-untyped-def]
    D, H, W = out.shape
    flat, shape, stride = image
    still = np.zeros(W, u.dtype)
    chunks = min(D * H, CHUNKS)
    for k in prange(chunks):
        buffers = row_buffers(W)
        weight = np.empty(W, np.float32)
        for row in range(k * D * H // chunks, (k + 1) * D * H // chunks):
            z = row // H
            y = row - z * H
            if moved:
                place_row(u[0, z, y], u[1, z, y], u[2, z, y], A, z, y, 0, shape, buffers[0], buffers[1], weight)
            else:
                place_row(still, still, still, A, z, y, 0, shape, buffers[0], buffers[1], weight)
            value_row(flat, stride, buffers, weight, outside, out[z, y])


@parallel
def _nearest(img, u, moved, A, outside, out):  # type: ignore[no-untyped-def]
    D, H, W = out.shape
    d, h, w = img.shape
    for row in prange(D * H):
        z = row // H
        y = row - z * H
        for x in range(W):
            uz, uy, ux = field_at(u, moved, z, y, x)
            pz, py, px = locate(A, z, y, x, uz, uy, ux)
            if is_inside(pz, py, px, d, h, w):
                iz = min(int(np.floor(pz + 0.5)), d - 1)
                iy = min(int(np.floor(py + 0.5)), h - 1)
                ix = min(int(np.floor(px + 0.5)), w - 1)
                out[z, y, x] = img[iz, iy, ix]
            else:
                out[z, y, x] = outside


@parallel
def _gradient(image, u, A, outside, out, grad, inside):  # type: ignore[no-untyped-def]
    D, H, W = out.shape
    flat, shape, stride = image
    B = A.astype(np.float32)
    chunks = min(D * H, CHUNKS)
    for k in prange(chunks):
        buffers = row_buffers(W)
        weight = np.empty(W, np.float32)
        for row in range(k * D * H // chunks, (k + 1) * D * H // chunks):
            z = row // H
            y = row - z * H
            place_row(u[0, z, y], u[1, z, y], u[2, z, y], A, z, y, 0, shape, buffers[0], buffers[1], weight)
            g0, g1, g2 = grad[0, z, y], grad[1, z, y], grad[2, z, y]
            gradient_row(flat, stride, buffers, weight, B, outside, out[z, y], g0, g1, g2)
            for x in range(W):
                inside[z, y, x] = weight[x] > 0.0


@exclusive
def sample(
    image: Tensor,
    displacement: Tensor | None,
    matrix: Tensor,
    *,
    shape: tuple[int, int, int] | None = None,
    mode: str = "linear",
    outside: float = 0.0,
) -> Tensor:
    """The image at p = matrix (x + u(x)) for every voxel x of the fixed grid; see the reference."""
    field, moved, out_shape = displacement_array(displacement, shape)
    out = torch.empty(out_shape, dtype=image.dtype)
    A = matrix_array(matrix, image, out_shape[0])
    fill: Any = array(image).dtype.type(outside)
    if mode == "linear":
        _linear(volume(image), field, moved, A, fill, target(out))
    elif mode == "nearest":
        _nearest(array(image), field, moved, A, fill, target(out))
    else:
        raise ValueError(f"unknown interpolation {mode!r}; use 'linear' or 'nearest'")
    return out


@exclusive
def sample_gradient(
    image: Tensor, displacement: Tensor, matrix: Tensor, *, outside: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The image at p, its derivative by the displacement, and whether p is inside; see the reference."""
    check_field("displacement", displacement)
    shape = tuple(displacement.shape[1:])
    out = torch.empty(shape, dtype=image.dtype)
    grad = torch.empty((3, *shape), dtype=image.dtype)
    inside = torch.empty(shape, dtype=torch.bool)
    fill: Any = array(image).dtype.type(outside)
    _gradient(
        volume(image),
        array(displacement),
        matrix_array(matrix, image, shape[0]),
        fill,
        target(out),
        target(grad),
        target(inside),
    )
    return out, grad, inside
