"""The moving image, and its derivative, at p = A (x + u(x)) for every voxel x of the fixed grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import block, matrix_on, plain, takes
from warpfactor.kernels.triton.points import (
    inside,
    mapped,
    moved_voxel,
    nearest_at,
    pulled_back,
    slope_at,
    value_at,
)

_SAMPLE = {"HAS_FIELD": True, "NEAREST": False, "PLANAR": False, "BLOCK": 256}


@declared(
    "4 *fp32 fp32 6 i32",
    {"linear": _SAMPLE, "nearest": {**_SAMPLE, "NEAREST": True}},
    reads={"displacement": 12, "moving": 4},
    writes={"warped": 4},
)
def sample_points(
    image,
    u,
    A,
    out,
    outside,
    nz,
    ny,
    nx,
    mz,
    my,
    mx,
    HAS_FIELD: tl.constexpr,
    NEAREST: tl.constexpr,
    PLANAR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = image(p), or `outside`."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    qz, qy, qx = moved_voxel(u, voxels, i, ny, nx, use, HAS_FIELD)
    pz, py, px = mapped(A, qz, qy, qx, PLANAR)
    if NEAREST:
        value = nearest_at(image, pz, py, px, mz, my, mx, use)
    else:
        value = value_at(image, pz, py, px, mz, my, mx, use)
    within = inside(pz, py, px, mz, my, mx)
    tl.store(out + i, tl.where(within, value, outside).to(out.dtype.element_ty), mask=use)


@declared(
    "5 *fp32 *u8 fp32 6 i32",
    {"usual": {"PLANAR": False, "BLOCK": 256}},
    reads={"displacement": 12, "moving": 4},
    writes={"warped": 4, "slope": 12, "inside": 1},
)
def sample_slopes(
    image,
    u,
    A,
    values,
    slopes,
    insides,
    outside,
    nz,
    ny,
    nx,
    mz,
    my,
    mx,
    PLANAR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """image(p), its derivative by u, and where p is inside."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    qz, qy, qx = moved_voxel(u, voxels, i, ny, nx, use, True)
    pz, py, px = mapped(A, qz, qy, qx, PLANAR)
    value, dz, dy, dx = slope_at(image, pz, py, px, mz, my, mx, use)
    gz, gy, gx = pulled_back(A, dz, dy, dx)
    within = inside(pz, py, px, mz, my, mx)
    kind = values.dtype.element_ty
    tl.store(values + i, tl.where(within, value, outside).to(kind), mask=use)
    tl.store(slopes + i, tl.where(within, gz, 0.0).to(kind), mask=use)
    tl.store(slopes + voxels + i, tl.where(within, gy, 0.0).to(kind), mask=use)
    tl.store(slopes + voxels + voxels + i, tl.where(within, gx, 0.0).to(kind), mask=use)
    tl.store(insides + i, within.to(tl.uint8), mask=use)


@torch.no_grad()
def sample(
    image: Tensor,
    displacement: Tensor | None,
    matrix: Tensor,
    *,
    shape: Sequence[int] | None = None,
    mode: Any = "linear",
    outside: float = 0.0,
) -> Tensor:
    """See Ops; images of whole numbers and of double precision go to the reference."""
    if not takes(image, displacement):
        return reference.sample(image, displacement, matrix, shape=shape, mode=mode, outside=outside)
    if displacement is not None:
        shape = displacement.shape[1:]
    if shape is None:
        raise ValueError("sample needs a displacement or a shape; both are None")
    image, size = plain(image), tuple(shape)
    out = torch.empty(size, dtype=image.dtype, device=image.device)
    width = block(image.device, out.numel())
    sample_points.launch(
        (triton.cdiv(out.numel(), width),),
        image,
        image if displacement is None else plain(displacement),
        matrix_on(image.device, matrix),
        out,
        outside,
        *size,
        *image.shape,
        HAS_FIELD=displacement is not None,
        NEAREST=mode == "nearest",
        PLANAR=size[0] == 1 and image.shape[0] == 1,
        BLOCK=width,
    )
    return out


@torch.no_grad()
def sample_gradient(
    image: Tensor, displacement: Tensor, matrix: Tensor, *, outside: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """See Ops."""
    if not takes(image, displacement):
        return reference.sample_gradient(image, displacement, matrix, outside=outside)
    image, size = plain(image), displacement.shape[1:]
    values = torch.empty(size, dtype=image.dtype, device=image.device)
    slopes = torch.empty((3, *size), dtype=image.dtype, device=image.device)
    insides = torch.empty(size, dtype=torch.uint8, device=image.device)
    width = block(image.device, values.numel())
    sample_slopes.launch(
        (triton.cdiv(values.numel(), width),),
        image,
        plain(displacement),
        matrix_on(image.device, matrix),
        values,
        slopes,
        insides,
        outside,
        *size,
        *image.shape,
        PLANAR=size[0] == 1 and image.shape[0] == 1,
        BLOCK=width,
    )
    return values, slopes, insides.bool()
