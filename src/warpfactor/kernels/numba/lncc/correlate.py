"""The pointwise part of LNCC: from the window sums of a row to its correlations, their adjoint maps and its force."""

import numpy as np

from warpfactor.kernels.numba._compile.jit import offset, serial

SUMS = 6  # w, wF, wM, wFF, wMM, wFM
ADJOINTS = 3  # a, b and (b mM - a mF), each over n: the force is M box(b) - F box(a) - box(b mM - a mF)


@serial
def correlate(sums, F, M, flat, flags, maps, rho, x0, x1):  # type: ignore[no-untyped-def]
    """Correlation of one row of complete windows: adds up 1 - cc, fills the adjoint maps and the contrast ratio.

    Without the neighbourhood term the first adjoint map is the finished derivative by the warped value.
    """
    _, squared, exact, _, _ = flags
    n, sF, sM, sFF, sMM, sFM = sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]
    first, second, third = maps[0], maps[1], maps[2]
    total = 0.0
    count = 0.0
    zero, one, two = np.float32(0.0), np.float32(1.0), np.float32(2.0)
    for x in range(offset(x0), offset(x1)):
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
    """d total / dM along a row, from the window sums of the adjoint maps."""
    a, b, shift = sums[0], sums[1], sums[2]
    for x in range(offset(x0), offset(x1)):
        m = M[x]
        s = np.float32(m * b[x] - np.float32(F[x]) * a[x] - shift[x])
        force[x] = s if m == m else np.float32(0.0)
