"""CPU form of `mse`: interpolation, squared difference and gradient in one pass over the rows."""

from typing import Any

import numpy as np
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, parallel, serial
from warpfactor.kernels.numba.arrays import gradient_array, pair_arrays
from warpfactor.kernels.numba.interpolate_rows import (
    CHUNKS,
    ZERO,
    multiply_row,
    row_buffers,
    sample_row,
    symmetrize_row,
)

TINY = np.float32(1e-20)  # as in the reference


@serial
def _compare(F, z, y, scale, shift, M, w):  # type: ignore[no-untyped-def]
    """Sum of squared differences and count of a row; the differences replace the warped values M."""
    row = F[z, y]
    total = 0.0
    count = 0.0
    for x in range(M.shape[0]):
        r = np.float32(row[x]) - (scale * M[x] + shift) if w[x] > 0.0 else np.float32(0.0)
        total += np.float64(w[x] * r * r)
        count += w[x]
        M[x] = r
    return total, count


@serial
def _force(M, w, z, y, alpha, lengths, grad):  # type: ignore[no-untyped-def]
    """Replace the differences M of a row by the factors of dM/du; if alpha > 0, by those of demons."""
    wz, wy, wx = lengths
    g0, g1, g2 = grad[0, z, y], grad[1, z, y], grad[2, z, y]
    for x in range(M.shape[0]):
        s = np.float32(-2.0) * M[x]
        if alpha > 0.0:
            a, b, c = wz * g0[x], wy * g1[x], wx * g2[x]
            n = a * a + b * b + c * c
            s = -M[x] / (n + (alpha * M[x]) ** 2 + TINY)
        M[x] = s * w[x]


@parallel
def mse_of_planes(F, moving, u, A, fmask, mmask, alike, symmetric, alpha, lengths, want, grad, z0, z1):  # type: ignore[no-untyped-def]
    """(2, D) totals and counts of planes z0 <= z < z1, and their part of the gradient."""
    D, H, W = F.shape
    scale, shift = np.float32(alike[0]), np.float32(alike[1])
    B = (alike[0] * A).astype(np.float32)  # so that dM/du is that of the rescaled image
    flat, shape, stride = moving
    sums = np.zeros((D, H))
    counts = np.zeros((D, H))
    rows = (z1 - z0) * H
    chunks = min(rows, CHUNKS)
    for k in prange(chunks):
        image = flat, shape, stride
        M = np.empty(W, np.float32)
        w = np.empty(W, np.float32)
        buffers = row_buffers(W)
        for row in range(k * rows // chunks, (k + 1) * rows // chunks):
            z = z0 + row // H
            y = row % H
            sample_row(image, u, A, B, fmask, mmask, z, y, 0, want, ZERO, M, w, buffers, grad)
            sums[z, y], counts[z, y] = _compare(F, z, y, scale, shift, M, w)
            if want:
                if symmetric:
                    symmetrize_row(F, z, y, w, grad, 0, W)
                _force(M, w, z, y, alpha, lengths, grad)
                multiply_row(M, grad, z, y, 0, W)
    parts = np.zeros((2, D))
    for z in range(z0, z1):
        for y in range(H):
            parts[0, z] += sums[z, y]
            parts[1, z] += counts[z, y]
    return parts


@exclusive
def mse(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
    alike: tuple[float, float] = (1.0, 0.0),
    symmetric: bool = False,
    demons: float | None = None,
    lengths: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> tuple[float, float]:
    """Sum of squared differences and number of voxels; see the reference."""
    images = pair_arrays(fixed, moving, displacement, matrix, fixed_mask, moving_mask)
    settings = mse_settings(alike, symmetric, demons, lengths)
    wanted = gradient is not None, gradient_array(gradient, fixed.shape)
    total, count = mse_of_planes(*images, *settings, *wanted, 0, fixed.shape[0]).sum(1)
    return float(total), float(count)


def mse_settings(
    alike: tuple[float, float], symmetric: bool, demons: float | None, lengths: tuple[float, float, float]
) -> Any:
    """The settings as the kernel takes them."""
    weights = tuple(np.float32(w) for w in lengths)
    return (float(alike[0]), float(alike[1])), symmetric, np.float32(0.0 if demons is None else demons), weights
