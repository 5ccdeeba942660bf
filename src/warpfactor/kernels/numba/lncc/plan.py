"""What `lncc` needs to know of a fixed image, and the memory it works in; both are made once per level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from torch import Tensor

from warpfactor.kernels.buffers import aligned
from warpfactor.kernels.numba.lncc.blocks import make_blocks, make_seams, most_rows
from warpfactor.kernels.numba.lncc.correlation import MAPS, PRODUCTS
from warpfactor.kernels.numba.lncc.spans import contrast_spans, whole_spans
from warpfactor.kernels.ops import Slab


class Division(NamedTuple):
    """Which voxels are computed, and how they are divided among threads.

    Attributes:
        spans: (D, H, 2) int64; see spans.py.
        blocks: (number, 4) int64; see blocks.py.
        seams: (H,) int64, number of a row among those near a cut, -1 for the others.
    """

    spans: Any
    blocks: Any
    seams: Any

    @property
    def seam_rows(self) -> int:
        """Number of rows near a cut."""
        return int(self.seams.max(initial=-1)) + 1


class Buffers(NamedTuple):
    """Memory of the kernel. Rings hold as many planes as a window, K; all but the last are separate for each thread.

    Attributes:
        warped: Ring of warped values, (threads, K, rows, W).
        product_sums: Window sums along z of the products, (threads, rows, 6, W).
        maps: Ring of the adjoint maps, (threads, K, rows, 3, W).
        map_sums: Window sums along z of the adjoint maps, (threads, rows, 3, W).
        ratios: Ring of contrast ratios, (threads, rz + 1, rows, W).
        seams: Warped values of the rows near a cut, (seam rows, D, W).
    """

    warped: Any
    product_sums: Any
    maps: Any
    map_sums: Any
    ratios: Any
    seams: Any


class Plan(NamedTuple):
    """The preparation for one fixed image; its settings are those with which `lncc` has to be called.

    Attributes:
        shape: (D, H, W) of the fixed image.
        window: "box" or "gaussian".
        reach: Radius of the window; see `reach_of`.
        division: See `Division`.
        buffers: Shared by the channels of one image, since `lncc` is called for one after the other.
    """

    shape: tuple[int, ...]
    window: str
    reach: tuple[int, ...]
    division: Division
    buffers: Buffers


def lncc_plans(
    fixed: Tensor, mask: Tensor | None, *, radius: Sequence[int], window: str, exact: bool, floors: Sequence[float]
) -> tuple[Plan, ...]:
    """One plan for `lncc` per channel of a fixed image; see the reference."""
    divisions = lncc_divisions(fixed, mask, radius=radius, exact=exact, floors=floors)
    return make_plans(divisions, tuple(fixed.shape[1:]), radius, window)


def lncc_divisions(
    fixed: Tensor, mask: Tensor | None, *, radius: Sequence[int], exact: bool, floors: Sequence[float]
) -> list[Division]:
    """One division per channel of a fixed image."""
    shape = tuple(fixed.shape[1:])
    return [
        divide(contrast_spans(channel, mask, radius=radius, floor=floor), shape, radius, exact=exact)
        for channel, floor in zip(fixed, floors, strict=True)
    ]


def lncc_slabs(
    fixed: Tensor,
    mask: Tensor | None,
    *,
    slabs: Sequence[Slab],
    radius: Sequence[int],
    window: str,
    exact: bool,
    floors: Sequence[float],
) -> tuple[tuple[Plan, ...], ...]:
    """For every slab of a fixed image one plan per channel, all with the same buffers; see the reference."""
    spans = [
        contrast_spans(channel, mask, radius=radius, floor=floor) for channel, floor in zip(fixed, floors, strict=True)
    ]
    divisions = [[divide_slab(each, slab, fixed.shape[1:], radius, exact=exact) for each in spans] for slab in slabs]
    _, height, width = fixed.shape[1:]
    depth = max(slab.outer.stop - slab.outer.start for slab in slabs)
    every = [division for parts in divisions for division in parts]
    shared = make_plans(every, (depth, height, width), radius, window)[0]
    return tuple(
        tuple(
            shared._replace(shape=(slab.outer.stop - slab.outer.start, height, width), division=division)
            for division in parts
        )
        for slab, parts in zip(slabs, divisions, strict=True)
    )


def divide_slab(spans: Any, slab: Slab, shape: Sequence[int], radius: Sequence[int], *, exact: bool) -> Division:
    """The blocks and seams of a slab of an image with these spans: only the core has blocks."""
    own = spans[slab.core]
    blocks = make_blocks(own[..., 1] - own[..., 0], (len(own), *shape[1:]), radius, exact=exact)
    blocks[:, :2] += slab.inner.start
    return Division(spans[slab.outer], blocks, make_seams(blocks, shape[1], (2 if exact else 1) * radius[1]))


def whole_plan(shape: Sequence[int], radius: Sequence[int], window: str) -> Plan:
    """A plan that computes every voxel of an image of this shape."""
    return make_plans([divide(whole_spans(shape), shape, radius)], shape, radius, window)[0]


def divide(spans: Any, shape: Sequence[int], radius: Sequence[int], *, exact: bool = True) -> Division:
    """The blocks and seams for an image with these spans."""
    blocks = make_blocks(spans[..., 1] - spans[..., 0], shape, radius, exact=exact)
    return Division(spans, blocks, make_seams(blocks, shape[1], (2 if exact else 1) * radius[1]))


def make_plans(
    divisions: Sequence[Division], shape: Sequence[int], radius: Sequence[int], window: str
) -> tuple[Plan, ...]:
    """A plan for each of the divisions, with buffers that serve all of them."""
    reach = reach_of(radius, shape, window)
    threads = min(numba.get_num_threads(), max(len(each.blocks) for each in divisions))
    rows = max(most_rows(each.blocks, 2 * reach[1], shape[1]) for each in divisions)
    depth, _, width = shape
    K = 2 * reach[0] + 1
    buffers = Buffers(
        warped=aligned((threads, K, rows, width)),
        product_sums=aligned((threads, rows, PRODUCTS, width), np.float64),
        maps=aligned((threads, K, rows, MAPS, width)),
        map_sums=aligned((threads, rows, MAPS, width), np.float64),
        ratios=aligned((threads, reach[0] + 1, rows, width)),
        seams=aligned((max(each.seam_rows for each in divisions), depth, width)),
    )
    return tuple(Plan(tuple(shape), window, reach, each, buffers) for each in divisions)


def reach_of(radius: Sequence[int], shape: Sequence[int], window: str) -> tuple[int, ...]:
    """The radius; for a box at most the size of the image, since voxels beyond it add nothing but planes of rings."""
    return tuple(min(r, n - 1) if window == "box" else r for r, n in zip(radius, shape, strict=True))
