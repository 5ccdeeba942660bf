"""CPU form of `lncc`: value and gradient in one pass over z with rings of planes.

For every batch of planes two parallel regions run over chunks of rows. The first completes the adjoint sums, finishes
the planes that leave the pipeline, samples the planes that enter it and sums products along x. The second sums along
y and z and takes the correlation. Box windows are running sums, so the cost does not depend on their size. Only the
gradient itself is as large as the image: it first holds dM/du and is then multiplied in place.

Most of a brain's image is empty, and windows of the fixed image without contrast count for nothing. So every plane and
chunk has a span of x, from spans.py, beyond which nothing is computed: all maps are zero there.

Plane indices: `z` enters, `zc = z - r` has complete window sums, `zo = z - 2r` has complete adjoint sums and leaves.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numba import prange
from torch import Tensor

from .filters import column_sums, gaussian_taps, padded, plane_sums, product_sums, row_sums
from .jit import (
    NO_GRADIENT,
    array,
    exclusive,
    inline,
    mask_array,
    matrix_array,
    offset,
    parallel,
    serial,
    strides,
    target,
)
from .spans import Spans, check_spans, clear_beyond, rows_of, span_of, whole_spans
from .warp import sample_row, scratch, symmetrize_row

SUMS = 6  # w, wF, wM, wFF, wMM, wFM
ADJOINTS = 3  # a, b and (b mM - a mF), each over n: the gradient is F box(a) - M box(b) + box(b mM - a mF)
# Planes between two barriers: a barrier costs up to 0.1 ms, planes the rings' memory. At 42x54x41 on two threads of a
# busy machine 4 planes take as long as on one thread; more are 1.2 times as fast.
BATCH, MOST, AREA = 4, 16, 65536  # at least, at most, and as many as have that many voxels

Room: TypeAlias = tuple[Any, ...]  # M, w, T, S, Z, A3, S2, Z2, rho of the kernel


@serial
def _correlate(Z, F, M, w, zc, y, flat, flags, first, second, third, rho, x0, x1):  # type: ignore[no-untyped-def]
    """Correlation of one row of complete windows: adds up 1 - cc, fills the adjoint maps and the contrast ratio.

    Without the neighbourhood term the first adjoint map is the finished derivative by the warped value.
    """
    _, squared, exact, _, _ = flags
    slot = zc % M.shape[0]
    total = 0.0
    count = 0.0
    zero, one, two = np.float32(0.0), np.float32(1.0), np.float32(2.0)
    for x in range(offset(x0), offset(x1)):
        inv = 1.0 / max(Z[0, y, x], 1e-9)
        mF = Z[1, y, x] * inv
        mM = Z[2, y, x] * inv
        vF = Z[3, y, x] * inv - mF * mF
        vM = Z[4, y, x] * inv - mM * mM
        counted = (w[slot, y, x] > 0.0) & (vF > flat[0])
        live = counted & (vM > flat[1])
        # The differences above need double precision; what follows does not.
        c = np.float32(Z[5, y, x] * inv - mF * mM) if live else zero
        by_F = one / (np.float32(vF) if live else one)
        sM = np.float32(vM) if live else one
        by_M = one / sM
        ratio = np.sqrt(sM * by_F)
        a = two * c * by_F * by_M if squared else ratio * by_M
        cc = c * by_F * c * by_M if squared else a * c
        share = np.float32(inv) if live else zero
        b = a * c * by_M * share
        a *= share
        total += np.float64(one - cc) if counted else 0.0
        count += 1.0 if counted else 0.0
        rho[x] = np.copysign(ratio, c) if live else zero
        shift = b * np.float32(mM) - a * np.float32(mF)
        own = b * M[slot, y, x] - a * np.float32(F[zc, y, x]) - shift
        own = own if live else zero
        first[x] = a if exact else own
        second[x] = b
        third[x] = shift
    return total, count


@serial
def _finish_row(Z2, F, M, w, zo, y, grad, x0, x1):  # type: ignore[no-untyped-def]
    """grad *= d total / dM along a row that leaves the pipeline."""
    slot = zo % M.shape[0]
    for x in range(offset(x0), offset(x1)):
        s = M[slot, y, x] * Z2[1, y, x] - np.float32(F[zo, y, x]) * Z2[0, y, x] - Z2[2, y, x]
        t = np.float32(s) if w[slot, y, x] > 0.0 else np.float32(0.0)
        grad[0, zo, y, x] *= t
        grad[1, zo, y, x] *= t
        grad[2, zo, y, x] *= t


@serial
def _multiply_row(own, grad, z, y, x0, x1):  # type: ignore[no-untyped-def]
    """grad *= own along a row: without the neighbourhood term a voxel is finished as soon as its own window is."""
    for x in range(offset(x0), offset(x1)):
        t = own[x]
        grad[0, z, y, x] *= t
        grad[1, z, y, x] *= t
        grad[2, z, y, x] *= t


@serial
def _leave(z, lag, k, F, A3, S2, Z2, rho, M, w, radius, taps, flags, grad, spans):  # type: ignore[no-untyped-def]
    """Rows of chunk k after plane z was summed: complete the adjoint sums and multiply the plane that leaves."""
    rz, ry, rx = radius
    box, _, _, symmetric, _ = flags
    n = F.shape[2]
    zo = z - lag
    if zo >= F.shape[0]:
        return
    y0, y1 = rows_of(k, F.shape[1])
    acc = np.empty((ADJOINTS, n))
    rows = np.empty((ADJOINTS, 1, n), np.float32)
    sums = np.zeros((ADJOINTS, 1, n), np.float32)
    lines = padded(1, n, rx)
    a0, a1 = span_of(spans, z - rz, k)
    b0, b1 = _either(a0, a1, span_of(spans, z - rz - S2.shape[1], k))
    x0, x1 = span_of(spans, zo, k)
    if not box:
        b0, b1 = _either(b0, b1, (x0, x1))
    for y in range(y0, y1):
        column_sums(A3, y, y == y0, ry, taps[1], box, acc, rows, a0, a1)
        row_sums(rows, rx, taps[2], box, lines, sums, 0, a0, a1)
        plane_sums(sums, S2, y, z, taps[0], box, Z2, b0, b1)
        if zo >= 0:
            if symmetric:
                symmetrize_row(F, zo, y, rho[zo % rho.shape[0], y], grad, x0, x1)
            _finish_row(Z2, F, M, w, zo, y, grad, x0, x1)


@serial
def _enter(z, batch, k, F, img, stride, u, A, B, fmask, mmask, radius, taps, flags, M, w, T, grad, spans):  # type: ignore[no-untyped-def]
    """Rows of chunk k of plane z: sample them and sum their products along x."""
    slot = z % M.shape[0]
    n = F.shape[2]
    room = scratch(n)
    lines = padded(SUMS, n, radius[2])
    y0, y1 = rows_of(k, F.shape[1])
    x0, x1 = span_of(spans, z, k)
    before = span_of(spans, z - batch, k)
    for y in range(y0, y1):
        clear_beyond(T, y, before, x0, x1)
        if z < F.shape[0]:
            if flags[4]:
                clear_beyond(grad[:, z], y, (0, n), x0, x1)
            near, weight = M[slot, y, x0:x1], w[slot, y, x0:x1]
            sample_row(img, stride, u, A, B, fmask, mmask, z, y, x0, flags[4], near, weight, room, grad)
            product_sums(F, M, w, z, slot, y, radius[2], taps[2], flags[0], lines, T, x0, x1)


@serial
def _sum(z, batch, k, F, M, w, T, S, Z, A3, rho, radius, taps, flat, flags, grad, spans):  # type: ignore[no-untyped-def]
    """Rows of chunk k after plane z entered: window sums along y and z, then the correlation of plane z - rz."""
    _, _, exact, symmetric, want = flags
    n = F.shape[2]
    zc = z - radius[0]
    y0, y1 = rows_of(k, F.shape[1])
    acc = np.empty((SUMS, n))
    rows = np.zeros((SUMS, 1, n), np.float32)
    spare = np.empty((ADJOINTS + 1, n), np.float32)
    a0, a1 = span_of(spans, z, k)
    b0, b1 = _either(a0, a1, span_of(spans, z - S.shape[1], k))
    x0, x1 = span_of(spans, zc, k)
    before = span_of(spans, zc - batch, k)
    if not flags[0]:
        b0, b1 = _either(b0, b1, (x0, x1))
    total = 0.0
    count = 0.0
    for y in range(y0, y1):
        column_sums(T, y, y == y0, radius[1], taps[1], flags[0], acc, rows, a0, a1)
        plane_sums(rows, S, y, z, taps[0], flags[0], Z, b0, b1)
        keep = exact & want
        if keep:
            clear_beyond(A3, y, before, x0, x1)
        if x0 < x1:
            # What nobody reads goes to a row that stays in the cache.
            first, second, third = (A3[0, y], A3[1, y], A3[2, y]) if keep else (spare[0], spare[1], spare[2])
            ratio = rho[zc % rho.shape[0], y] if keep & symmetric else spare[3]
            t, c = _correlate(Z, F, M, w, zc, y, flat, flags, first, second, third, ratio, x0, x1)
            total += t
            count += c
            if want & (not exact):
                if symmetric:
                    symmetrize_row(F, zc, y, ratio, grad, x0, x1)
                _multiply_row(first, grad, zc, y, x0, x1)
    return total, count


@inline
def _either(x0, x1, other):  # type: ignore[no-untyped-def]
    """The shortest span that holds two."""
    if other[0] >= other[1]:
        return x0, x1
    if x0 >= x1:
        return other
    return min(x0, other[0]), max(x1, other[1])


@serial
def _clear(part):  # type: ignore[no-untyped-def]
    """Every element = 0; one loop is several times as fast as an assignment to all axes."""
    flat = part.reshape(-1)
    for i in range(flat.shape[0]):
        flat[i] = 0.0


@parallel
def _lncc(F, img, stride, u, A, fmask, mmask, radius, taps, flat, flags, grad, room, spans):  # type: ignore[no-untyped-def]
    D = F.shape[0]
    rz = radius[0]
    follows = flags[2] & flags[4]  # whether a second stage follows, of the adjoint sums
    lag = 2 * rz if follows else rz
    B = A.astype(np.float32)
    M, w, T, S, Z, A3, S2, Z2, rho = room
    _clear(T)  # what is not cleared is written before it is read
    _clear(S)
    _clear(Z)
    if follows:
        _clear(A3)
        _clear(S2)
        _clear(Z2)
    chunks = spans.shape[1]
    batch = T.shape[0]
    parts = np.zeros((2, batch, chunks))
    total = 0.0
    count = 0.0
    for start in range(0, D + lag + batch, batch):
        for j in prange(chunks):
            k = _spread(j, chunks)
            for i in range(batch):
                z = start + i
                if follows & (z >= batch):
                    _leave(z - batch, lag, k, F, A3[i], S2, Z2, rho, M, w, radius, taps, flags, grad, spans)
                _enter(z, batch, k, F, img, stride, u, A, B, fmask, mmask, radius, taps, flags, M, w, T[i], grad, spans)
        for j in prange(chunks):
            k = _spread(j, chunks)
            for i in range(batch):
                t, c = _sum(
                    start + i, batch, k, F, M, w, T[i], S, Z, A3[i], rho, radius, taps, flat, flags, grad, spans
                )
                parts[0, i, k] = t
                parts[1, i, k] = c
        for i in range(batch):
            for k in range(chunks):
                total += parts[0, i, k]
                count += parts[1, i, k]
    return total, count


@inline
def _spread(j, chunks):  # type: ignore[no-untyped-def]
    """The j-th chunk to take: every other one first, so that all threads get some of the middle."""
    half = (chunks + 1) // 2
    return 2 * j if j < half else 2 * (j - half) + 1


def lncc_room(shape: Sequence[int], radius: Sequence[int], window: str = "box") -> Room:
    """Rings of planes for `lncc` on fixed images of that shape, to be made once and used in every call."""
    D, H, W = shape
    rz = _reach(radius, shape, window)[0]
    K = 2 * rz + 1
    batch = min(D, MOST, max(BATCH, -(-AREA // (H * W))))
    single, double = np.float32, np.float64
    return (
        np.empty((K + batch, H, W), single),
        np.empty((K + batch, H, W), single),
        np.empty((batch, SUMS, H, W), single),
        np.empty((SUMS, K, H, W), single),
        np.empty((SUMS, H, W), double),
        np.empty((batch, ADJOINTS, H, W), single),
        np.empty((ADJOINTS, K, H, W), single),
        np.empty((ADJOINTS, H, W), double),
        np.empty((rz + 1 + batch, H, W), single),
    )


def _reach(radius: Sequence[int], shape: Sequence[int], window: str) -> Any:
    """A box beyond the border holds nothing more: capping its radius changes no sum and saves ring planes."""
    return tuple(min(r, n - 1) if window == "box" else r for r, n in zip(radius, shape, strict=True))


@exclusive
def lncc(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    radius: tuple[int, int, int],
    window: str = "box",
    squared: bool = True,
    exact: bool = True,
    symmetric: bool = False,
    flat: tuple[float, float] = (0.0, 0.0),
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
    room: Room | None = None,
    spans: Spans | None = None,
) -> tuple[float, float]:
    """Total and count of 1 - LNCC, and the derivative of the total by the displacement; see the reference."""
    if window not in ("box", "gaussian"):
        raise ValueError(f"unknown window {window!r}; use 'box' or 'gaussian'")
    reach = _reach(radius, fixed.shape, window)
    if room is None:
        room = lncc_room(fixed.shape, radius, window)
    if room[3].shape != (SUMS, 2 * reach[0] + 1, *fixed.shape[1:]):
        raise ValueError("the room was made for another image or window")
    if spans is None:
        spans = whole_spans(fixed.shape)
    check_spans(spans, fixed.shape)
    return _lncc(
        array(fixed),
        array(moving),
        strides(tuple(moving.shape)),
        array(displacement),
        matrix_array(matrix, moving, fixed.shape[0]),
        mask_array(fixed_mask),
        mask_array(moving_mask),
        reach,
        tuple(gaussian_taps(r) for r in reach),
        flat,
        (window == "box", squared, exact, symmetric, gradient is not None),
        NO_GRADIENT if gradient is None else target(gradient),
        room,
        spans,
    )
