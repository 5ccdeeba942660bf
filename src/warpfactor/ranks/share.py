"""The share of a rank in a stage: a slab of planes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor

from warpfactor.kernels.ops import Ops
from warpfactor.ranks.exchange import NOTHING, Exchange, Planes, overlap
from warpfactor.ranks.lent import Lent
from warpfactor.ranks.ops import SlabOps
from warpfactor.scene.scene import Scene
from warpfactor.stages.agreement import Agreement, agreement_of_blocks, blocks_of

T = TypeVar("T")


class Slabs:
    """See stages/share.py for what each does.

    Args:
        whole: the backend.
    """

    def __init__(self, exchange: Exchange, whole: Ops) -> None:
        self._exchange, self._lent, self._whole = exchange, Lent(exchange), whole
        self._fields = cast(Ops, SlabOps(whole, exchange, self._lent))

    def ops(self, ops: Ops) -> Ops:
        return self._fields

    def planes(self, depth: int) -> Planes:
        return self._exchange.own(depth)

    def scene(self, make: Callable[[], Scene]) -> Scene:
        return self._lent.scene(make)

    def agreed(self, make: Callable[[], T]) -> T:
        return self._exchange.agreed(make)

    def around(self, field: Tensor, reach: int) -> None:
        self._exchange.fetch_around(field, reach)

    def agreement(self, force: Tensor, weights: Sequence[float], sigma: Sequence[float], ops: Ops) -> Agreement:
        """Rank 0 gets the blocks and compares their halves."""
        shape = force.shape[1:]
        parts = [self._block(force, block) for block in blocks_of(shape)]
        return self._exchange.agreed(lambda: agreement_of_blocks(parts, shape, weights, sigma, self._whole))

    def _block(self, force: Tensor, block: tuple[slice, ...]) -> Tensor:
        """A block of the force in rank 0; nothing in the others."""
        depth = force.shape[1]
        z, y, x = block
        planes = z.start, min(z.stop, depth)
        shared = [overlap(planes, own) for own in self._exchange.cuts(depth)]
        first = self._exchange.is_first
        whole = torch.empty((len(force), planes[1] - planes[0], *force[0, 0, y, x].shape), dtype=force.dtype)
        with self._exchange.transfers() as transfers:
            for rank, (a, b) in enumerate(shared):
                if (a, b) == NOTHING:
                    continue
                if first and rank == 0:
                    whole[:, a - planes[0] : b - planes[0]] = force[:, a:b, y, x]
                elif first:
                    transfers.receive_part(whole[:, a - planes[0] : b - planes[0]], rank)
                elif rank == self._exchange.rank:
                    transfers.send_part(force[:, a:b, y, x], 0)
        return whole

    def whole(self, field: Tensor, change: Callable[[], int]) -> None:
        cuts = self._exchange.cuts(field.shape[1])
        everything = (0, field.shape[1])
        self._exchange.fetch(field, [everything] + [NOTHING] * (len(cuts) - 1))
        if self._exchange.agreed(change) == 0:
            return
        with self._exchange.transfers() as transfers:
            for rank, planes in enumerate(cuts[1:], 1):
                if self._exchange.is_first:
                    transfers.send(field, _as_planes(planes), rank)
                elif rank == self._exchange.rank:
                    transfers.receive(field, _as_planes(planes), 0)


def _as_planes(planes: Planes) -> Planes:
    """NOTHING for any empty range."""
    return planes if planes[0] < planes[1] else NOTHING
