"""The LNCC kernel: value and gradient in one pass over the planes of every block.

One thread works on a block (blocks.py) from its first plane to its last and does not wait for other threads. Windows
reach beyond the block. The rows near a cut between rows, a seam, are interpolated beforehand, once for both sides; the
planes in front of and behind the block each thread interpolates itself.

In every plane the thread goes through the rows once, and a row passes four stages while it is in the cache:

1. It enters: it is interpolated, and the window sums along z are updated. Sums along y follow.
2. The row whose windows are now complete along z and y is summed along x and correlated.
3. The same window sums are taken of its adjoint maps.
4. The row for which these are complete leaves: its gradient is finished.

Box windows are running sums along all axes (small ones along x are not), so the cost hardly depends on their size. Only
the gradient itself is as large as the image: it first holds dM/du and is then multiplied in place. Planes around a
block are interpolated without their derivatives, by another loop, which may round differently in the last bit.

A running sum depends on where it began, in its last bits. Along z the sums are therefore taken anew in every FRESH-th
plane of the image, from the planes in the ring. What a plane gets then depends on the planes around it and not on where
its block, or the part of the planes that is computed (planes.py), begins.

Outside the span of a row (spans.py) nothing is computed, and all maps are zero.

Indices: plane z and row y enter; zc = z - rz and yc = y - ry have complete windows; zo = z - 2 rz and yo = y - 2 ry
leave. K = 2 rz + 1 is the number of planes of a ring. A warped value that does not count is NaN, so images must be
finite where they count.
"""

from typing import Any

import numpy as np
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, inline, parallel, serial, unsigned
from warpfactor.kernels.numba.arrays import gradient_array, pair_arrays
from warpfactor.kernels.numba.interpolate_rows import multiply_row, row_buffers, sample_row, symmetrize_row
from warpfactor.kernels.numba.lncc.blocks import widened
from warpfactor.kernels.numba.lncc.correlation import MAPS, PRODUCTS, correlate, force_row
from warpfactor.kernels.numba.lncc.plan import Plan, reach_of, whole_plan
from warpfactor.kernels.numba.lncc.spans import clear_outside, hull, plane_hulls, span_of
from warpfactor.kernels.numba.lncc.sums import (
    along_y,
    gaussian_taps,
    replace_maps,
    replace_products,
    weight_maps,
    weight_products,
)
from warpfactor.kernels.numba.windows import window_rows

MISSING, ZERO = np.float32(np.nan), np.float32(0.0)
FRESH = 16  # planes


@serial
def _fill(lines, value, x0, x1):  # type: ignore[no-untyped-def]
    """Set every line to `value` for x0 <= x < x1."""
    for q in range(lines.shape[0]):
        line = lines[q]
        for x in range(unsigned(x0), unsigned(max(x0, x1))):
            line[x] = value


@serial
def _copy(source, line, x0, x1):  # type: ignore[no-untyped-def]
    """line[x] = source[x] for x0 <= x < x1."""
    for x in range(unsigned(x0), unsigned(max(x0, x1))):
        line[x] = source[x]


@serial
def _fill_all(part, value):  # type: ignore[no-untyped-def]
    """Set every element to `value`; one loop is several times as fast as an assignment to all axes."""
    flat = part.reshape(part.size)
    for i in range(flat.shape[0]):
        flat[i] = value


@serial
def _fill_around(lines, value, c0, c1, x0, x1):  # type: ignore[no-untyped-def]
    """Set every line to `value` where the span (c0, c1) reaches beyond the span (x0, x1)."""
    if x0 < x1:
        _fill(lines, value, c0, x0)
        _fill(lines, value, x1, c1)
    else:
        _fill(lines, value, c0, c1)


@inline
def _sampling_buffers(W):  # type: ignore[no-untyped-def]
    """Buffers to interpolate a row: values, weights, and those of interpolate_rows.py."""
    return np.empty((1, W), np.float32), np.empty(W, np.float32), row_buffers(W)


@inline
def _line_buffers(D, W, rx):  # type: ignore[no-untyped-def]
    """The buffers of one thread that stay in its nearest cache.

    They are those for interpolation; window sums along y (of products, of maps) and along x; the maps of a row; a ratio
    or force; the hulls of all planes.
    """
    single, wide = np.float32, W + 2 * rx
    sums = np.empty((PRODUCTS, wide)), np.empty((MAPS, wide)), np.empty((PRODUCTS, W))
    return _sampling_buffers(W), sums, np.empty((MAPS, W), single), np.empty(W, single), np.empty((2, D), np.int64)


@serial
def _sample_seams(images, want, grad, spans, seams, listed, sampling, plane, start, stop):  # type: ignore[no-untyped-def]
    """Interpolate the rows of seams, `listed`: numbers `start` to `stop` if counted plane by plane from `plane` on."""
    _, moving, u, A, B, fmask, mmask = images
    seam_values, numbers = seams
    _, weight, buffers = sampling
    for k in range(start, stop):
        z, y = plane + k // listed.size, listed[k % listed.size]
        x0, x1 = span_of(spans, z, y)
        if want:
            clear_outside(grad[:, z], y, x0, x1)
        if x0 < x1:
            row, on = seam_values[numbers[y], z, x0:x1], weight[x0:x1]
            sample_row(moving, u, A, B, fmask, mmask, z, y, x0, want, MISSING, row, on, buffers, grad)


@serial
def _enter(images, window, z, y, own, sampling, warped, sums, i, first, grad, spans, hull_z, seams):  # type: ignore[no-untyped-def]
    """Interpolate row (z, y), with its derivatives if it is the block's `own`, and update the window sums along z.

    Rows of seams have been interpolated already. Row i of the rings belongs to row y. It is cleared when plane
    `first`, the first one that enters, does so; the ring of warped values also for the K - 1 planes after it.
    """
    F, moving, u, A, B, fmask, mmask = images
    _, taps, _, (box, _, _, _, _) = window
    near, weight, buffers = sampling
    seam_values, numbers = seams
    K, number = warped.shape[0], numbers[y]
    if z == first:
        _fill_all(sums[i], 0.0)
    if z < first + K:
        _fill_all(warped[z % K, i], MISSING)
    a0, a1 = span_of(spans, z, y)
    if own & (number < 0):
        clear_outside(grad[:, z], y, a0, a1)
    c0, c1 = hull(a0, a1, span_of(spans, z - K, y))
    if c0 < c1:
        _fill_around(near, MISSING, c0, c1, a0, a1)
        if (a0 < a1) & (number >= 0):
            _copy(seam_values[number, z], near[0], a0, a1)
        elif a0 < a1:
            row, on = near[0, a0:a1], weight[a0:a1]
            sample_row(moving, u, A, B, fmask, mmask, z, y, a0, own, MISSING, row, on, buffers, grad)
        line = warped[z % K, i]
        if box & (z % FRESH != 0):
            replace_products(sums[i], line, near[0], F, z, z - K, y, c0, c1)
        else:
            _copy(near[0], line, c0, c1)
    if box & (z % FRESH == 0):
        _fill_all(sums[i], 0.0)
    if (not box) | (z % FRESH == 0):
        weight_products(sums[i], warped, i, F, z, first, y, taps[0], hull_z[0], hull_z[1])


@serial
def _correlate(images, window, z, y, own, lines, maps, rho, row, grad, x0, x1):  # type: ignore[no-untyped-def]
    """Total and count of row (z, y), whose windows are complete along z and y; fills its maps.

    Rows that are not the block's own have maps, but do not count.
    """
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
def _add_maps(window, z, maps, ring, sums, i, first, c0, c1, x0, x1, hull_z):  # type: ignore[no-untyped-def]
    """Update the window sums along z of the adjoint maps with plane z, which has maps for x0 <= x < x1.

    Row i of the rings is cleared as in `_enter`.
    """
    _, taps, _, (box, _, _, _, _) = window
    line = ring[z % ring.shape[0], i]
    fresh = (z - ring.shape[0] // 2) % FRESH == 0  # as the plane that leaves now is one
    if (z == first) | (box & fresh):
        _fill_all(sums[i], 0.0)
    if z < first + ring.shape[0]:
        _fill_all(line, ZERO)
    _fill_around(maps, ZERO, c0, c1, x0, x1)
    if box & (not fresh):
        replace_maps(sums[i], line, maps, c0, c1)
    else:
        for q in range(MAPS):
            for x in range(c0, c1):
                line[q, x] = maps[q, x]
        weight_maps(sums[i], ring, i, z, first, taps[0], hull_z[0], hull_z[1])


@serial
def _leave(images, window, z, y, lines, row, rho, force, grad, spans):  # type: ignore[no-untyped-def]
    """Finish the gradient of row (z, y), for which the sums of the maps are complete along z and y."""
    F = images[0]
    (_, _, rx), taps, _, (box, _, _, symmetric, _) = window
    _, acc, sums = lines
    x0, x1 = span_of(spans, z, y)
    window_rows(acc, rx, taps[2], box, sums[:MAPS], x0, x1)
    if symmetric:
        symmetrize_row(F, z, y, rho, grad, x0, x1)
    force_row(sums, F[z, y], row, force, x0, x1)
    multiply_row(force, grad, z, y, x0, x1)


@inline
def first_fresh(z):  # type: ignore[no-untyped-def]
    """The last plane up to z at which sums are taken anew."""
    return z // FRESH * FRESH


@serial
def _block(images, window, grad, rings, buffers, spans, block, seams, own_planes, parts):  # type: ignore[no-untyped-def]
    """Totals and counts, parts[0, z] and parts[1, z], of the planes of a block, and its part of the gradient.

    Of the planes of the block those are computed for which own_planes[0] <= z < own_planes[1].
    """
    D, H, _ = images[0].shape
    (rz, ry, rx), taps, _, (box, _, exact, symmetric, want) = window
    warped, product_sums, maps_ring, map_sums, ratios = rings
    z0, z1, y0, y1 = block
    follows = exact & want  # whether the maps are summed over windows
    reach = 2 if follows else 1
    top, bottom = widened(y0, y1, reach * ry, H)  # rows that are interpolated
    upper, lower = widened(y0, y1, (reach - 1) * ry, H)  # rows that are correlated
    front, back = widened(z0, z1, (reach - 1) * rz, D)  # planes that are correlated
    first, end = max(0, z0 - reach * rz), z1 + reach * rz  # planes that are interpolated
    begin, stop = max(z0, own_planes[0]), min(z1, own_planes[1])
    if begin >= stop:
        return
    fresh = first_fresh(begin)
    if fresh > z0:  # what lies before has no part in the sums from here on
        first, front = max(first, fresh - 2 * rz), max(front, fresh - (reach - 1) * rz)
    end, back = min(end, stop + reach * rz), min(back, stop + (reach - 1) * rz)
    sampling, lines, maps, spare, ends = buffers
    last = min(end, D)
    low, high = ends[0], ends[1]
    plane_hulls(spans, first, last, top, bottom, low, high)
    K = warped.shape[0]
    for z in range(first, end):
        zc, zo = z - rz, z - 2 * rz
        correlates, leaves = (zc >= front) & (zc < back), follows & (zo >= begin) & (zo < stop)
        hull_z = _window_hull(low, high, first, last, z - 2 * rz, z)
        hull_c = _window_hull(low, high, first, last, z - 3 * rz, zc)
        _fill(lines[0], 0.0, hull_z[0], hull_z[1] + 2 * rx)
        _fill(lines[1], 0.0, hull_c[0], hull_c[1] + 2 * rx)
        for y in range(top, y1 + reach * ry):
            yc, yo = y - ry, y - 2 * ry
            if (y < bottom) & (zc < back):
                own = want & _contains(block, z, y)
                _enter(
                    images,
                    window,
                    z,
                    y,
                    own,
                    sampling,
                    warped,
                    product_sums,
                    y - top,
                    first,
                    grad,
                    spans,
                    hull_z,
                    seams,
                )
            if correlates & (yc < lower):
                along_y(lines[0], product_sums, y - top, bottom - top, ry, rx, taps[1], box, hull_z[0], hull_z[1])
            if (zc >= front) & (yc >= upper) & (yc < lower):
                i = yc - top
                x0, x1 = span_of(spans, zc, yc) if correlates else (0, 0)
                if x0 < x1:
                    rho = ratios[zc % ratios.shape[0], i] if follows & symmetric else spare
                    own = _contains((begin, stop, y0, y1), zc, yc)
                    t, c = _correlate(images, window, zc, yc, own, lines, maps, rho, warped[zc % K, i], grad, x0, x1)
                    parts[0, zc] += t
                    parts[1, zc] += c
                if follows:
                    c0, c1 = hull(x0, x1, span_of(spans, zc - K, yc))
                    _add_maps(window, zc, maps, maps_ring, map_sums, i, front, c0, c1, x0, x1, hull_c)
            if leaves & (yc >= upper):
                part = map_sums[upper - top :]
                along_y(lines[1], part, yc - upper, lower - upper, ry, rx, taps[1], box, hull_c[0], hull_c[1])
                if (yo >= y0) & (yo < y1):
                    i = yo - top
                    rho = ratios[zo % ratios.shape[0], i]
                    _leave(images, window, zo, yo, lines, warped[zo % K, i], rho, spare, grad, spans)


@inline
def _contains(block, z, y):  # type: ignore[no-untyped-def]
    """Whether row (z, y) is the block's own."""
    return (z >= block[0]) & (z < block[1]) & (y >= block[2]) & (y < block[3])


@inline
def _window_hull(low, high, first, last, start, stop):  # type: ignore[no-untyped-def]
    """The shortest span that contains the hulls (low, high) of planes start <= z <= stop, if first <= z < last."""
    x0, x1 = 0, 0
    for z in range(max(start, first), min(stop + 1, last)):
        x0, x1 = hull(x0, x1, (low[z], high[z]))
    return x0, x1


@parallel
def lncc_of_planes(F, moving, u, A, fmask, mmask, radius, taps, flat, flags, grad, buffers, division, z0, z1):  # type: ignore[no-untyped-def]
    """(blocks, 2, D): totals and counts of planes z0 <= z < z1 of every block, and their part of the gradient."""
    B = A.astype(np.float32)
    warped, product_sums, maps, map_sums, ratios, seam_values = buffers
    spans, blocks, numbers, listed = division
    flat_image, shape, stride = moving
    count, workers = blocks.shape[0], warped.shape[0]
    parts = np.zeros((count, 2, F.shape[0]))
    plane, last = max(0, first_fresh(z0) - 2 * radius[0]), min(F.shape[0], z1 + 2 * radius[0])
    shared = (last - plane) * listed.size  # rows that two blocks need
    if shared > 0:
        for w in prange(workers):
            images = F, (flat_image, shape, stride), u, A, B, fmask, mmask
            start, stop = shared * w // workers, shared * (w + 1) // workers
            sampling = _sampling_buffers(F.shape[2])
            _sample_seams(images, flags[4], grad, spans, (seam_values, numbers), listed, sampling, plane, start, stop)
    for w in prange(workers):
        images = F, (flat_image, shape, stride), u, A, B, fmask, mmask
        window = radius, taps, flat, flags
        rings = warped[w], product_sums[w], maps[w], map_sums[w], ratios[w]
        lines = _line_buffers(F.shape[0], F.shape[2], radius[2])
        for k in range(w, count, workers):
            block = blocks[k, 0], blocks[k, 1], blocks[k, 2], blocks[k, 3]
            _block(images, window, grad, rings, lines, spans, block, (seam_values, numbers), (z0, z1), parts[k])
    return parts


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
    plan: object | None = None,
) -> tuple[float, float]:
    """Sum of 1 - LNCC over the windows that count, and their number; see the reference."""
    made = checked_plan(plan, tuple(fixed.shape), radius, window)
    images = pair_arrays(fixed, moving, displacement, matrix, fixed_mask, moving_mask)
    flags = (window == "box", squared, exact, symmetric, gradient is not None)
    grad = gradient_array(gradient, fixed.shape)
    return lncc_total(lncc_of_planes(*images, *lncc_arguments(made, flat, flags, grad), 0, fixed.shape[0]))


def lncc_total(parts: Any) -> tuple[float, float]:
    """Total and count from those of the planes of every block; they are added in a fixed order."""
    total, count = parts.sum(axis=2).sum(axis=0)
    return float(total), float(count)


def lncc_arguments(made: Plan, flat: tuple[float, float], flags: Any, grad: Any) -> Any:
    """What the kernel takes besides the images. The taps of a box are ones."""
    spans, blocks, seams = made.division
    taps = tuple(np.ones(2 * r + 1) if flags[0] else gaussian_taps(r) for r in made.reach)
    division = (spans, blocks, seams, np.flatnonzero(seams >= 0))
    return made.reach, taps, flat, flags, grad, tuple(made.buffers), division


def checked_plan(plan: object | None, shape: tuple[int, ...], radius: Any, window: str) -> Plan:
    """The plan, if it was made for this shape and window; a new one if it is None."""
    if window not in ("box", "gaussian"):
        raise ValueError(f"unknown window {window!r}; use 'box' or 'gaussian'")
    if plan is None:
        return whole_plan(shape, radius, window)
    if not isinstance(plan, Plan):
        raise TypeError(f"the plan must come from lncc_plans of the same backend, not be a {type(plan).__name__}")
    if (plan.shape, plan.window, plan.reach) != (shape, window, reach_of(radius, shape, window)):
        raise ValueError("the plan was made for another image or window; make one with lncc_plans")
    return plan
