"""CPU form of `sample_labels`: one pass over the rows.

Where the eight corners of a cell have the same label, which is true nearly everywhere, nothing has to be weighted. The
kernel is compiled without fast-math, so that a tie between two labels is decided as in the reference.
"""

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, strict
from warpfactor.kernels.numba.arrays import array, displacement_array, matrix_array, target
from warpfactor.kernels.numba.interpolate import field_at, is_inside, locate


@strict
def _vote(labels, u, moved, A, outside, out):  # type: ignore[no-untyped-def]
    D, H, W = out.shape
    d, h, w = labels.shape
    flat = labels.ravel()
    for row in prange(D * H):
        z = row // H
        y = row - z * H
        voter = np.empty(8, flat.dtype)
        weight = np.empty(8, np.float64)
        for x in range(W):
            uz, uy, ux = field_at(u, moved, z, y, x)
            pz, py, px = locate(A, z, y, x, uz, uy, ux)
            if not is_inside(pz, py, px, d, h, w):
                out[z, y, x] = outside
                continue
            qz = min(max(pz, 0.0), d - 1.0)
            qy = min(max(py, 0.0), h - 1.0)
            qx = min(max(px, 0.0), w - 1.0)
            iz, iy, ix = int(qz), int(qy), int(qx)
            sz = h * w if iz < d - 1 else 0
            sy = w if iy < h - 1 else 0
            sx = 1 if ix < w - 1 else 0
            b = (iz * h + iy) * w + ix
            first = flat[b]
            mixed = False
            for k in range(8):
                voter[k] = flat[b + (k >> 2) * sz + (k >> 1 & 1) * sy + (k & 1) * sx]
                mixed |= voter[k] != first
            if not mixed:
                out[z, y, x] = first
                continue
            fz, fy, fx = qz - iz, qy - iy, qx - ix
            for k in range(8):
                wz = fz if k >> 2 else 1.0 - fz
                wy = fy if k >> 1 & 1 else 1.0 - fy
                wx = fx if k & 1 else 1.0 - fx
                weight[k] = wz * wy * wx
            most = -1.0
            winner = first
            for k in range(8):
                support = 0.0
                for j in range(8):
                    if voter[j] == voter[k]:
                        support += weight[j]
                if support > most:
                    most = support
                    winner = voter[k]
            out[z, y, x] = winner


@exclusive
def sample_labels(
    labels: Tensor,
    displacement: Tensor | None,
    matrix: Tensor,
    *,
    shape: tuple[int, int, int] | None = None,
    outside: float = 0.0,
) -> Tensor:
    """The label with the largest interpolation weight at p = matrix (x + u(x)); see the reference."""
    field, moved, out_shape = displacement_array(displacement, shape)
    out = torch.empty(out_shape, dtype=labels.dtype)
    fill: Any = array(labels).dtype.type(outside)
    _vote(array(labels), field, moved, matrix_array(matrix, labels, out_shape[0]), fill, target(out))
    return out
