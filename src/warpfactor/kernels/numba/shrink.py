"""CPU form of `shrink`: smoothing and interpolation as one weighted sum per axis.

The sums are computed only where the result has voxels, along z first, so that less is left to do along y and x. A
smoothed image of the full size is never made.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, parallel, serial
from warpfactor.kernels.numba.arrays import array, target
from warpfactor.kernels.taps import gaussian_kernel

TRUNCATE = 3.0  # as in the reference


@serial
def _combine(lines, places, weights, out):  # type: ignore[no-untyped-def]
    """out[x] = sum over k of weights[k] lines[places[k], x]."""
    n = out.shape[0]
    for k in range(places.shape[0]):
        t = weights[k]
        line = lines[places[k]]
        if k == 0:
            for x in range(n):
                out[x] = t * np.float32(line[x])
        else:
            for x in range(n):
                out[x] += t * np.float32(line[x])


@parallel
def _along_z(images, places, weights, out):  # type: ignore[no-untyped-def]
    C, D, H, _ = out.shape
    for i in prange(C * H):
        c = i // H
        y = i - c * H
        for z in range(D):
            _combine(images[c, :, y], places[z], weights[z], out[c, z, y])


@parallel
def _along_y(images, places, weights, out):  # type: ignore[no-untyped-def]
    C, D, H, _ = out.shape
    for i in prange(C * D):
        c = i // D
        z = i - c * D
        for y in range(H):
            _combine(images[c, z], places[y], weights[y], out[c, z, y])


@parallel
def _along_x(images, places, weights, out):  # type: ignore[no-untyped-def]
    C, D, H, W = out.shape
    for i in prange(C * D * H):
        c = i // (D * H)
        z = (i - c * D * H) // H
        y = i - c * D * H - z * H
        line = images[c, z, y]
        for x in range(W):
            total = np.float32(0.0)
            for k in range(places.shape[1]):
                total += weights[x, k] * np.float32(line[places[x, k]])
            out[c, z, y, x] = total


_ALONG = (_along_z, _along_y, _along_x)


@exclusive
def shrink(images: Tensor, shape: Sequence[int], sigma: Sequence[float]) -> Tensor:
    """The images, smoothed, on a smaller grid over the same field of view; see the reference."""
    result = images
    for axis, (along, m, s) in enumerate(zip(_ALONG, shape, sigma, strict=True)):
        n = images.shape[axis + 1]
        if m == n and (s <= 0 or n == 1):
            continue
        sizes = list(result.shape)
        sizes[axis + 1] = m
        out = torch.empty(sizes, dtype=torch.float32)
        along(array(result), *_sums(n, m, s), target(out))
        result = out
    return result.to(torch.float32, copy=result is images)


def _sums(n: int, m: int, sigma: float) -> tuple[Any, Any]:
    """Indices and weights, both (m, taps), of the voxels among n that make up each of m voxels.

    Beyond the border the edge voxel holds.
    """
    taps = np.array(gaussian_kernel(sigma, TRUNCATE) if sigma > 0 and n > 1 else [1.0])
    factor = n / m
    position = np.clip(factor * np.arange(m) + (factor - 1) / 2, 0, n - 1)
    first = np.minimum(position.astype(np.int64), max(n - 2, 0))
    share = (position - first)[:, None]
    reach = len(taps) // 2
    places = np.clip(first[:, None] + np.arange(-reach, reach + 2), 0, n - 1)
    weights = (1 - share) * np.append(taps, 0.0) + share * np.append(0.0, taps)
    return places, weights.astype(np.float32)
