"""CPU form of `mi`: one pass over the rows for the joint histogram, and another one for the gradient.

Each chunk of rows has its own histogram, and these are added in order. A voxel contributes to 2 x 4 bins of the
histogram; its gradient depends on the same bins of a table of logarithms.
"""

import math
from typing import Any

import numpy as np
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, inline, parallel, serial
from warpfactor.kernels.numba.arrays import gradient_array, pair_arrays
from warpfactor.kernels.numba.interpolate_rows import ZERO, multiply_row, row_buffers, sample_row

CHUNKS = 16  # number of chunks of rows; a constant, so that the result does not depend on the number of threads


@inline
def fixed_bin(f, lo, scale, bins):  # type: ignore[no-untyped-def]
    """First of the two bins of the linear window, and the fraction of the second one."""
    t = min(max((f - lo) * scale, 0.0), 1.0) * (bins - 1)
    i = max(min(int(t), bins - 2), 0)
    return i, t - i


@inline
def moving_bin(m, lo, scale, bins):  # type: ignore[no-untyped-def]
    """First of the four bins of the cubic B-spline window, the fraction, and whether the value is clipped."""
    s = (m - lo) * scale
    clipped = (s < 0.0) | (s > 1.0)
    t = 1.0 + min(max(s, 0.0), 1.0) * (bins - 4)
    i = max(min(int(t), bins - 3), 1)
    return i - 1, t - i, clipped


@inline
def cubic(e):  # type: ignore[no-untyped-def]
    """The four weights of the cubic B-spline at fraction e."""
    g = 1.0 - e
    return (
        g * g * g / 6.0,
        (4.0 - 6.0 * e * e + 3.0 * e * e * e) / 6.0,
        (4.0 - 6.0 * g * g + 3.0 * g * g * g) / 6.0,
        e * e * e / 6.0,
    )


@inline
def cubic_slope(e):  # type: ignore[no-untyped-def]
    """The derivatives of the four weights by the fraction e."""
    g = 1.0 - e
    return -0.5 * g * g, 1.5 * e * e - 2.0 * e, 2.0 * g - 1.5 * g * g, 0.5 * e * e


@parallel
def _histogram(F, moving, u, A, fmask, mmask, bins, lo_f, k_f, lo_m, k_m):  # type: ignore[no-untyped-def]
    D, H, W = F.shape
    B = A.astype(np.float32)
    flat, shape, stride = moving
    chunks = min(D * H, CHUNKS)
    joint = np.zeros((chunks, bins, bins))
    for k in prange(chunks):
        image = flat, shape, stride
        M = np.empty(W, np.float32)
        w = np.empty(W, np.float32)
        buffers = row_buffers(W)
        for row in range(k * D * H // chunks, (k + 1) * D * H // chunks):
            z = row // H
            y = row - z * H
            sample_row(image, u, A, B, fmask, mmask, z, y, 0, False, ZERO, M, w, buffers, u)
            for x in range(W):
                if w[x] > 0.0:
                    i, e = fixed_bin(F[z, y, x], lo_f, k_f, bins)
                    j, s, _ = moving_bin(M[x], lo_m, k_m, bins)
                    c0, c1, c2, c3 = cubic(s)
                    for n in range(2):
                        f = 1.0 - e if n == 0 else e
                        joint[k, i + n, j] += f * c0
                        joint[k, i + n, j + 1] += f * c1
                        joint[k, i + n, j + 2] += f * c2
                        joint[k, i + n, j + 3] += f * c3
    return joint


@serial
def _force(F, M, w, table, lo_f, k_f, lo_m, k_m):  # type: ignore[no-untyped-def]
    """Replace the warped values M of a row by the derivatives of the total by them."""
    bins = table.shape[0]
    slope = k_m * (bins - 4)
    for x in range(M.shape[0]):
        g = np.float32(0.0)
        if w[x] > 0.0:
            i, e = fixed_bin(F[x], lo_f, k_f, bins)
            j, s, clipped = moving_bin(M[x], lo_m, k_m, bins)
            c0, c1, c2, c3 = cubic_slope(s)
            acc = 0.0
            for n in range(2):
                f = 1.0 - e if n == 0 else e
                t = table[i + n]
                acc += f * (c0 * t[j] + c1 * t[j + 1] + c2 * t[j + 2] + c3 * t[j + 3])
            g = np.float32(0.0 if clipped else -acc * slope)
        M[x] = g


@parallel
def _gradient(F, moving, u, A, fmask, mmask, table, lo_f, k_f, lo_m, k_m, grad):  # type: ignore[no-untyped-def]
    D, H, W = F.shape
    B = A.astype(np.float32)
    flat, shape, stride = moving
    chunks = min(D * H, CHUNKS)
    for k in prange(chunks):
        image = flat, shape, stride
        M = np.empty(W, np.float32)
        w = np.empty(W, np.float32)
        buffers = row_buffers(W)
        for row in range(k * D * H // chunks, (k + 1) * D * H // chunks):
            z = row // H
            y = row - z * H
            sample_row(image, u, A, B, fmask, mmask, z, y, 0, True, ZERO, M, w, buffers, grad)
            _force(F[z, y], M, w, table, lo_f, k_f, lo_m, k_m)
            multiply_row(M, grad, z, y, 0, W)


def information(joint: Any) -> tuple[float, Any]:
    """Mutual information (nats) of a normalised joint histogram p, and the table log(p / pm).

    The table is the derivative by p up to one constant per row, which has no effect: the weights of a voxel sum to one.
    """
    fixed, moving = joint.sum(1, keepdims=True), joint.sum(0, keepdims=True)
    full = joint > 0
    ratio = np.where(full, joint / np.where(full, fixed * moving, 1.0), 1.0)
    table = np.log(np.where(full, joint / np.where(moving > 0, moving, 1.0), 1.0))
    return float((joint * np.log(ratio)).sum()), table


@exclusive
def mi(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    bins: int,
    fixed_range: tuple[float, float],
    moving_range: tuple[float, float],
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
) -> tuple[float, float]:
    """Number of voxels times (log bins - mutual information), and that number; see the reference."""
    pair = pair_arrays(fixed, moving, displacement, matrix, fixed_mask, moving_mask)
    out = gradient_array(gradient, fixed.shape)
    lo_f, k_f = fixed_range[0], 1.0 / (fixed_range[1] - fixed_range[0])
    lo_m, k_m = moving_range[0], 1.0 / (moving_range[1] - moving_range[0])
    joint = _histogram(*pair, bins, lo_f, k_f, lo_m, k_m).sum(0)
    count = float(joint.sum())
    if count <= 0:
        if gradient is not None:
            gradient.zero_()
        return 0.0, 0.0
    nats, table = information(joint / count)
    if gradient is not None:
        _gradient(*pair, table, lo_f, k_f, lo_m, k_m, out)
    return count * (math.log(bins) - nats), count
