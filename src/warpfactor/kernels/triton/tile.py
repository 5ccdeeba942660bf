"""The step with a Hessian pooled over a window, in place: a copy of a few planes is read, the gradient is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.numbers import larger
from warpfactor.kernels.pairs import paired
from warpfactor.kernels.triton import slabs
from warpfactor.kernels.triton.columns import CHUNK, advanced, plane_tiles
from warpfactor.kernels.triton.descent import finished
from warpfactor.kernels.triton.field import load_vector, store_vector
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import Partials, numbers, takes_pairs
from warpfactor.kernels.triton.passes import copying

DEEPEST = 15  # planes of a window; deeper ones go to the reference


@triton.jit
def solved(hzz, hzy, hzx, hyy, hyx, hxx, gz, gy, gx):
    """H⁻¹ g for a symmetric positive definite 3x3 matrix, as L D Lᵀ, which loses fewer digits than the adjugate."""
    lyz, lxz = hzy / hzz, hzx / hzz
    dy = hyy - lyz * hzy
    t = hyx - lyz * hzx
    lxy = t / dy
    dx = hxx - lxz * hzx - lxy * t
    by = gy - lyz * gz
    bx = gx - lxz * gz - lxy * by
    vx = bx / dx
    vy = by / dy - lxy * vx
    vz = gz / hzz - lyz * vy - lxz * vx
    return vz, vy, vx


@triton.jit
def present(at, n, behind, ahead):
    """How many voxels from `behind` before to `ahead` after a place exist."""
    return (tl.minimum(at + ahead, n - 1) - tl.maximum(at - behind, 0) + 1).to(tl.float32)


@declared(
    "2 *fp32 *fp64 *fp32 3 fp32 12 i32",
    {
        "size 3": {"KZ": 3, "KX": 3, "TY": 8, "TX": 32},
        "size 5": {"KZ": 5, "KX": 5, "TY": 8, "TX": 32},
        "size 9": {"KZ": 9, "KX": 9, "TY": 8, "TX": 32},
    },
    warps=8,
    reads={"slab gradient": 12},
    writes={"step": 12},
)
def tile_step(
    held,
    gradient,
    partials,
    numbers,
    wz,
    wy,
    wx,
    ky,
    start,
    stop,
    chunk,
    first,
    programs,
    planes,
    nz,
    ny,
    nx,
    behind_z,
    ahead_z,
    KZ: tl.constexpr,
    KX: tl.constexpr,
    TY: tl.constexpr,
    TX: tl.constexpr,
):
    """v = -(H + λI)⁻¹ r g, H the mean of g gᵀ over the window, for the planes from start up to stop, λ and r given."""
    far = tl.program_id(2).to(tl.int64)
    held += 3 * far * planes * ny * nx
    gradient += 3 * far * nz * ny * nx
    partials += 2 * far * programs
    damping, residual = tl.load(numbers + 2 * far), tl.load(numbers + 2 * far + 1)
    tiles = tl.cdiv(nx, TX)
    lane = tl.arange(0, TY * TX)
    y = tl.program_id(0) // tiles * TY + lane // TX
    x = tl.program_id(0) % tiles * TX + lane % TX
    use = (y < ny) & (x < nx)
    plane = ny * nx
    here = y * nx + x
    size = planes.to(tl.int64) * plane
    voxels = nz.to(tl.int64) * plane
    z0 = start + tl.program_id(1) * chunk
    z1 = tl.minimum(z0 + chunk, stop)
    zero = tl.zeros((TY * TX,), tl.float32)
    zzs, zys, zxs = (zero,) * KZ, (zero,) * KZ, (zero,) * KZ
    yys, yxs, xxs = (zero,) * KZ, (zero,) * KZ, (zero,) * KZ
    longest, decrease = zero, zero.to(tl.float64)
    for z in range(z0 - behind_z, z1 + ahead_z):
        depth = lane * 0 + z
        exists = (depth >= 0) & (depth < nz)
        source = held + (z % planes) * plane
        zz, zy, zx, yy, yx, xx = zero, zero, zero, zero, zero, zero
        for dy in range(-(ky // 2), (ky + 1) // 2):
            row = exists & (y + dy >= 0) & (y + dy < ny)
            for dx in tl.static_range(-(KX // 2), (KX + 1) // 2):
                there = row & (x + dx >= 0) & (x + dx < nx)
                gz, gy, gx = load_vector(source, size, here + dy * nx + dx, there)
                gz, gy, gx = wz * gz, wy * gy, wx * gx
                zz, zy, zx = zz + gz * gz, zy + gz * gy, zx + gz * gx
                yy, yx, xx = yy + gy * gy, yx + gy * gx, xx + gx * gx
        zzs, zys, zxs = (
            advanced(zzs, zz, held, KZ, True),
            advanced(zys, zy, held, KZ, True),
            advanced(zxs, zx, held, KZ, True),
        )
        yys, yxs, xxs = (
            advanced(yys, yy, held, KZ, True),
            advanced(yxs, yx, held, KZ, True),
            advanced(xxs, xx, held, KZ, True),
        )
        if z - ahead_z >= z0:
            at = depth - ahead_z
            n = present(at, nz, behind_z, ahead_z) * present(y, ny, ky // 2, (ky - 1) // 2)
            n = n * present(x, nx, KX // 2, (KX - 1) // 2)
            zz, zy, zx = zzs[0] / n, zys[0] / n, zxs[0] / n
            yy, yx, xx = yys[0] / n, yxs[0] / n, xxs[0] / n
            least = tl.maximum(1e-5 * (zz + yy + xx), damping)
            gz, gy, gx = load_vector(held + ((z - ahead_z) % planes) * plane, size, here, use)
            gz, gy, gx = wz * gz, wy * gy, wx * gx
            vz, vy, vx = solved(zz + least, zy, zx, yy + least, yx, xx + least, gz, gy, gx)
            vz, vy, vx = -residual * vz, -residual * vy, -residual * vx
            store_vector(gradient, voxels, at * plane + here, wz * vz, wy * vy, wx * vx, use)
            longest = tl.maximum(longest, tl.where(use, vz * vz + vy * vy + vx * vx, 0.0))
            decrease += tl.where(use, -(gz * vz + gy * vy + gx * vx), 0.0).to(tl.float64)
    slot = first + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(partials + slot, tl.max(longest, 0).to(tl.float64))
    tl.store(partials + programs + slot, tl.sum(decrease, 0))


def tile_chain(shape: Sequence[int], size: Sequence[int]) -> slabs.PassChain:
    """The copy of the gradient and the step, over a volume of this shape."""
    depth, height, width = shape
    reach = slabs.Reach(size[0] // 2, (size[0] - 1) // 2)
    return slabs.PassChain(depth, (slabs.Reach(), reach), (12 * height * width,))


def _fits(gradient: Tensor, *, size: Sequence[int], **_: Any) -> bool:
    return takes_pairs(gradient) and max(size) <= DEEPEST


@paired(reference.tile, _fits)
def tile(
    gradient: Tensor,
    *,
    size: Sequence[int],
    damping: Any,
    weights: Sequence[float],
    residual: Any = 1.0,
) -> Tensor:
    """See Ops; windows of more than 15 planes go to the reference."""
    device, pairs, (depth, height, width) = gradient.device, len(gradient), gradient.shape[2:]
    kz, ky, kx = size
    behind, ahead = kz // 2, (kz - 1) // 2
    chain = tile_chain((depth, height, width), size)
    (length,) = chain.rings
    copied = torch.empty((pairs, 3, length, height, width), dtype=torch.float32, device=device)
    tiles, (ty, tx) = plane_tiles(device, height, width)
    chunk = depth if device.type == "cpu" else CHUNK
    launches = list(chain.turns())
    programs = sum(tiles * triton.cdiv(t.stop - t.start, chunk) for t in launches if t.number == 1)
    partials = Partials(device, 2, programs, pairs)
    given = numbers(device, pairs, larger(damping, reference.descent.TINY), residual)
    first = 0
    for turn in launches:
        if turn.number == 0:
            copying(device).launch(gradient, copied, turn, depth)
            continue
        rows = triton.cdiv(turn.stop - turn.start, chunk)
        tile_step.launch(
            (tiles, rows, pairs),
            copied,
            gradient,
            partials.table,
            given,
            *weights,
            ky,
            turn.start,
            turn.stop,
            chunk,
            first,
            programs,
            length,
            depth,
            height,
            width,
            behind,
            ahead,
            KZ=kz,
            KX=kx,
            TY=ty,
            TX=tx,
        )
        first += tiles * rows
    return finished(partials)
