"""CPU form of `lncc`: value and gradient in one pass over the planes of a tile.

One thread takes a tile (tiles.py) from its first plane to its last and needs nobody else's. Windows reach beyond it:
rows on both sides of a cut, a seam, are sampled before, once for both; planes around a tile it samples itself. In every
plane it goes along the rows once. A row that enters is sampled and added to the window sums along z; sums along y and x
follow while it is in the cache, then the correlation of the row whose window is complete, then the same sums of its
adjoint maps, then the row that leaves. Box windows are running sums along all axes (small ones along x are not), so the
cost does not depend on their size. Only the gradient itself is as large as the image: it first holds dM/du and is then
multiplied in place. Planes around a tile are interpolated without their slopes, by another loop, which may round
otherwise in the last bit.

Most of a brain's image is empty, and windows of the fixed image without contrast count for nothing. So every row has
a span of x, from spans.py, beyond which nothing is computed: all maps are zero there.

Images must be finite where they count. Indices: plane z and row y enter, zc = z - rz and yc = y - ry have complete
windows, zo = z - 2 rz and yo = y - 2 ry leave. A warped value that does not count is NaN.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numba
import numpy as np
from numba import prange
from torch import Tensor

from warpfactor.kernels.buffers import aligned
from warpfactor.kernels.numba._compile.jit import (
    exclusive,
    gradient_array,
    inline,
    offset,
    pair_arrays,
    parallel,
    serial,
)
from warpfactor.kernels.numba.filters import gaussian_taps, window_rows
from warpfactor.kernels.numba.lncc.correlate import ADJOINTS, SUMS, correlate, force_row
from warpfactor.kernels.numba.lncc.spans import Spans, check_spans, clear_beyond, either, hulls, span_of, whole_spans
from warpfactor.kernels.numba.lncc.sums import along_y, replace_maps, replace_products, weigh_maps, weigh_products
from warpfactor.kernels.numba.lncc.tiles import most_rows, widened
from warpfactor.kernels.numba.warp import multiply_row, sample_row, scratch, symmetrize_row

Room: TypeAlias = tuple[Any, ...]  # M, Z, A3, Z2, rho of the kernel, for every thread; warped values of the seams
MISSING, NONE = np.float32(np.nan), np.float32(0.0)


@serial
def _fill(lines, value, x0, x1):  # type: ignore[no-untyped-def]
    """Set x0 <= x < x1 of every line."""
    for q in range(lines.shape[0]):
        line = lines[q]
        for x in range(offset(x0), offset(max(x0, x1))):
            line[x] = value


@serial
def _copy(source, line, x0, x1):  # type: ignore[no-untyped-def]
    """line[x] = source[x] for x0 <= x < x1."""
    for x in range(offset(x0), offset(max(x0, x1))):
        line[x] = source[x]


@serial
def _fill_all(part, value):  # type: ignore[no-untyped-def]
    """Set every element; one loop is several times as fast as an assignment to all axes."""
    flat = part.reshape(part.size)
    for i in range(flat.shape[0]):
        flat[i] = value


@serial
def _fill_around(lines, value, c0, c1, x0, x1):  # type: ignore[no-untyped-def]
    """Set what the span c0, c1 holds beyond the span x0, x1."""
    if x0 < x1:
        _fill(lines, value, c0, x0)
        _fill(lines, value, x1, c1)
    else:
        _fill(lines, value, c0, c1)


@inline
def _sampling(W):  # type: ignore[no-untyped-def]
    """Buffers to sample a row: values, weights and what interpolation needs."""
    return np.empty((1, W), np.float32), np.empty(W, np.float32), scratch(W)


@inline
def _buffers(D, W, rx):  # type: ignore[no-untyped-def]
    """For sampling; sums along y (of products, of maps) and x; maps; a ratio; hulls. The lines stay in the cache."""
    single, wide = np.float32, W + 2 * rx
    sums = np.empty((SUMS, wide)), np.empty((ADJOINTS, wide)), np.empty((SUMS, W))
    return _sampling(W), sums, np.empty((ADJOINTS, W), single), np.empty(W, single), np.empty((2, D), np.int64)


@serial
def _sample_seams(images, want, grad, rows, seams, listed, sampling, start, stop):  # type: ignore[no-untyped-def]
    """Sample the rows of seams in all planes, counted plane by plane from `start` to `stop`."""
    _, moving, u, A, B, fmask, mmask = images
    seam, slots = seams
    _, weight, room = sampling
    for k in range(start, stop):
        z, y = k // listed.size, listed[k % listed.size]
        x0, x1 = span_of(rows, z, y)
        if want:
            clear_beyond(grad[:, z], y, x0, x1)
        if x0 < x1:
            row, on = seam[slots[y], z, x0:x1], weight[x0:x1]
            sample_row(moving, u, A, B, fmask, mmask, z, y, x0, want, MISSING, row, on, room, grad)


@serial
def _enter(images, window, z, y, own, sampling, M, Z, i, first, grad, rows, hull, seams):  # type: ignore[no-untyped-def]
    """Sample row (z, y), with its gradient if it is the tile's own, and bring the sums along z up to date.

    Seams have been sampled. Row i of the rings is cleared when plane `first`, and in M the K - 1 after it, enter.
    """
    F, moving, u, A, B, fmask, mmask = images
    _, taps, _, (box, _, _, _, _) = window
    near, weight, room = sampling
    seam, slots = seams
    K, slot = M.shape[0], slots[y]
    if z == first:
        _fill_all(Z[i], 0.0)
    if z < first + K:
        _fill_all(M[z % K, i], MISSING)
    a0, a1 = span_of(rows, z, y)
    if own & (slot < 0):
        clear_beyond(grad[:, z], y, a0, a1)
    c0, c1 = either(a0, a1, span_of(rows, z - K, y))
    if c0 < c1:
        _fill_around(near, MISSING, c0, c1, a0, a1)
        if (a0 < a1) & (slot >= 0):
            _copy(seam[slot, z], near[0], a0, a1)
        elif a0 < a1:
            row, on = near[0, a0:a1], weight[a0:a1]
            sample_row(moving, u, A, B, fmask, mmask, z, y, a0, own, MISSING, row, on, room, grad)
        line = M[z % K, i]
        if box:
            replace_products(Z[i], line, near[0], F, z, z - K, y, c0, c1)
        else:
            _copy(near[0], line, c0, c1)
    if not box:
        weigh_products(Z[i], M, i, F, z, first, y, taps[0], hull[0], hull[1])


@serial
def _correlate(images, window, z, y, own, lines, maps, rho, row, grad, x0, x1):  # type: ignore[no-untyped-def]
    """Total and count of a row whose windows are complete along z and y, and its maps; only its own count."""
    F = images[0]
    (_, _, rx), taps, flat, flags = window
    box, _, exact, symmetric, want = flags
    acc, _, sums = lines
    window_rows(acc, rx, taps[2], box, sums, x0, x1)
    total, count = correlate(sums, F[z, y], row, flat, flags, maps, rho, x0, x1)
    if not own:
        return 0.0, 0.0
    if want & (not exact):
        if symmetric:
            symmetrize_row(F, z, y, rho, grad, x0, x1)
        multiply_row(maps[0], grad, z, y, x0, x1)
    return total, count


@serial
def _add_maps(window, z, maps, A3, Z2, i, first, c0, c1, x0, x1, hull):  # type: ignore[no-untyped-def]
    """Bring the sums along z of the adjoint maps up to date with plane z, which has maps for x0 <= x < x1.

    Row i of the rings is cleared as in `_enter`.
    """
    _, taps, _, (box, _, _, _, _) = window
    line = A3[z % A3.shape[0], i]
    if z == first:
        _fill_all(Z2[i], 0.0)
    if z < first + A3.shape[0]:
        _fill_all(line, NONE)
    _fill_around(maps, NONE, c0, c1, x0, x1)
    if box:
        replace_maps(Z2[i], line, maps, c0, c1)
    else:
        for q in range(ADJOINTS):
            for x in range(c0, c1):
                line[q, x] = maps[q, x]
        weigh_maps(Z2[i], A3, i, z, first, taps[0], hull[0], hull[1])


@serial
def _leave(images, window, z, y, lines, row, rho, force, grad, rows):  # type: ignore[no-untyped-def]
    """Row (z, y) has complete sums of the maps along z and y: finish its gradient."""
    F = images[0]
    (_, _, rx), taps, _, (box, _, _, symmetric, _) = window
    _, acc, sums = lines
    x0, x1 = span_of(rows, z, y)
    window_rows(acc, rx, taps[2], box, sums[:ADJOINTS], x0, x1)
    if symmetric:
        symmetrize_row(F, z, y, rho, grad, x0, x1)
    force_row(sums, F[z, y], row, force, x0, x1)
    multiply_row(force, grad, z, y, x0, x1)


@serial
def _tile(images, window, grad, state, buffers, rows, tile, seams):  # type: ignore[no-untyped-def]
    """Total and count over one tile, and its part of the gradient."""
    D, H, _ = images[0].shape
    (rz, ry, rx), taps, _, (box, _, exact, symmetric, want) = window
    M, Z, A3, Z2, rho = state
    z0, z1, y0, y1 = tile
    follows = exact & want  # whether sums of the maps follow
    reach = 2 if follows else 1
    top, bottom = widened(y0, y1, reach * ry, H)  # rows that are sampled
    upper, lower = widened(y0, y1, (reach - 1) * ry, H)  # rows that are correlated
    front, back = widened(z0, z1, (reach - 1) * rz, D)
    first, end = max(0, z0 - reach * rz), z1 + reach * rz
    sampling, lines, maps, spare, ends = buffers
    last = min(end, D)
    low, high = ends[0], ends[1]
    hulls(rows, first, last, top, bottom, low, high)
    K = M.shape[0]
    total = 0.0
    count = 0.0
    for z in range(first, end):
        zc, zo = z - rz, z - 2 * rz
        correlates, leaves = (zc >= front) & (zc < back), follows & (zo >= z0) & (zo < z1)
        hull, hull2 = _hull(low, high, first, last, z - 2 * rz, z), _hull(low, high, first, last, z - 3 * rz, zc)
        _fill(lines[0], 0.0, hull[0], hull[1] + 2 * rx)
        _fill(lines[1], 0.0, hull2[0], hull2[1] + 2 * rx)
        for y in range(top, y1 + reach * ry):
            yc, yo = y - ry, y - 2 * ry
            if (y < bottom) & (zc < back):
                own = want & _holds(tile, z, y)
                _enter(images, window, z, y, own, sampling, M, Z, y - top, first, grad, rows, hull, seams)
            if correlates & (yc < lower):
                along_y(lines[0], Z, y - top, bottom - top, ry, rx, taps[1], box, hull[0], hull[1])
            if (zc >= front) & (yc >= upper) & (yc < lower):
                i = yc - top
                x0, x1 = span_of(rows, zc, yc) if correlates else (0, 0)
                if x0 < x1:
                    ratio = rho[zc % rho.shape[0], i] if follows & symmetric else spare
                    own = _holds(tile, zc, yc)
                    t, c = _correlate(images, window, zc, yc, own, lines, maps, ratio, M[zc % K, i], grad, x0, x1)
                    total += t
                    count += c
                if follows:
                    c0, c1 = either(x0, x1, span_of(rows, zc - K, yc))
                    _add_maps(window, zc, maps, A3, Z2, i, front, c0, c1, x0, x1, hull2)
            if leaves & (yc >= upper):
                part = Z2[upper - top :]
                along_y(lines[1], part, yc - upper, lower - upper, ry, rx, taps[1], box, hull2[0], hull2[1])
                if (yo >= y0) & (yo < y1):
                    i = yo - top
                    ratio = rho[zo % rho.shape[0], i]
                    _leave(images, window, zo, yo, lines, M[zo % K, i], ratio, spare, grad, rows)
    return total, count


@inline
def _holds(tile, z, y):  # type: ignore[no-untyped-def]
    """Whether row (z, y) is the tile's own."""
    return (z >= tile[0]) & (z < tile[1]) & (y >= tile[2]) & (y < tile[3])


@inline
def _hull(low, high, first, last, start, stop):  # type: ignore[no-untyped-def]
    """The span of x that holds those of planes start to stop; low and high are of planes first <= z < last."""
    x0, x1 = 0, 0
    for z in range(max(start, first), min(stop + 1, last)):
        x0, x1 = either(x0, x1, (low[z], high[z]))
    return x0, x1


@parallel
def _lncc(F, moving, u, A, fmask, mmask, radius, taps, flat, flags, grad, room, spans):  # type: ignore[no-untyped-def]
    B = A.astype(np.float32)
    M, Z, A3, Z2, rho, seam = room
    rows, tiles, slots, listed = spans
    flat_image, shape, stride = moving
    count, workers = tiles.shape[0], M.shape[0]
    parts = np.zeros((2, count))
    shared = F.shape[0] * listed.size  # rows that two tiles need
    if shared > 0:
        for w in prange(workers):
            images = F, (flat_image, shape, stride), u, A, B, fmask, mmask
            start, stop = shared * w // workers, shared * (w + 1) // workers
            _sample_seams(images, flags[4], grad, rows, (seam, slots), listed, _sampling(F.shape[2]), start, stop)
    for w in prange(workers):
        images = F, (flat_image, shape, stride), u, A, B, fmask, mmask
        window = radius, taps, flat, flags
        state = M[w], Z[w], A3[w], Z2[w], rho[w]
        buffers = _buffers(F.shape[0], F.shape[2], radius[2])
        for k in range(w, count, workers):
            tile = tiles[k, 0], tiles[k, 1], tiles[k, 2], tiles[k, 3]
            t, c = _tile(images, window, grad, state, buffers, rows, tile, (seam, slots))
            parts[0, k] = t
            parts[1, k] = c
    total = 0.0
    counted = 0.0
    for k in range(count):
        total += parts[0, k]
        counted += parts[1, k]
    return total, counted


def lncc_room(
    shape: Sequence[int], radius: Sequence[int], window: str = "box", spans: Sequence[Spans] | None = None
) -> Room:
    """Rings of rows for `lncc` on fixed images of that shape, to be made once and used in every call."""
    reach = _reach(radius, shape, window)
    every = spans or [whole_spans(shape, radius)]
    workers = min(numba.get_num_threads(), max(len(each.tiles) for each in every))
    rows = max(most_rows(each.tiles, 2 * reach[1], shape[1]) for each in every)
    depth, _, W = shape
    K = 2 * reach[0] + 1
    return (
        aligned((workers, K, rows, W)),
        aligned((workers, rows, SUMS, W), np.float64),
        aligned((workers, K, rows, ADJOINTS, W)),
        aligned((workers, rows, ADJOINTS, W), np.float64),
        aligned((workers, reach[0] + 1, rows, W)),
        aligned((max(_seam_rows(each) for each in every), depth, W)),
    )


def _seam_rows(spans: Spans) -> int:
    return int(spans.seams.max(initial=-1)) + 1


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
    if spans is None:
        spans = whole_spans(fixed.shape, radius)
    check_spans(spans, fixed.shape)
    if room is None:
        room = lncc_room(fixed.shape, radius, window, [spans])
    _check_room(room, spans, fixed.shape, reach)
    return _lncc(
        *pair_arrays(fixed, moving, displacement, matrix, fixed_mask, moving_mask),
        reach,
        tuple(gaussian_taps(r) for r in reach),
        flat,
        (window == "box", squared, exact, symmetric, gradient is not None),
        gradient_array(gradient, fixed.shape),
        room,
        (*spans, np.flatnonzero(spans.seams >= 0)),
    )


def _check_room(room: Room, spans: Spans, shape: Sequence[int], reach: Sequence[int]) -> None:
    """Raise unless the rings hold every tile."""
    workers, K, rows, width = room[0].shape
    most = most_rows(spans.tiles, 2 * reach[1], shape[1])
    small = rows < most or room[-1].shape[0] < _seam_rows(spans) or room[-1].shape[1] != shape[0]
    if workers < 1 or small or 2 * reach[0] + 1 != K or width != shape[2]:
        raise ValueError("the room was made for another image, window or spans")
