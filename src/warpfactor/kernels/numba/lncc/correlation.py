"""The pointwise part of LNCC along a row: from window sums to correlations, their adjoint maps, and forces.

F and M are the fixed and the warped image, n the number of voxels of a window, mF, mM, vF, vM its means and variances
and c its covariance. The derivative of the total by M(y) is a sum over the windows x that contain y:

    force(y) = M(y) Σ b(x) - F(y) Σ a(x) - Σ (b(x) mM(x) - a(x) mF(x)),

with a = 2 c / (n vF vM), or 1 / (n sqrt(vF vM)) for the signed correlation, and b = a c / vM. The three maps a, b and
b mM - a mF are called adjoint maps; their sums over windows are taken as those of the images are.
"""

import numpy as np

from warpfactor.kernels.numba._compile.jit import serial, unsigned

PRODUCTS = 6  # products that are summed over the voxels of a window that count: 1, F, M, F², M², F M
MAPS = 3  # adjoint maps: a, b, b mM - a mF


@serial
def correlate(sums, F, M, flat, flags, maps, rho, x0, x1):  # type: ignore[no-untyped-def]
    """Sum of 1 - cc over the windows of a row that count, and their number; fills the adjoint maps and `rho`.

    `rho` is sign(c) sqrt(vM / vF), 0 without contrast. If the gradient is not exact, the first map is the force itself.
    """
    _, squared, exact, _, _ = flags
    n, sF, sM, sFF, sMM, sFM = sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]
    first, second, third = maps[0], maps[1], maps[2]
    total = 0.0
    count = 0.0
    zero, one, two = np.float32(0.0), np.float32(1.0), np.float32(2.0)
    for x in range(unsigned(x0), unsigned(x1)):
        inv = 1.0 / max(n[x], 1e-9)
        mF = sF[x] * inv
        mM = sM[x] * inv
        vF = sFF[x] * inv - mF * mF
        vM = sMM[x] * inv - mM * mM
        counted = (M[x] == M[x]) & (vF > flat[0])
        live = counted & (vM > flat[1])
        # The differences above need double precision; what follows does not.
        c = np.float32(sFM[x] * inv - mF * mM) if live else zero
        by_F = one / (np.float32(vF) if live else one)
        vR = np.float32(vM) if live else one
        by_M = one / vR
        ratio = np.sqrt(vR * by_F)
        a = two * c * by_F * by_M if squared else ratio * by_M
        cc = c * by_F * c * by_M if squared else a * c
        share = np.float32(inv) if live else zero
        b = a * c * by_M * share
        a *= share
        total += np.float64(one - cc) if counted else 0.0
        count += 1.0 if counted else 0.0
        rho[x] = np.copysign(ratio, c) if live else zero
        shift = b * np.float32(mM) - a * np.float32(mF)
        own = b * M[x] - a * np.float32(F[x]) - shift
        own = own if live else zero
        first[x] = a if exact else own
        second[x] = b
        third[x] = shift
    return total, count


@serial
def force_row(sums, F, M, force, x0, x1):  # type: ignore[no-untyped-def]
    """The derivative of the total by M along a row, from the window sums of the adjoint maps."""
    a, b, shift = sums[0], sums[1], sums[2]
    for x in range(unsigned(x0), unsigned(x1)):
        m = M[x]
        s = np.float32(m * b[x] - np.float32(F[x]) * a[x] - shift[x])
        force[x] = s if m == m else np.float32(0.0)
