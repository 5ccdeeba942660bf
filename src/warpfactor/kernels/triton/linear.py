"""Sums of linear stages: products of the values of a voxel, all at once, as the square of a matrix.

A voxel has a row of values: n (x) X, twelve of them, then F, M and 1. The sum over voxels of the products of any two of
them is a 16 x 16 matrix that contains every sum that is asked for. Inside, X counts from the middle of the grid in
units of its longest half axis, so that single precision loses nothing; the result is carried back in double precision.
Coordinates are computed in double precision too, as one voxel on the wrong side of a cell would show in the sums.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.triton.field import load_vector
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import block, mask_or, plain, takes, takes_images
from warpfactor.kernels.triton.points import counts, mapped, pulled_back, slope_at, voxel
from warpfactor.kernels.triton.tables import programs_for, summed_tables

VOXELS = 64  # of a block whose values are multiplied at once
VALUES = 16  # of a voxel, one of which is not used
ONE = 14  # the place of 1 among them


@triton.jit
def products(gz, gy, gx, z, y, x, f, m, one):
    """The products of the values of every voxel, summed over a block."""
    value = tl.arange(0, 16)[None, :]
    n = tl.where(value < 4, gz[:, None], tl.where(value < 8, gy[:, None], gx[:, None]))
    part = value % 4
    place = tl.where(part == 0, z[:, None], tl.where(part == 1, y[:, None], tl.where(part == 2, x[:, None], 1.0)))
    last = tl.where(part == 0, f[:, None], tl.where(part == 1, m[:, None], tl.where(part == 2, one[:, None], 0.0)))
    row = tl.where(value < 12, n * place, last)
    return tl.dot(tl.trans(row), row, input_precision="ieee").to(tl.float64)


@triton.jit
def centred(i, nz, ny, nx):
    """X of a voxel from the middle of the grid, in units of the longest half axis."""
    z, y, x = voxel(i, ny, nx)
    half = tl.maximum(tl.maximum(nz, ny), nx) / 2.0
    return (z - (nz - 1) / 2.0) / half, (y - (ny - 1) / 2.0) / half, (x - (nx - 1) / 2.0) / half


@triton.jit
def store_products(tables, total):
    row, column = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    tl.store(tables + tl.program_id(0) * 256 + row * 16 + column, total)


@declared(
    "2 *fp32 *fp64 2 *u8 *fp64 7 i32",
    {"usual": {"FIXED_MASK": False, "MOVING_MASK": False, "PLANAR": False, "BLOCK": VOXELS}},
    reads={"fixed": 4, "moving": 4},
)
def image_products(
    fixed,
    moving,
    A,
    fixed_mask,
    moving_mask,
    tables,
    blocks,
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
    """Sums of products of n (x) X, F, M and 1 over the voxels that count, n = dM/du."""
    voxels = nz.to(tl.int64) * ny * nx
    total = tl.zeros((16, 16), tl.float64)
    for k in range(blocks):
        i = (tl.program_id(0) * blocks + k) * BLOCK + tl.arange(0, BLOCK)
        use = i < voxels
        z, y, x = voxel(i, ny, nx)
        pz, py, px = mapped(A, z.to(tl.float64), y.to(tl.float64), x.to(tl.float64), PLANAR)
        w = counts(fixed_mask, moving_mask, i, pz, py, px, mz, my, mx, use, FIXED_MASK, MOVING_MASK)
        m, dz, dy, dx = slope_at(moving, pz, py, px, mz, my, mx, use)
        gz, gy, gx = pulled_back(A, dz, dy, dx)
        f = tl.load(fixed + i, mask=use, other=0).to(tl.float32)
        gz, gy, gx = tl.where(w, gz, 0.0), tl.where(w, gy, 0.0), tl.where(w, gx, 0.0)
        f, m = tl.where(w, f, 0.0), tl.where(w, m, 0.0)
        z, y, x = centred(i, nz, ny, nx)
        total += products(gz.to(tl.float32), gy.to(tl.float32), gx.to(tl.float32), z, y, x, f, m, w.to(tl.float32))
    store_products(tables, total)


@declared("*fp32 *fp64 4 i32", {"usual": {"BLOCK": VOXELS}}, reads={"gradient": 12})
def gradient_products(gradient, tables, blocks, nz, ny, nx, BLOCK: tl.constexpr):
    """Sums of products of g (x) X and 1 over all voxels."""
    voxels = nz.to(tl.int64) * ny * nx
    total = tl.zeros((16, 16), tl.float64)
    for k in range(blocks):
        i = (tl.program_id(0) * blocks + k) * BLOCK + tl.arange(0, BLOCK)
        use = i < voxels
        gz, gy, gx = load_vector(gradient, voxels, i, use)
        z, y, x = centred(i, nz, ny, nx)
        zero = tl.zeros((BLOCK,), tl.float32)
        total += products(gz, gy, gx, z, y, x, zero, zero, use.to(tl.float32))
    store_products(tables, total)


@torch.no_grad()
def affine_moments(
    fixed: Tensor,
    moving: Tensor,
    matrix: Tensor,
    *,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """See Ops."""
    if not takes_images(fixed, moving):
        return reference.affine_moments(fixed, moving, matrix, fixed_mask=fixed_mask, moving_mask=moving_mask)
    fixed, moving, device = plain(fixed), plain(moving), fixed.device
    width = min(block(device, fixed.numel(), VOXELS), 4096)
    programs, blocks = programs_for(device, fixed.numel(), width)
    tables = torch.empty((programs, VALUES * VALUES), dtype=torch.float64, device=device)
    image_products.launch(
        (programs,),
        fixed,
        moving,
        matrix.to(device=device, dtype=torch.float64).contiguous(),
        mask_or(fixed_mask, fixed),
        mask_or(moving_mask, moving),
        tables,
        blocks,
        *fixed.shape,
        *moving.shape,
        FIXED_MASK=fixed_mask is not None,
        MOVING_MASK=moving_mask is not None,
        PLANAR=fixed.shape[0] == 1 and moving.shape[0] == 1,
        BLOCK=width,
    )
    found = _in_voxels(summed_tables(tables[None])[0], fixed.shape)
    f, m = 12, 13
    sums = torch.stack([found[a, b] for a, b in ((ONE, ONE), (ONE, f), (ONE, m), (f, f), (m, m), (f, m))])
    return sums, found[[ONE, f, m], :12], found[:12, :12]


@torch.no_grad()
def affine_gradient(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """See Ops."""
    if not takes(gradient):
        return reference.affine_gradient(gradient)
    device, shape = gradient.device, gradient.shape[1:]
    width = min(block(device, shape.numel(), VOXELS), 4096)
    programs, blocks = programs_for(device, shape.numel(), width)
    tables = torch.empty((programs, VALUES * VALUES), dtype=torch.float64, device=device)
    gradient_products.launch((programs,), plain(gradient), tables, blocks, *shape, BLOCK=width)
    found = _in_voxels(summed_tables(tables[None])[0], shape)
    return found[ONE, :12], found[:12, :12]


def _in_voxels(table: Tensor, shape: torch.Size) -> Tensor:
    """The (16, 16) sums with X in voxels from the first one, on the CPU."""
    half = max(shape) / 2
    carry = torch.eye(VALUES, dtype=torch.float64)
    for a in range(3):
        for b, n in enumerate(shape):
            carry[4 * a + b, 4 * a + b] = half
            carry[4 * a + b, 4 * a + 3] = (n - 1) / 2
    found: Tensor = carry @ table.reshape(VALUES, VALUES).cpu() @ carry.T
    return found
