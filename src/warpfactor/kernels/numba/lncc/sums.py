"""Window sums of LNCC along z and y, one row of a block at a time.

Boxes are running sums, in double precision, so that they do not drift from plane to plane and from row to row. Sums
with Gaussian weights are taken anew for every row. A sum is computed for a range of x only; outside it, all terms are
zero. A warped value that does not count is NaN.
"""

import math
from typing import Any

import numpy as np

from warpfactor.kernels.numba._compile.jit import serial, unsigned
from warpfactor.kernels.numba.lncc.correlation import MAPS, PRODUCTS


def gaussian_taps(radius: int) -> Any:
    """exp(-k² / 2s²) for k = -radius, ..., radius, where s is a sixth of the window's edge; not normalised."""
    s = (2 * radius + 1) / 6
    return np.array([math.exp(-0.5 * (k / s) ** 2) for k in range(-radius, radius + 1)])


@serial
def replace_products(Z, line, near, F, z, gone, y, c0, c1):  # type: ignore[no-untyped-def]
    """Update the box sums Z along z of row y: add the products of plane z and subtract those of plane `gone`.

    `near` holds the warped values of plane z; they replace those of plane `gone` in `line`.
    """
    last = F.shape[0] - 1
    new, old = F[min(z, last), y], F[max(gone, 0), y]
    s0, s1, s2, s3, s4, s5 = Z[0], Z[1], Z[2], Z[3], Z[4], Z[5]
    for x in range(unsigned(c0), unsigned(c1)):
        p, q = near[x], line[x]
        line[x] = p
        has, had = p == p, q == q
        m = np.float64(p) if has else 0.0
        n = np.float64(q) if had else 0.0
        f = np.float64(np.float32(new[x])) if has else 0.0
        g = np.float64(np.float32(old[x])) if had else 0.0
        s0[x] += (1.0 if has else 0.0) - (1.0 if had else 0.0)
        s1[x] += f - g
        s2[x] += m - n
        s3[x] += f * f - g * g
        s4[x] += m * m - n * n
        s5[x] += f * m - g * n


@serial
def weight_products(Z, ring, i, F, z, first, y, taps, h0, h1):  # type: ignore[no-untyped-def]
    """Compute the weighted sums Z along z of row y, which is row i of the ring; the ring holds planes `first` to z."""
    K = ring.shape[0]
    for q in range(PRODUCTS):
        for x in range(unsigned(h0), unsigned(h1)):
            Z[q, x] = 0.0
    for k in range(K):
        plane = z + 1 + k - K
        if (plane >= first) & (plane < F.shape[0]):
            row, line, t = F[plane, y], ring[plane % K, i], taps[k]
            for x in range(unsigned(h0), unsigned(h1)):
                has = line[x] == line[x]
                a = t if has else 0.0
                m = np.float64(line[x]) if has else 0.0
                f = np.float64(np.float32(row[x])) if has else 0.0
                Z[0, x] += a
                Z[1, x] += a * f
                Z[2, x] += a * m
                Z[3, x] += a * f * f
                Z[4, x] += a * m * m
                Z[5, x] += a * f * m


@serial
def replace_maps(Z, line, maps, c0, c1):  # type: ignore[no-untyped-def]
    """Update the box sums Z along z of a row of adjoint maps: add `maps` and subtract `line`, which they replace."""
    for q in range(MAPS):
        total, old, new = Z[q], line[q], maps[q]
        for x in range(unsigned(c0), unsigned(c1)):
            total[x] += np.float64(new[x]) - np.float64(old[x])
            old[x] = new[x]


@serial
def weight_maps(Z, ring, i, z, first, taps, h0, h1):  # type: ignore[no-untyped-def]
    """Compute the weighted sums Z along z of a row of adjoint maps; as `weight_products`."""
    K = ring.shape[0]
    for q in range(MAPS):
        total = Z[q]
        for x in range(unsigned(h0), unsigned(h1)):
            total[x] = 0.0
        for k in range(K):
            plane = z + 1 + k - K
            if plane >= first:
                line, t = ring[plane % K, i, q], taps[k]
                for x in range(unsigned(h0), unsigned(h1)):
                    total[x] += t * np.float64(line[x])


@serial
def along_y(acc, Z, y, rows, r, rx, taps, box, h0, h1):  # type: ignore[no-untyped-def]
    """Window sums along y over the rows y - 2r to y of Z into `acc`, whose lines begin rx voxels before the image.

    Z has the given number of rows; those before and after count as zero. A box is a running sum from row to row.
    """
    pad = unsigned(rx)
    for q in range(Z.shape[1]):
        line = acc[q]
        if box:
            gone = y - 2 * r - 1
            if (y < rows) & (gone >= 0):
                new, old = Z[y, q], Z[gone, q]
                for x in range(unsigned(h0), unsigned(h1)):
                    line[x + pad] += new[x] - old[x]
            elif y < rows:
                new = Z[y, q]
                for x in range(unsigned(h0), unsigned(h1)):
                    line[x + pad] += new[x]
            elif gone >= 0:
                old = Z[gone, q]
                for x in range(unsigned(h0), unsigned(h1)):
                    line[x + pad] -= old[x]
        else:
            for x in range(unsigned(h0), unsigned(h1)):
                line[x + pad] = 0.0
            for k in range(2 * r + 1):
                j = y - 2 * r + k
                if (j >= 0) & (j < rows):
                    row, t = Z[j, q], taps[k]
                    for x in range(unsigned(h0), unsigned(h1)):
                        line[x + pad] += t * row[x]
