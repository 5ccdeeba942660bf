"""What ranks send each other over torch.distributed: planes of fields, sums of planes, and what rank 0 decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from warpfactor.errors import RankError

Planes = tuple[int, int]
T = TypeVar("T")
UNIT = 16  # planes: slabs begin at a multiple of it, where the sums of LNCC begin anew
NOTHING: Planes = (0, 0)
LOST = "A rank ended before the registration did; nothing was written. Start it again."


def cuts(depth: int, size: int) -> list[Planes]:
    """The planes of every rank of an image of so many; some ranks have none if there are few."""
    units = -(-depth // UNIT)
    ends = [min(depth, units * k // size * UNIT) for k in range(size + 1)]
    return list(pairwise(ends))


def overlap(a: Planes, b: Planes) -> Planes:
    """The planes that are in both ranges."""
    first, last = max(a[0], b[0]), min(a[1], b[1])
    return (first, last) if first < last else NOTHING


def widened(planes: Planes, reach: int, depth: int) -> Planes:
    """The planes and `reach` on both sides; none around none."""
    return (max(0, planes[0] - reach), min(depth, planes[1] + reach)) if planes[0] < planes[1] else NOTHING


class Exchange:
    """The connection of one rank to the others, over the default group of torch.distributed.

    Attributes:
        rank, size: which of how many.
        sent_bytes: what this rank has sent of planes so far.
    """

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.sent_bytes = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def cuts(self, depth: int) -> list[Planes]:
        return cuts(depth, self.size)

    def own(self, depth: int) -> Planes:
        return cuts(depth, self.size)[self.rank]

    def fetch(self, field: Tensor, needs: Sequence[Planes]) -> None:
        """Have the planes that every rank needs of a (C, D, H, W) field, each from the rank whose they are."""
        owned = self.cuts(field.shape[1])
        with self.transfers() as transfers:
            for other in range(self.size):
                if other != self.rank:
                    transfers.send(field, overlap(owned[self.rank], needs[other]), other)
                    transfers.receive(field, overlap(owned[other], needs[self.rank]), other)

    def fetch_around(self, field: Tensor, reach: int) -> None:
        """Have `reach` planes on both sides of the own ones."""
        depth = field.shape[1]
        if reach > 0:
            self.fetch(field, [widened(planes, reach, depth) for planes in self.cuts(depth)])

    @contextmanager
    def transfers(self) -> Iterator[Transfers]:
        """Collects what is to be sent and received inside the block, and does it at its end."""
        collected = Transfers()
        yield collected
        self.sent_bytes += collected.finish()

    def gathered(self, own: Any, depth: int) -> Any:
        """(..., depth) from the (..., planes) numbers of every rank, in the order of planes; the same in all ranks."""
        planes = [last - first for first, last in self.cuts(depth)]
        most = max(planes)
        mine = np.zeros((*own.shape[:-1], most))
        mine[..., : own.shape[-1]] = own
        found = [torch.empty(mine.shape, dtype=torch.float64) for _ in range(self.size)]
        with connected():
            dist.all_gather(found, torch.from_numpy(mine))
        return np.concatenate([part.numpy()[..., :n] for part, n in zip(found, planes, strict=True)], axis=-1)

    def words(self, own: Sequence[int]) -> Any:
        """(size, n) the whole numbers of every rank."""
        found = [torch.empty(len(own), dtype=torch.int64) for _ in range(self.size)]
        with connected():
            dist.all_gather(found, torch.tensor(own, dtype=torch.int64))
        return torch.stack(found).numpy()

    def agreed(self, make: Callable[[], T]) -> T:
        """What rank 0 makes, in all ranks."""
        box = [make() if self.is_first else None]
        with connected():
            dist.broadcast_object_list(box, src=0)
        return box[0]  # type: ignore[return-value]


class Transfers:
    """Planes on their way; a message per rank and field."""

    def __init__(self) -> None:
        self._operations = list[dist.P2POp]()
        self._arrivals = list[tuple[Tensor, Tensor]]()
        self._bytes = 0

    def send(self, field: Tensor, planes: Planes, other: int) -> None:
        """Send planes, along the second axis, to another rank."""
        if planes != NOTHING:
            self.send_part(field[:, slice(*planes)], other)

    def receive(self, field: Tensor, planes: Planes, other: int) -> None:
        """Receive planes, along the second axis, from another rank."""
        if planes != NOTHING:
            self.receive_part(field[:, slice(*planes)], other)

    def send_part(self, part: Tensor, other: int) -> None:
        packed = part.contiguous()
        self._bytes += packed.numel() * packed.element_size()
        self._operations.append(dist.P2POp(dist.isend, packed.reshape(-1).view(torch.uint8), other))

    def receive_part(self, part: Tensor, other: int) -> None:
        packed = part if part.is_contiguous() else torch.empty(part.shape, dtype=part.dtype, device=part.device)
        if packed is not part:
            self._arrivals.append((part, packed))
        self._operations.append(dist.P2POp(dist.irecv, packed.view(-1).view(torch.uint8), other))

    def finish(self) -> int:
        """Wait for all of them; the number of bytes that were sent."""
        with connected():
            for work in dist.batch_isend_irecv(self._operations) if self._operations else ():
                work.wait()
        for part, packed in self._arrivals:
            part.copy_(packed)
        return self._bytes


@contextmanager
def connected() -> Iterator[None]:
    """A RankError if the others can no longer be reached."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise RankError(LOST) from error
