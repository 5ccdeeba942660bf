"""The three passes of local normalised cross-correlation: warped image, maps of the windows, gradient.

The second and third pass go through the planes one after the other and keep, per column of voxels, the sums over the
last 2 r + 1 planes of their windows; only sums within a plane are fetched anew. A warped voxel that does not count is
NaN, which takes the place of a third map; so a moving image with NaN in it loses these voxels and not the whole cost.
"""

import triton.language as tl

from warpfactor.kernels.triton.columns import advanced
from warpfactor.kernels.triton.field import store_vector
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.points import (
    arrived,
    fixed_slope,
    mapped,
    moved_voxel,
    of_pair,
    pulled_back,
    slope_at,
    value_at,
)

WIDEST = 7  # radius: wider windows need more registers than there are, and go to the reference


@declared(
    "4 *fp32 2 *u8 *fp32 9 i32",
    {"usual": {"FIXED_MASK": False, "MOVING_MASK": False, "PLANAR": False, "BLOCK": 256}},
    reads={"displacement": 12, "moving": 4},
    writes={"slab warped": 4},
)
def lncc_warp(
    fixed,
    moving,
    u,
    A,
    fixed_mask,
    moving_mask,
    warped,
    start,
    stop,
    planes,
    nz,
    ny,
    nx,
    mz,
    my,
    mx,
    FIXED_MASK: tl.constexpr,
    MOVING_MASK: tl.constexpr,
    PLANAR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """M(p) for the planes from start up to stop, NaN where a voxel does not count."""
    plane, pair = ny * nx, tl.program_id(1)
    i = start * plane + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    use = i < stop * plane
    voxels, others = nz.to(tl.int64) * plane, mz.to(tl.int64) * my * mx
    fixed, moving, u, A, fixed_mask, moving_mask = of_pair(
        pair, fixed, moving, u, A, fixed_mask, moving_mask, voxels, others
    )
    warped += pair.to(tl.int64) * planes * plane
    pz, py, px, w = arrived(
        u, A, fixed_mask, moving_mask, voxels, i, ny, nx, mz, my, mx, use, FIXED_MASK, MOVING_MASK, PLANAR
    )
    m = value_at(moving, pz, py, px, mz, my, mx, use)
    tl.store(warped + i % (planes * plane), tl.where(w, m, float("nan")), mask=use)


_MAPS = {
    "RZ": 2,
    "RX": 2,
    "BOX": True,
    "SQUARED": True,
    "EXACT": True,
    "SYMMETRIC": True,
    "MAPS": True,
    "TY": 8,
    "TX": 32,
}
_SIZES = {f"window {2 * r + 1}": {"RZ": r, "RX": r} for r in (2, 1, 3, 4, WIDEST)}


@declared(
    "4 *fp32 *fp64 *fp32 11 i32",
    {**{name: {**_MAPS, **size} for name, size in _SIZES.items()}, "gaussian": {**_MAPS, "BOX": False}},
    warps=8,
    reads={"fixed": 4, "slab warped": 4},
    writes={"slab maps": 16},
)
def lncc_maps(
    fixed,
    warped,
    taps,
    maps,
    partials,
    flats,
    ry,
    start,
    stop,
    chunk,
    first,
    programs,
    warped_planes,
    map_planes,
    nz,
    ny,
    nx,
    RZ: tl.constexpr,
    RX: tl.constexpr,
    BOX: tl.constexpr,
    SQUARED: tl.constexpr,
    EXACT: tl.constexpr,
    SYMMETRIC: tl.constexpr,
    MAPS: tl.constexpr,
    TY: tl.constexpr,
    TX: tl.constexpr,
):
    """Statistics of the windows around the planes from start up to stop: costs, and maps from which forces follow.

    Exact: maps a, b, c, where the force at y is minus the window's sum of a F(y) - b M(y) - c. Otherwise one map, the
    force of the window around a voxel. With a symmetric slope, one more: rho, NaN where a window has no contrast.
    `flats` holds the least variances of every pair.
    """
    LENGTH: tl.constexpr = 2 * RZ + 1
    KINDS: tl.constexpr = (3 if EXACT else 1) + (1 if SYMMETRIC else 0)
    far = tl.program_id(2).to(tl.int64)
    fixed += far * nz * ny * nx
    warped += far * warped_planes * ny * nx
    maps += far * KINDS * map_planes * ny * nx
    partials += far * 2 * programs
    flat_fixed, flat_moving = tl.load(flats + 2 * far), tl.load(flats + 2 * far + 1)
    tiles = tl.cdiv(nx, TX)
    lane = tl.arange(0, TY * TX)
    y = tl.program_id(0) // tiles * TY + lane // TX
    x = tl.program_id(0) % tiles * TX + lane % TX
    use = (y < ny) & (x < nx)
    plane = ny * nx
    here = y * nx + x
    z0 = start + tl.program_id(1) * chunk
    z1 = tl.minimum(z0 + chunk, stop)
    zero = tl.zeros((TY * TX,), tl.float32)
    ns, fs, ms = (zero,) * LENGTH, (zero,) * LENGTH, (zero,) * LENGTH
    ffs, mms, fms = (zero,) * LENGTH, (zero,) * LENGTH, (zero,) * LENGTH
    total, number = zero.to(tl.float64), zero.to(tl.float64)
    for z in range(z0 - RZ, z1 + RZ):
        depth = lane * 0 + z
        exists = (depth >= 0) & (depth < nz)
        fixed_plane = fixed + depth * plane
        warped_plane = warped + (z % warped_planes) * plane
        n, f1, m1, f2, m2, fm = zero, zero, zero, zero, zero, zero
        for dy in range(-ry, ry + 1):
            row = exists & (y + dy >= 0) & (y + dy < ny)
            for dx in tl.static_range(-RX, RX + 1):
                there = row & (x + dx >= 0) & (x + dx < nx)
                m = tl.load(warped_plane + here + dy * nx + dx, mask=there, other=float("nan"))
                f = tl.load(fixed_plane + here + dy * nx + dx, mask=there, other=0).to(tl.float32)
                w = m == m
                f, m = tl.where(w, f, 0.0), tl.where(w, m, 0.0)
                if BOX:
                    n, f1, m1, f2, m2, fm = n + w.to(tl.float32), f1 + f, m1 + m, f2 + f * f, m2 + m * m, fm + f * m
                else:
                    k = tl.load(taps + 2 * RZ + 1 + ry + dy) * tl.load(taps + 2 * RZ + 2 * ry + 2 + RX + dx)
                    kf, km = k * f, k * m
                    n, f1, m1, f2 = n + k * w.to(tl.float32), f1 + kf, m1 + km, f2 + kf * f
                    m2, fm = m2 + km * m, fm + kf * m
        ns, fs, ms = (
            advanced(ns, n, taps, LENGTH, BOX),
            advanced(fs, f1, taps, LENGTH, BOX),
            advanced(ms, m1, taps, LENGTH, BOX),
        )
        ffs, mms, fms = (
            advanced(ffs, f2, taps, LENGTH, BOX),
            advanced(mms, m2, taps, LENGTH, BOX),
            advanced(fms, fm, taps, LENGTH, BOX),
        )
        if z - RZ >= z0:
            n = ns[0]
            n = tl.where(n > 0, n, 1.0)
            mean_f, mean_m = fs[0] / n, ms[0] / n
            var_f = ffs[0] / n - mean_f * mean_f
            var_m = mms[0] / n - mean_m * mean_m
            cov = fms[0] / n - mean_f * mean_m
            m = tl.load(warped + ((z - RZ) % warped_planes) * plane + here, mask=use, other=float("nan"))
            valid = (m == m) & (var_f > flat_fixed)
            contrast = valid & (var_m > flat_moving)
            scale = var_f * var_m if SQUARED else tl.sqrt(var_f * var_m)
            scale = tl.where(contrast, scale, 1.0)
            cc = tl.where(contrast, (cov * cov if SQUARED else cov) / scale, 0.0)
            total += tl.where(valid, 1.0 - cc, 0.0).to(tl.float64)
            number += valid.to(tl.float64)
            if MAPS:
                a = tl.where(contrast, (2 * cov if SQUARED else zero + 1.0) / scale / n, 0.0)
                b = tl.where(contrast, a * cov / var_m, 0.0)
                c = a * mean_f - b * mean_m
                size = map_planes.to(tl.int64) * plane
                place = maps + ((z - RZ) % map_planes) * plane + here
                if EXACT:
                    tl.store(place, a, mask=use)
                    tl.store(place + size, b, mask=use)
                    tl.store(place + 2 * size, c, mask=use)
                else:
                    f = tl.load(fixed + (depth - RZ) * plane + here, mask=use, other=0).to(tl.float32)
                    tl.store(place, -(a * f - b * m - c), mask=use)
                if SYMMETRIC:
                    rho = tl.sqrt(tl.where(contrast, var_m / var_f, 0.0)) * tl.where(cov > 0, 1.0, -1.0)
                    rho = tl.where(cov == 0, 0.0, rho)
                    tl.store(place + (3 if EXACT else 1) * size, tl.where(contrast, rho, float("nan")), mask=use)
    slot = first + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(partials + slot, tl.sum(total, 0))
    tl.store(partials + programs + slot, tl.sum(number, 0))


_FORCE = {"RZ": 2, "RX": 2, "BOX": True, "EXACT": True, "SYMMETRIC": True, "PLANAR": False, "TY": 8, "TX": 32}


@declared(
    "8 *fp32 12 i32",
    {
        **{name: {**_FORCE, **size} for name, size in _SIZES.items()},
        "gaussian": {**_FORCE, "BOX": False},
        "paper's": {**_FORCE, "RZ": 0, "RX": 0, "EXACT": False, "SYMMETRIC": False},
    },
    warps=8,
    reads={"fixed": 4, "slab warped": 4, "slab maps": 16, "displacement": 12, "moving": 4},
    writes={"gradient": 12},
)
def lncc_force(
    fixed,
    warped,
    maps,
    taps,
    moving,
    u,
    A,
    gradient,
    ry,
    start,
    stop,
    chunk,
    warped_planes,
    map_planes,
    nz,
    ny,
    nx,
    mz,
    my,
    mx,
    RZ: tl.constexpr,
    RX: tl.constexpr,
    BOX: tl.constexpr,
    EXACT: tl.constexpr,
    SYMMETRIC: tl.constexpr,
    PLANAR: tl.constexpr,
    TY: tl.constexpr,
    TX: tl.constexpr,
):
    """The gradient for the planes from start up to stop: the force of all windows around a voxel times its slope."""
    LENGTH: tl.constexpr = 2 * RZ + 1
    KINDS: tl.constexpr = (3 if EXACT else 1) + (1 if SYMMETRIC else 0)
    far = tl.program_id(2).to(tl.int64)
    fixed += far * nz * ny * nx
    moving += far * mz * my * mx
    u += 3 * far * nz * ny * nx
    gradient += 3 * far * nz * ny * nx
    A += 12 * far
    warped += far * warped_planes * ny * nx
    maps += far * KINDS * map_planes * ny * nx
    tiles = tl.cdiv(nx, TX)
    lane = tl.arange(0, TY * TX)
    y = tl.program_id(0) // tiles * TY + lane // TX
    x = tl.program_id(0) % tiles * TX + lane % TX
    use = (y < ny) & (x < nx)
    plane = ny * nx
    here = y * nx + x
    size = map_planes.to(tl.int64) * plane
    voxels = nz.to(tl.int64) * plane
    z0 = start + tl.program_id(1) * chunk
    z1 = tl.minimum(z0 + chunk, stop)
    zero = tl.zeros((TY * TX,), tl.float32)
    As, Bs, Cs = (zero,) * LENGTH, (zero,) * LENGTH, (zero,) * LENGTH
    for z in range(z0 - RZ, z1 + RZ):
        depth = lane * 0 + z
        exists = (depth >= 0) & (depth < nz)
        map_plane = maps + (z % map_planes) * plane
        a, b, c = zero, zero, zero
        if EXACT:
            for dy in range(-ry, ry + 1):
                row = exists & (y + dy >= 0) & (y + dy < ny)
                for dx in tl.static_range(-RX, RX + 1):
                    there = row & (x + dx >= 0) & (x + dx < nx)
                    place = map_plane + here + dy * nx + dx
                    k = 1.0
                    if not BOX:
                        k = tl.load(taps + 2 * RZ + 1 + ry + dy) * tl.load(taps + 2 * RZ + 2 * ry + 2 + RX + dx)
                    a += k * tl.load(place, mask=there, other=0.0)
                    b += k * tl.load(place + size, mask=there, other=0.0)
                    c += k * tl.load(place + 2 * size, mask=there, other=0.0)
            As, Bs, Cs = (
                advanced(As, a, taps, LENGTH, BOX),
                advanced(Bs, b, taps, LENGTH, BOX),
                advanced(Cs, c, taps, LENGTH, BOX),
            )
        if z - RZ >= z0:
            i = (z - RZ) * plane + here
            m = tl.load(warped + ((z - RZ) % warped_planes) * plane + here, mask=use, other=float("nan"))
            w = m == m
            if EXACT:
                f = tl.load(fixed + i, mask=use, other=0).to(tl.float32)
                a, b = As[0], Bs[0]
                force = -(a * f - b * m - Cs[0])
            else:
                force = tl.load(maps + ((z - RZ) % map_planes) * plane + here, mask=use, other=0.0)
            qz, qy, qx = moved_voxel(u, voxels, i, ny, nx, use, True)
            pz, py, px = mapped(A, qz, qy, qx, PLANAR)
            m, dz, dy_, dx_ = slope_at(moving, pz, py, px, mz, my, mx, use)
            gz, gy, gx = pulled_back(A, dz, dy_, dx_)
            if SYMMETRIC:
                place = maps + ((z - RZ) % map_planes) * plane + here + (3 if EXACT else 1) * size
                rho = tl.load(place, mask=use, other=float("nan"))
                contrast = rho == rho
                fz, fy, fx = fixed_slope(fixed, i, nz, ny, nx, use)
                gz = tl.where(contrast, (gz + rho * fz) / 2, gz)
                gy = tl.where(contrast, (gy + rho * fy) / 2, gy)
                gx = tl.where(contrast, (gx + rho * fx) / 2, gx)
            gz, gy, gx = tl.where(w, force * gz, 0.0), tl.where(w, force * gy, 0.0), tl.where(w, force * gx, 0.0)
            store_vector(gradient, voxels, i, gz, gy, gx, use)
