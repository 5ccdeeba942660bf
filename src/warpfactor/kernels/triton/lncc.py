"""Local normalised cross-correlation, slab by slab: the operation and the launches of its passes, `lncc_kernels.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.pairs import paired
from warpfactor.kernels.triton import slabs
from warpfactor.kernels.triton.columns import CHUNK, plane_tiles
from warpfactor.kernels.triton.launch import Partials, block, numbers_on, pair_numbers
from warpfactor.kernels.triton.lncc_kernels import WIDEST, lncc_force, lncc_maps, lncc_warp
from warpfactor.kernels.triton.metric import Problem
from warpfactor.kernels.triton.metric import fits as fits_metrics


def lncc_plans(
    fixed: Tensor, mask: Tensor | None, *, radius: Sequence[int], window: Any, exact: bool, floors: Sequence[float]
) -> tuple[object, ...]:
    """One per channel, all None: nothing is prepared."""
    return (None,) * len(fixed)


lncc_slabs = reference.lncc_slabs


def _fits(*args: Any, radius: Sequence[int], plan: object = None, **options: Any) -> bool:
    return max(radius) <= WIDEST and plan is None and fits_metrics(*args, **options)


@paired(reference.lncc, _fits)
def lncc(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    radius: Sequence[int],
    window: Any = "box",
    squared: bool = True,
    exact: bool = True,
    symmetric: bool = False,
    flat: Any,
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
    plan: object = None,
) -> Tensor:
    """See Ops; windows of a radius above 7 and slabs go to the reference."""
    problem = Problem(fixed, moving, displacement, matrix, gradient, fixed_mask, moving_mask)
    return _run(problem, _Windows(tuple(radius), window == "box", squared, exact, symmetric, flat))


class _Windows(NamedTuple):
    radius: tuple[int, ...]
    box: bool
    squared: bool
    exact: bool
    symmetric: bool
    flat: Any

    @property
    def maps(self) -> int:
        """Number of maps from which forces follow."""
        return (3 if self.exact else 1) + self.symmetric

    def taps(self) -> tuple[float, ...]:
        """Weights along z, y, x, one after the other."""
        return tuple(t for r in self.radius for t in _taps(r, self.box))


def _taps(radius: int, box: bool) -> list[float]:
    s = (2 * radius + 1) / 6
    return [1.0 if box else math.exp(-(k * k) / (2 * s * s)) for k in range(-radius, radius + 1)]


def lncc_chain(shape: Sequence[int], radius: int, maps: int, *, exact: bool) -> slabs.PassChain:
    """The passes over a volume of this shape; the last one is for the gradient, if there are maps.

    It also reads the warped image, no further behind than the pass before it does.
    """
    depth, height, width = shape
    around = slabs.Reach(radius, radius)
    if not maps:
        return slabs.PassChain(depth, (slabs.Reach(), around), (4 * height * width,))
    reaches = (slabs.Reach(), around, around if exact else slabs.Reach())
    return slabs.PassChain(depth, reaches, (4 * height * width, 4 * maps * height * width))


class _Buffers(NamedTuple):
    """What the passes leave for each other, the weights of the windows, and how a plane is cut into tiles."""

    warped: Tensor
    maps: Tensor
    partials: Partials
    taps: Tensor
    tiles: int
    tile: tuple[int, int]
    chunk: int


def _run(p: Problem, w: _Windows) -> Tensor:
    """All launches, slab by slab. Slabs are those of one pair, whatever the number of pairs, and so are sums."""
    depth, height, width = p.shape
    device, pairs = p.device, p.pairs
    chain = lncc_chain(p.shape, w.radius[0], w.maps if p.gradient is not None else 0, exact=w.exact)
    launches, sizes = list(chain.turns()), (*chain.rings, 1)
    tiles, tile = plane_tiles(device, height, width)
    chunk = depth if device.type == "cpu" else CHUNK
    chunks = [triton.cdiv(t.stop - t.start, chunk) for t in launches if t.number == 1]
    buffers = _Buffers(
        torch.empty((pairs, sizes[0], height, width), dtype=torch.float32, device=device),
        torch.empty((pairs, w.maps, sizes[1], height, width), dtype=torch.float32, device=device),
        Partials(device, 2, tiles * sum(chunks), pairs),
        numbers_on(device, w.taps()),
        tiles,
        tile,
        chunk,
    )
    pointers, first = p.pointers, 0
    for turn in launches:
        if turn.number == 0:
            _warp(p, pointers, buffers, turn)
        elif turn.number == 1:
            _maps(p, pointers, w, buffers, turn, first)
            first += tiles * triton.cdiv(turn.stop - turn.start, chunk)
        else:
            _force(p, pointers, w, buffers, turn)
    return buffers.partials.combined()


def _warp(p: Problem, pointers: Sequence[Tensor], b: _Buffers, turn: slabs.Turn) -> None:
    span = (turn.stop - turn.start) * p.shape[1] * p.shape[2]
    width = block(p.device, span)
    grid = (triton.cdiv(span, width), p.pairs)
    place = (turn.start, turn.stop, b.warped.shape[1])
    lncc_warp.launch(grid, *pointers, b.warped, *place, *p.shapes, **p.flags, BLOCK=width)


def _maps(p: Problem, pointers: Sequence[Tensor], w: _Windows, b: _Buffers, turn: slabs.Turn, first: int) -> None:
    rz, ry, rx = w.radius
    lncc_maps.launch(
        (b.tiles, triton.cdiv(turn.stop - turn.start, b.chunk), p.pairs),
        pointers[0],
        b.warped,
        b.taps,
        b.maps,
        b.partials.table,
        pair_numbers(p.device, p.pairs, w.flat),
        ry,
        turn.start,
        turn.stop,
        b.chunk,
        first,
        b.partials.table.shape[2],
        b.warped.shape[1],
        b.maps.shape[2],
        *p.shape,
        RZ=rz,
        RX=rx,
        BOX=w.box,
        SQUARED=w.squared,
        EXACT=w.exact,
        SYMMETRIC=w.symmetric,
        MAPS=p.gradient is not None,
        TY=b.tile[0],
        TX=b.tile[1],
    )


def _force(p: Problem, pointers: Sequence[Tensor], w: _Windows, b: _Buffers, turn: slabs.Turn) -> None:
    fixed, moving, displacement, matrix, *_ = pointers
    rz, ry, rx = w.radius if w.exact else (0, 0, 0)
    lncc_force.launch(
        (b.tiles, triton.cdiv(turn.stop - turn.start, b.chunk), p.pairs),
        fixed,
        b.warped,
        b.maps,
        b.taps,
        moving,
        displacement,
        matrix,
        p.gradient,
        ry,
        turn.start,
        turn.stop,
        b.chunk,
        b.warped.shape[1],
        b.maps.shape[2],
        *p.shapes,
        RZ=rz,
        RX=rx,
        BOX=w.box,
        EXACT=w.exact,
        SYMMETRIC=w.symmetric,
        PLANAR=p.flags["PLANAR"],
        TY=b.tile[0],
        TX=b.tile[1],
    )
