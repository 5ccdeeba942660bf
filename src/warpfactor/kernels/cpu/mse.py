"""CPU form of `mse`: sample, square and differentiate in one pass over rows."""

import numpy as np
from numba import prange
from torch import Tensor

from .jit import NO_GRADIENT, array, exclusive, mask_array, matrix_array, parallel, strides, target
from .warp import NOTHING, multiply_row, sample_row, scratch, symmetrize_row

TINY = np.float32(1e-20)  # as in the reference


@parallel
def _mse(F, img, stride, u, A, fmask, mmask, alike, symmetric, alpha, lengths, want, grad):  # type: ignore[no-untyped-def]
    D, H, W = F.shape
    scale, shift = np.float32(alike[0]), np.float32(alike[1])
    B = (alike[0] * A).astype(np.float32)  # slopes come out scaled
    wz, wy, wx = lengths
    sums = np.zeros((D, H))
    counts = np.zeros((D, H))
    for row in prange(D * H):
        z = row // H
        y = row - z * H
        M = np.empty(W, np.float32)
        w = np.empty(W, np.float32)
        sample_row(img, stride, u, A, B, fmask, mmask, z, y, 0, want, NOTHING, M, w, scratch(W), grad)
        total = 0.0
        count = 0.0
        for x in range(W):
            r = np.float32(F[z, y, x]) - (scale * M[x] + shift) if w[x] > 0.0 else np.float32(0.0)
            total += np.float64(w[x] * r * r)
            count += w[x]
            M[x] = r
        sums[z, y] = total
        counts[z, y] = count
        if want:
            if symmetric:
                symmetrize_row(F, z, y, w, grad, 0, W)
            for x in range(W):
                s = np.float32(-2.0) * M[x]
                if alpha > 0.0:
                    a, b, c = wz * grad[0, z, y, x], wy * grad[1, z, y, x], wx * grad[2, z, y, x]
                    n = a * a + b * b + c * c
                    s = -M[x] / (n + (alpha * M[x]) ** 2 + TINY)
                M[x] = s * w[x]
            multiply_row(M, grad, z, y, 0, W)
    total = 0.0
    count = 0.0
    for z in range(D):
        for y in range(H):
            total += sums[z, y]
            count += counts[z, y]
    return total, count


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
    """Sum of squared differences, count, and the derivative of the sum by the displacement; see the reference."""
    return _mse(
        array(fixed),
        array(moving),
        strides(tuple(moving.shape)),
        array(displacement),
        matrix_array(matrix, moving, fixed.shape[0]),
        mask_array(fixed_mask),
        mask_array(moving_mask),
        (float(alike[0]), float(alike[1])),
        symmetric,
        np.float32(0.0 if demons is None else demons),
        tuple(np.float32(w) for w in lengths),
        gradient is not None,
        NO_GRADIENT if gradient is None else target(gradient),
    )
