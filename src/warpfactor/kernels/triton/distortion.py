"""How a warp changes shapes: shear, and the least determinant of one-sided differences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import block, plain, takes
from warpfactor.kernels.triton.points import voxel


@triton.jit
def one_sided(u, voxels, i, at, n, stride, use, AXIS: tl.constexpr):
    """d(x + u)/dx of the three components along an axis, ahead and back; at the border that of the other side."""
    near = tl.minimum(at, tl.maximum(n - 2, 0))
    last = tl.minimum(tl.maximum(at - 1, 0), tl.maximum(n - 2, 0))
    ahead, back = i + (near - at) * stride, i + (last - at) * stride
    step = tl.where(n > 1, stride, 0)
    az = tl.load(u + ahead + step, mask=use, other=0.0) - tl.load(u + ahead, mask=use, other=0.0)
    bz = tl.load(u + back + step, mask=use, other=0.0) - tl.load(u + back, mask=use, other=0.0)
    v = u + voxels
    ay = tl.load(v + ahead + step, mask=use, other=0.0) - tl.load(v + ahead, mask=use, other=0.0)
    by = tl.load(v + back + step, mask=use, other=0.0) - tl.load(v + back, mask=use, other=0.0)
    v += voxels
    ax = tl.load(v + ahead + step, mask=use, other=0.0) - tl.load(v + ahead, mask=use, other=0.0)
    bx = tl.load(v + back + step, mask=use, other=0.0) - tl.load(v + back, mask=use, other=0.0)
    if AXIS == 0:
        az, bz = az + 1.0, bz + 1.0
    elif AXIS == 1:
        ay, by = ay + 1.0, by + 1.0
    else:
        ax, bx = ax + 1.0, bx + 1.0
    return az, ay, ax, bz, by, bx


@triton.jit
def determinant_of(zz, yz, xz, zy, yy, xy, zx, yx, xx):
    """Of the matrix with the columns (zz, yz, xz), (zy, yy, xy), (zx, yx, xx)."""
    return zz * (yy * xx - xy * yx) - zy * (yz * xx - xz * yx) + zx * (yz * xy - xz * yy)


@declared(
    "3 *fp32 3 fp32 3 i32",
    {"volume": {"PLANAR": False, "BLOCK": 256}, "slice": {"PLANAR": True, "BLOCK": 256}},
    reads={"displacement": 12},
    writes={"shear": 4, "least": 4},
)
def shape_change(u, shear, least, dz, dy, dx, nz, ny, nx, PLANAR: tl.constexpr, BLOCK: tl.constexpr):
    """Shear |F|² / (d det(F)^(2/d)) - 1 with lengths along the axes, and the least of the one-sided determinants."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    z, y, x = voxel(i, ny, nx)
    zy, yy, xy, bzy, byy, bxy = one_sided(u, voxels, i, y, ny, nx, use, 1)
    zx, yx, xx, bzx, byx, bxx = one_sided(u, voxels, i, x, nx, 1, use, 2)
    if PLANAR:
        d1 = yy * xx - xy * yx
        d2 = byy * xx - bxy * yx
        d3 = yy * bxx - xy * byx
        found = tl.minimum(tl.minimum(d1, d2), tl.minimum(d3, byy * bxx - bxy * byx))
        cyy, cxy, cyx, cxx = (yy + byy) / 2, (xy + bxy) / 2, (yx + byx) / 2, (xx + bxx) / 2
        squares = cyy * cyy + cxx * cxx + cxy * cxy * (dx / dy) * (dx / dy) + cyx * cyx * (dy / dx) * (dy / dx)
        power = tl.maximum(cyy * cxx - cxy * cyx, 1e-3)
        result = squares / (2 * power) - 1
    else:
        zz, yz, xz, bzz, byz, bxz = one_sided(u, voxels, i, z, nz, ny * nx, use, 0)
        e1 = determinant_of(zz, yz, xz, zy, yy, xy, zx, yx, xx)
        e2 = determinant_of(bzz, byz, bxz, zy, yy, xy, zx, yx, xx)
        e3 = determinant_of(zz, yz, xz, bzy, byy, bxy, zx, yx, xx)
        e4 = determinant_of(bzz, byz, bxz, bzy, byy, bxy, zx, yx, xx)
        e5 = determinant_of(zz, yz, xz, zy, yy, xy, bzx, byx, bxx)
        e6 = determinant_of(bzz, byz, bxz, zy, yy, xy, bzx, byx, bxx)
        e7 = determinant_of(zz, yz, xz, bzy, byy, bxy, bzx, byx, bxx)
        e8 = determinant_of(bzz, byz, bxz, bzy, byy, bxy, bzx, byx, bxx)
        found = tl.minimum(
            tl.minimum(tl.minimum(e1, e2), tl.minimum(e3, e4)), tl.minimum(tl.minimum(e5, e6), tl.minimum(e7, e8))
        )
        zz, yz, xz = (zz + bzz) / 2, (yz + byz) / 2, (xz + bxz) / 2
        zy, yy, xy = (zy + bzy) / 2, (yy + byy) / 2, (xy + bxy) / 2
        zx, yx, xx = (zx + bzx) / 2, (yx + byx) / 2, (xx + bxx) / 2
        power = tl.maximum(determinant_of(zz, yz, xz, zy, yy, xy, zx, yx, xx), 1e-3)
        yz, xz = yz * (dy / dz), xz * (dx / dz)
        zy, xy = zy * (dz / dy), xy * (dx / dy)
        zx, yx = zx * (dz / dx), yx * (dy / dx)
        squares = zz * zz + yz * yz + xz * xz + zy * zy + yy * yy + xy * xy + zx * zx + yx * yx + xx * xx
        result = squares / (3 * tl.exp2(tl.log2(power) * (2.0 / 3.0))) - 1
    tl.store(shear + i, result.to(shear.dtype.element_ty), mask=use)
    tl.store(least + i, found.to(least.dtype.element_ty), mask=use)


@torch.no_grad()
def distortion(displacement: Tensor, spacing: Sequence[float]) -> tuple[Tensor, Tensor]:
    """See Ops; grids of depth one in another direction than z go to the reference."""
    depth, *plane = displacement.shape[1:]
    if not takes(displacement) or min(plane) == 1:
        return reference.distortion(displacement, spacing)
    displacement = plain(displacement)
    shear, least = torch.empty_like(displacement[0]), torch.empty_like(displacement[0])
    width = block(displacement.device, shear.numel())
    grid = (triton.cdiv(shear.numel(), width),)
    shape_change.launch(
        grid, displacement, shear, least, *map(float, spacing), *shear.shape, PLANAR=depth == 1, BLOCK=width
    )
    return shear, least
