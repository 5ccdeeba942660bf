"""CPU form of `affine_moments` and `affine_gradient`: sums over each row, which are then combined in order.

Along a row only x changes, so that a row needs sums multiplied by 1, x and x²; powers of y and z multiply whole rows.
"""

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, parallel, serial
from warpfactor.kernels.numba.arrays import array, check_field, mask_array, matrix_array, volume
from warpfactor.kernels.numba.interpolate_rows import CHUNKS, gradient_row, mask_row, place_row, row_buffers

SUMS = 6  # w, F, M, FF, MM, FM
SLOPES = 18  # (n, F n, M n) along three axes, times (1, x), where n = dM/du
PRODUCTS = 18  # the six products of n, times (1, x, x²)
PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
POSITION = np.array([(0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 0)])  # the powers of (x, y, z) in z, y, x, 1
POWERS = tuple(POSITION[:, None, a] + POSITION[None, :, a] for a in range(3))  # and in products of two of these


@serial
def _add_products(n, out):  # type: ignore[no-untyped-def]
    """Sums over a row of the six products of the components of n, times 1, x and x²."""
    k = 0
    for a in range(3):
        for b in range(a, 3):
            q0 = q1 = q2 = 0.0
            for x in range(n.shape[1]):
                g = np.float64(n[a, x]) * n[b, x]
                q0 += g
                q1 += g * x
                q2 += g * x * x
            out[k], out[k + 1], out[k + 2] = q0, q1, q2
            k += 3


@serial
def _add_row(F, M, w, n, out):  # type: ignore[no-untyped-def]
    """All sums over a row. Products are taken in double precision, since squares of derivatives may be tiny."""
    s0 = s1 = s2 = s3 = s4 = s5 = 0.0
    for x in range(M.shape[0]):
        f = np.float64(F[x]) if w[x] > 0 else 0.0
        m = np.float64(M[x])
        s0 += w[x]
        s1 += f
        s2 += m
        s3 += f * f
        s4 += m * m
        s5 += f * m
    out[0], out[1], out[2], out[3], out[4], out[5] = s0, s1, s2, s3, s4, s5
    for a in range(3):
        p0 = p1 = f0 = f1 = m0 = m1 = 0.0
        for x in range(M.shape[0]):
            g = np.float64(n[a, x])
            gf = g * F[x] if w[x] > 0 else 0.0
            gm = g * M[x]
            p0 += g
            p1 += g * x
            f0 += gf
            f1 += gf * x
            m0 += gm
            m1 += gm * x
        k = SUMS + 2 * a
        out[k], out[k + 1] = p0, p1
        out[k + 6], out[k + 7] = f0, f1
        out[k + 12], out[k + 13] = m0, m1
    _add_products(n, out[SUMS + SLOPES :])


@parallel
def _moments(F, moving, A, fmask, mmask, rows):  # type: ignore[no-untyped-def]
    D, H, W = F.shape
    B = A.astype(np.float32)
    flat, shape, stride = moving
    still = np.zeros(W, np.float32)
    chunks = min(D * H, CHUNKS)
    for k in prange(chunks):
        M = np.empty(W, F.dtype)
        w = np.empty(W, np.float32)
        n = np.empty((3, W), F.dtype)
        buffers = row_buffers(W)
        for row in range(k * D * H // chunks, (k + 1) * D * H // chunks):
            z = row // H
            y = row - z * H
            place_row(still, still, still, A, z, y, 0, shape, buffers[0], buffers[1], w)
            mask_row(fmask, mmask, z, y, 0, stride, buffers[0], buffers[1], w)
            gradient_row(flat, stride, buffers, w, B, F.dtype.type(0.0), M, n[0], n[1], n[2])
            _add_row(F[z, y], M, w, n, rows[z, y])


@parallel
def _gradient(grad, rows, products):  # type: ignore[no-untyped-def]
    _, D, H, W = grad.shape
    for row in prange(D * H):
        z = row // H
        y = row - z * H
        for a in range(3):
            s = t = 0.0
            for x in range(W):
                g = np.float64(grad[a, z, y, x])
                s += g
                t += g * x
            rows[z, y, a, 0] = s
            rows[z, y, a, 1] = t
        _add_products(grad[:, z, y], products[z, y])


@exclusive
def affine_moments(
    fixed: Tensor,
    moving: Tensor,
    matrix: Tensor,
    *,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of intensities, of derivatives times position, and of products of the latter; see the reference."""
    depth, height, _ = fixed.shape
    rows = np.empty((depth, height, SUMS + SLOPES + PRODUCTS))
    A = matrix_array(matrix, moving, depth)
    masks = mask_array("fixed_mask", fixed_mask, fixed), mask_array("moving_mask", moving_mask, moving).reshape(-1)
    _moments(array(fixed), volume(moving), A, *masks, rows)
    slopes = _with_position(rows[..., SUMS : SUMS + SLOPES].reshape(depth, height, 9, 2)).reshape(3, 12)
    products = _products(rows[..., SUMS + SLOPES :].reshape(depth, height, 6, 3))
    return (
        torch.from_numpy(rows[..., :SUMS].sum(axis=(0, 1))),
        torch.from_numpy(slopes),
        torch.from_numpy(products),
    )


@exclusive
def affine_gradient(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of a gradient times position, and of products of these; see the reference."""
    check_field("gradient", gradient)
    _, depth, height, _ = gradient.shape
    rows = np.empty((depth, height, 3, 2))
    products = np.empty((depth, height, PRODUCTS))
    _gradient(array(gradient), rows, products)
    total = _with_position(rows).reshape(12)
    return torch.from_numpy(total), torch.from_numpy(_products(products.reshape(depth, height, 6, 3)))


def _with_position(rows: Any) -> Any:
    """(D, H, K, 2) row sums times (1, x) -> (K, 4) sums times (z, y, x, 1)."""
    z, y = np.arange(rows.shape[0], dtype=np.float64), np.arange(rows.shape[1], dtype=np.float64)
    by_y = np.einsum("zykp,yq->zkpq", rows, np.stack([np.ones_like(y), y], 1))
    one, with_z = by_y.sum(0), np.einsum("zkpq,z->kpq", by_y, z)
    return np.stack([with_z[:, 0, 0], one[:, 0, 1], one[:, 1, 0], one[:, 0, 0]], axis=1)


def _products(rows: Any) -> Any:
    """(D, H, 6, 3) row sums of products of n times (1, x, x²) -> (12, 12) sum of (n ⊗ X)(n ⊗ X)ᵀ."""
    z, y = np.arange(rows.shape[0], dtype=np.float64), np.arange(rows.shape[1], dtype=np.float64)
    by_y = np.einsum("zykp,yq->zkpq", rows, np.stack([np.ones_like(y), y, y * y], 1))
    powers = np.einsum("zkpq,zr->kpqr", by_y, np.stack([np.ones_like(z), z, z * z], 1))  # k, x, y, z
    result = np.empty((3, 4, 3, 4))
    for k, (a, b) in enumerate(PAIRS):
        result[a, :, b, :] = result[b, :, a, :] = powers[k][POWERS]
    return result.reshape(12, 12)
