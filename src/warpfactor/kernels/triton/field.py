"""Operations on displacement fields: composition, resizing, the Jacobian determinant, the way there and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.pairs import paired
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import MOST_VOXELS, block, numbers, numbers_on, plain, takes, takes_pairs
from warpfactor.kernels.triton.points import difference, moved_voxel, value_at, voxel
from warpfactor.kernels.triton.slabs import Turn


@triton.jit
def field_at(field, voxels, pz, py, px, nz, ny, nx, use):
    """The three components of a field at p; the edge value beyond the border."""
    vz = value_at(field, pz, py, px, nz, ny, nx, use)
    vy = value_at(field + voxels, pz, py, px, nz, ny, nx, use)
    vx = value_at(field + voxels + voxels, pz, py, px, nz, ny, nx, use)
    return vz, vy, vx


@triton.jit
def store_vector(out, voxels, i, vz, vy, vx, use):
    kind = out.dtype.element_ty
    tl.store(out + i, vz.to(kind), mask=use)
    tl.store(out + voxels + i, vy.to(kind), mask=use)
    tl.store(out + voxels + voxels + i, vx.to(kind), mask=use)


@triton.jit
def load_vector(field, voxels, i, use):
    vz = tl.load(field + i, mask=use, other=0.0).to(tl.float32)
    vy = tl.load(field + voxels + i, mask=use, other=0.0).to(tl.float32)
    vx = tl.load(field + voxels + voxels + i, mask=use, other=0.0).to(tl.float32)
    return vz, vy, vx


@triton.jit
def slope_within(image, i, at, n, stride, use):
    """Twice the derivative along an axis by central differences; zero at its border."""
    within = use & (at > 0) & (at < n - 1)
    return tl.load(image + i + stride, mask=within, other=0.0) - tl.load(image + i - stride, mask=within, other=0.0)


@triton.jit
def evened(vz, vy, vx, volume, rate, i, z, y, x, wz, wy, wx, nz, ny, nx, use):
    """v + rate w² grad(volume) at voxel i; the squares of the weights w are given."""
    half = 0.5 * rate
    vz += half * wz * slope_within(volume, i, z, nz, ny * nx, use)
    vy += half * wy * slope_within(volume, i, y, ny, nx, use)
    vx += half * wx * slope_within(volume, i, x, nx, 1, use)
    return vz, vy, vx


@declared(
    "5 *fp32 3 fp32 6 i32",
    {"usual": {"VOLUME": False, "BLOCK": 256}, "volume": {"VOLUME": True, "BLOCK": 256}},
    reads={"warp": 12, "step": 12, "log volume": 4},
    writes={"composed": 12},
)
def compose_fields(
    warp,
    step,
    out,
    numbers,
    volume,
    wz,
    wy,
    wx,
    start,
    stop,
    planes,
    nz,
    ny,
    nx,
    VOLUME: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = s v(x) + warp(x + s v(x)), v = step + rate w² grad(volume), for the planes from start up to stop.

    A program reads of `step` only the voxels that it writes. `numbers` holds s and the rate; the squares of the weights
    w are given.
    """
    pair = tl.program_id(1)
    scale = tl.load(numbers + 2 * pair)
    plane = ny * nx
    i = start * plane + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    use = i < stop * plane
    voxels, size = nz.to(tl.int64) * plane, planes.to(tl.int64) * plane
    far = pair.to(tl.int64)
    warp, step, out = warp + 3 * far * voxels, step + 3 * far * voxels, out + 3 * far * size
    z, y, x = voxel(i, ny, nx)
    sz, sy, sx = load_vector(step, voxels, i, use)
    if VOLUME:
        sz, sy, sx = evened(
            sz, sy, sx, volume + far * voxels, tl.load(numbers + 2 * pair + 1), i, z, y, x, wz, wy, wx, nz, ny, nx, use
        )
    sz, sy, sx = scale * sz, scale * sy, scale * sx
    vz, vy, vx = field_at(warp, voxels, z + sz, y + sy, x + sx, nz, ny, nx, use)
    store_vector(out, size, (z % planes) * plane + y * nx + x, sz + vz, sy + vy, sx + vx, use)


@declared(
    "2 *fp32 *fp64 3 fp32 3 i32",
    {"usual": {"BLOCK": 256}},
    reads={"log volume": 4, "step": 12},
    writes={"step": 12},
)
def even_step(step, volume, rates, wz, wy, wx, nz, ny, nx, BLOCK: tl.constexpr):
    """step += rate w² grad(volume); the squares of the weights w are given."""
    pair = tl.program_id(1)
    rate = tl.load(rates + pair).to(tl.float32)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    far = pair.to(tl.int64) * voxels
    step, volume = step + 3 * far, volume + far
    z, y, x = voxel(i, ny, nx)
    vz, vy, vx = load_vector(step, voxels, i, use)
    vz, vy, vx = evened(vz, vy, vx, volume, rate, i, z, y, x, wz, wy, wx, nz, ny, nx, use)
    store_vector(step, voxels, i, vz, vy, vx, use)


@declared("2 *fp32 *fp64 i32", {"usual": {"BLOCK": 1024}}, reads={"other": 12}, writes={"field": 12})
def taken(field, other, flag, number, BLOCK: tl.constexpr):
    """field = other if the flag is not zero."""
    pair = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    use = (i < number) & (tl.load(flag + pair + 0 * i).to(tl.int32) != 0)
    far = pair.to(tl.int64) * number
    field, other = field + far, other + far
    value = tl.load(other + i, mask=use)
    tl.store(field + i, value.to(field.dtype.element_ty), mask=use)


@declared(
    "4 *fp32 *u8 3 i32",
    {"usual": {"BLOCK": 256}},
    reads={"first": 12, "second": 12},
    writes={"lengths": 4, "stays": 1},
)
def there_and_back(first, second, gram, lengths, stays, nz, ny, nx, BLOCK: tl.constexpr):
    """Length of first(x) + second(x + first(x)), and whether x + first(x) lies between the outermost voxel centres."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    qz, qy, qx = moved_voxel(first, voxels, i, ny, nx, use, True)
    uz, uy, ux = load_vector(first, voxels, i, use)
    vz, vy, vx = field_at(second, voxels, qz, qy, qx, nz, ny, nx, use)
    ez, ey, ex = uz + vz, uy + vy, ux + vx
    wz = tl.load(gram) * ez + tl.load(gram + 1) * ey + tl.load(gram + 2) * ex
    wy = tl.load(gram + 3) * ez + tl.load(gram + 4) * ey + tl.load(gram + 5) * ex
    wx = tl.load(gram + 6) * ez + tl.load(gram + 7) * ey + tl.load(gram + 8) * ex
    length = tl.sqrt(tl.maximum(ez * wz + ey * wy + ex * wx, 0.0))
    tl.store(lengths + i, length.to(lengths.dtype.element_ty), mask=use)
    stay = (qz >= 0) & (qz <= nz - 1) & (qy >= 0) & (qy <= ny - 1) & (qx >= 0) & (qx <= nx - 1)
    tl.store(stays + i, stay.to(tl.uint8), mask=use)


@declared(
    "3 *fp32 6 i32",
    {"usual": {"BLOCK": 256}},
    reads={"source": 4},
    writes={"target": 4},
)
def resize_image(source, target, places, nz, ny, nx, mz, my, mx, BLOCK: tl.constexpr):
    """target(i) = source(scale i + offset), linear, edge values beyond the border; one component per program row."""
    component = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    z, y, x = voxel(i, ny, nx)
    pz = tl.load(places) * z + tl.load(places + 3)
    py = tl.load(places + 1) * y + tl.load(places + 4)
    px = tl.load(places + 2) * x + tl.load(places + 5)
    value = value_at(source + component * mz * my * mx, pz, py, px, mz, my, mx, use)
    tl.store(target + component * voxels + i, value.to(target.dtype.element_ty), mask=use)


@triton.jit
def column(u, voxels, i, at, n, stride, use):
    """Derivative of the three components of a field along one axis."""
    a = difference(u, i, at, n, stride, use)
    b = difference(u + voxels, i, at, n, stride, use)
    c = difference(u + voxels + voxels, i, at, n, stride, use)
    return a, b, c


@declared(
    "2 *fp32 fp32 6 i32",
    {"usual": {"LOG": False, "BLOCK": 256}, "logarithm": {"LOG": True, "BLOCK": 256}},
    reads={"displacement": 12},
    writes={"determinant": 4},
)
def determinant(u, out, least, start, stop, planes, nz, ny, nx, LOG: tl.constexpr, BLOCK: tl.constexpr):
    """det(I + du/dx) by central differences, or the logarithm of it, or of `least` where it is less.

    For the planes from start up to stop; `out` has so many planes.
    """
    plane = ny * nx
    i = start * plane + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    use = i < stop * plane
    voxels, size = nz.to(tl.int64) * plane, planes.to(tl.int64) * plane
    far = tl.program_id(1).to(tl.int64)
    u, out = u + 3 * far * voxels, out + far * size
    z, y, x = voxel(i, ny, nx)
    zz, yz, xz = column(u, voxels, i, z, nz, ny * nx, use)
    zy, yy, xy = column(u, voxels, i, y, ny, nx, use)
    zx, yx, xx = column(u, voxels, i, x, nx, 1, use)
    zz, yy, xx = zz + 1.0, yy + 1.0, xx + 1.0
    found = zz * (yy * xx - yx * xy) - zy * (yz * xx - yx * xz) + zx * (yz * xy - yy * xz)
    if LOG:
        found = tl.log(tl.where(found < least, least, found))
    tl.store(out + (z % planes) * plane + y * nx + x, found.to(out.dtype.element_ty), mask=use)


def _composes(warp: Tensor, step: Tensor, *, out: Tensor | None = None, **_: Any) -> bool:
    return takes(warp[0], step[0]) and takes_pairs(out)


@paired(reference.compose, _composes)
def compose(warp: Tensor, step: Tensor, *, scale: Any = 1.0, out: Tensor | None = None) -> Tensor:
    """See Ops."""
    out = torch.empty_like(step, memory_format=torch.contiguous_format) if out is None else out
    given = numbers(step.device, len(step), scale, scale)
    launch_compose(plain(warp), plain(step), out, given, Turn(0, 0, step.shape[2]))
    return out


def launch_compose(
    warp: Tensor,
    step: Tensor,
    out: Tensor,
    given: Tensor,
    turn: Turn,
    *,
    log_volume: Tensor | None = None,
    squares: Sequence[float] = (0.0, 0.0, 0.0),
) -> None:
    """Compose the planes of a turn into a field or a ring; see compose_fields."""
    depth, *plane = step.shape[2:]
    span = (turn.stop - turn.start) * plane[0] * plane[1]
    width = block(step.device, span)
    compose_fields.launch(
        (triton.cdiv(span, width), len(step)),
        warp,
        step,
        out,
        given,
        given if log_volume is None else log_volume,
        *squares,
        turn.start,
        turn.stop,
        out.shape[2],
        depth,
        *plane,
        VOLUME=log_volume is not None,
        BLOCK=width,
    )


def _evens(step: Tensor, log_volume: Tensor, *_: Any) -> bool:
    return takes_pairs(step) and takes(log_volume)


@paired(reference.even_out, _evens)
def even_out(step: Tensor, log_volume: Tensor, rate: Tensor, weights: Sequence[float]) -> None:
    """See DeviceOps."""
    shape = step.shape[2:]
    width = block(step.device, shape.numel())
    grid = (triton.cdiv(shape.numel(), width), len(step))
    squares = [weight * weight for weight in weights]
    even_step.launch(grid, step, plain(log_volume), plain(rate), *squares, *shape, BLOCK=width)


def _takes_over(field: Tensor, other: Tensor, flag: Tensor) -> bool:
    return takes_pairs(field) and takes(other[0]) and field[0].numel() <= MOST_VOXELS


@paired(reference.take, _takes_over)
def take(field: Tensor, other: Tensor, flag: Tensor) -> None:
    """See DeviceOps."""
    number = field[0].numel()
    width = block(field.device, number, 1024)
    taken.launch((triton.cdiv(number, width), len(field)), field, plain(other), plain(flag), number, BLOCK=width)


@torch.no_grad()
def round_trip(first: Tensor, second: Tensor, gram: Any) -> tuple[Tensor, Tensor]:
    """See Ops."""
    if not takes(first, second):
        return reference.round_trip(first, second, gram)
    lengths = torch.empty_like(first[0], memory_format=torch.contiguous_format)
    stays = torch.empty(lengths.shape, dtype=torch.uint8, device=first.device)
    width = block(first.device, lengths.numel())
    there_and_back.launch(
        (triton.cdiv(lengths.numel(), width),),
        plain(first),
        plain(second),
        numbers_on(first.device, tuple(float(g) for row in gram for g in row)),
        lengths,
        stays,
        *lengths.shape,
        BLOCK=width,
    )
    return lengths, stays.bool()


@torch.no_grad()
def resize(field: Tensor, shape: Sequence[int], scale: Sequence[float], offset: Sequence[float]) -> Tensor:
    """See Ops."""
    if not takes(field):
        return reference.resize(field, shape, scale, offset)
    field = plain(field)
    out = torch.empty((len(field), *shape), dtype=field.dtype, device=field.device)
    voxels = out[0].numel()
    width = block(field.device, voxels)
    places = numbers_on(field.device, (*map(float, scale), *map(float, offset)))
    grid = (triton.cdiv(voxels, width), len(field))
    resize_image.launch(grid, field, out, places, *shape, *field.shape[1:], BLOCK=width)
    return out


def _has_determinant(displacement: Tensor) -> bool:
    return takes(displacement[0])


@paired(reference.jacobian_determinant, _has_determinant)
def jacobian_determinant(displacement: Tensor) -> Tensor:
    """See Ops."""
    pairs, shape = len(displacement), displacement.shape[2:]
    out = torch.empty((pairs, *shape), dtype=displacement.dtype, device=displacement.device)
    launch_determinant(plain(displacement), out, Turn(0, 0, shape[0]), least=None)
    return out


def launch_determinant(displacement: Tensor, out: Tensor, turn: Turn, *, least: float | None) -> None:
    """Write determinants, or with `least` their logarithms, of the planes of a turn to (B, planes, H, W)."""
    depth, *plane = displacement.shape[2:]
    span = (turn.stop - turn.start) * plane[0] * plane[1]
    width = block(displacement.device, span)
    determinant.launch(
        (triton.cdiv(span, width), len(displacement)),
        displacement,
        out,
        least or 0.0,
        turn.start,
        turn.stop,
        out.shape[1],
        depth,
        *plane,
        LOG=least is not None,
        BLOCK=width,
    )
