"""Images that rank 0 has whole and lends to the other ranks, plane by plane as they need them.

In the other ranks an image has its full shape, but pages of memory only where it was filled. Of the moving image a rank
asks for the planes that its slab is mapped to and some more; when the warp leads beyond them, it asks again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warpfactor.geometry.grid import Grid
from warpfactor.kernels.buffers import aligned
from warpfactor.ranks.exchange import NOTHING, Exchange, Planes
from warpfactor.scene.scene import Scene, Side

MARGIN = 8  # planes of the moving image beyond those that are needed
SPARE = 16  # bytes after an image, which kernels may read


class Wanted(NamedTuple):
    """Planes of an image, along the first axis, and of its mask."""

    image: Tensor
    mask: Tensor | None
    planes: Planes
    margin: int = 0


@dataclass(frozen=True)
class _Kind:
    """Shape and type of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(tensor: Tensor) -> _Kind:
        return _Kind(tuple(tensor.shape), tensor.dtype)


@dataclass(frozen=True)
class _Outline:
    """A side without its numbers."""

    data: _Kind
    mask: _Kind | None
    grid: Grid
    scale: tuple[tuple[float, float], ...]
    units: tuple[float, ...] | None
    nonfinite: int

    @staticmethod
    def of(side: Side) -> _Outline:
        mask = None if side.mask is None else _Kind.of(side.mask)
        return _Outline(_Kind.of(side.data), mask, side.grid, side.scale, side.units, side.nonfinite)


class Lent:
    """The images that one rank has borrowed, or, in rank 0, lent."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._held = dict[int, Planes]()  # of the images in this rank, by their address

    def scene(self, make: Callable[[], Scene]) -> Scene:
        """The scene that rank 0 makes, without numbers in the others."""
        made = make() if self._exchange.is_first else None
        outlines = self._exchange.agreed(lambda: tuple(_Outline.of(side) for side in made.sides) if made else ())
        if made is not None:
            return Scene(*(replace(side, data=side.data.contiguous()) for side in made.sides))
        return Scene(*(self._empty_side(outline) for outline in outlines))

    def volume(self, make: Callable[[], Tensor]) -> Tensor:
        """The volume that rank 0 makes, without numbers in the others."""
        made = make() if self._exchange.is_first else None
        kind = self._exchange.agreed(lambda: None if made is None else _Kind.of(made))
        if made is not None:
            return made
        assert kind is not None
        return self._empty(kind)

    def hold(self, *wanted: Wanted) -> None:
        """Have the planes; every rank asks for those of the same images."""
        missing = [self._missing(each) for each in wanted]
        asked = self._exchange.words([n for pair in missing for planes in pair for n in planes])
        if not asked.any():
            return
        with self._exchange.transfers() as transfers:
            for rank in range(1, self._exchange.size):
                for each, spans in zip(wanted, asked[rank].reshape(len(wanted), 2, 2), strict=True):
                    for part in _parts(each, spans):
                        if self._exchange.is_first:
                            transfers.send_part(part, rank)
                        elif rank == self._exchange.rank:
                            transfers.receive_part(part, 0)

    def _missing(self, wanted: Wanted) -> tuple[Planes, Planes]:
        """The planes before and after those that are held; they count as held from now on."""
        first, last = wanted.planes
        if self._exchange.is_first or first >= last:
            return NOTHING, NOTHING
        key = wanted.image.data_ptr()
        held = self._held.get(key)
        if held is not None and held[0] <= first and last <= held[1]:
            return NOTHING, NOTHING
        first, last = max(0, first - wanted.margin), min(wanted.image.shape[0], last + wanted.margin)
        if held is None:
            self._held[key] = first, last
            return (first, last), NOTHING
        self._held[key] = min(first, held[0]), max(last, held[1])
        before = (first, held[0]) if first < held[0] else NOTHING
        after = (held[1], last) if held[1] < last else NOTHING
        return before, after

    def _empty_side(self, outline: _Outline) -> Side:
        mask = None if outline.mask is None else self._empty(outline.mask)
        data = self._empty(outline.data)
        return Side(data, mask, outline.grid, outline.scale, outline.units, outline.nonfinite)

    def _empty(self, kind: _Kind) -> Tensor:
        """A tensor of zeros; what was held at its address is forgotten."""
        size = math.prod(kind.shape) * kind.dtype.itemsize
        memory = torch.from_numpy(aligned((size + SPARE,), np.uint8, zero=True))
        start = memory.data_ptr()
        self._held = {key: planes for key, planes in self._held.items() if not start <= key < start + size}
        return memory[:size].view(kind.dtype).reshape(kind.shape)


def _parts(wanted: Wanted, spans: Sequence[Sequence[int]]) -> list[Tensor]:
    """The planes of the image and of its mask, where there are any."""
    volumes = [wanted.image] if wanted.mask is None else [wanted.image, wanted.mask]
    return [volume[int(a) : int(b)] for a, b in spans if a < b for volume in volumes]


def reached(displacement: Tensor, planes: Planes, matrix: Tensor, depth: int) -> Planes:
    """The planes of a moving image of this depth that some planes of the fixed one are mapped to.

    Args:
        displacement: (3, D, H, W).
        matrix: (3, 4), fixed voxel index plus displacement to moving voxel index.
    """
    if planes[0] >= planes[1]:
        return NOTHING
    _, _, height, width = displacement.shape
    ends = [(planes[0], planes[1] - 1), (0, height - 1), (0, width - 1)]
    low = high = float(matrix[0, 3])
    for axis, (first, last) in enumerate(ends):
        least, most = (float(end) for end in displacement[axis, slice(*planes)].aminmax())
        values = float(matrix[0, axis]) * (first + least), float(matrix[0, axis]) * (last + most)
        low, high = low + min(values), high + max(values)
    if not math.isfinite(low + high):
        return 0, depth
    first, last = max(0, math.floor(low) - 1), min(depth, math.floor(high) + 3)
    return (first, last) if first < last else NOTHING
