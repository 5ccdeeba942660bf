"""Slabs: passes that follow each other over a few planes at a time, with buffers that hold no more than these.

A pass reads planes that the one before it wrote, some of them behind and ahead of the plane it writes. Buffers are
rings: plane z of a volume lies in slot z mod `planes`. So a chain of passes needs a few megabytes instead of volumes,
and on devices with a large second-level cache what lies between two passes never goes to memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

BYTES = 32 << 20  # of all rings of a chain of passes: the A100 has 40 MB of second-level cache, the H100 50
LEAST = 16  # planes of a slab, unless the volume has fewer


class Reach(NamedTuple):
    """How many planes before and after its own a pass reads."""

    behind: int = 0
    ahead: int = 0


class Turn(NamedTuple):
    """One launch: pass number `number` writes the planes from `start` up to `stop`."""

    number: int
    start: int
    stop: int


@dataclass(frozen=True)
class PassChain:
    """Passes over a volume, each of which reads what the one before it wrote into a ring.

    Attributes:
        depth: planes of the volume.
        reaches: of each pass; that of the first does not matter.
        plane_bytes: bytes of a plane of each ring, of which there is one less than passes.
    """

    depth: int
    reaches: tuple[Reach, ...]
    plane_bytes: tuple[int, ...]

    @property
    def planes(self) -> int:
        """Planes of a slab: as many as the rings can hold, but not fewer than a few."""
        halo = sum(size * more for size, more in zip(self.plane_bytes, self._halos, strict=True))
        return min(self.depth, max(LEAST, (BYTES - halo) // max(1, sum(self.plane_bytes))))

    @property
    def rings(self) -> tuple[int, ...]:
        """Planes of each ring."""
        return tuple(min(self.depth, self.planes + halo) for halo in self._halos)

    @property
    def nbytes(self) -> int:
        """Of all rings."""
        return sum(size * planes for size, planes in zip(self.plane_bytes, self.rings, strict=True))

    @property
    def _halos(self) -> list[int]:
        """Planes of each ring beyond those of a slab: what its reader looks at, and what later passes are ahead."""
        later = [sum(reach.ahead for reach in self.reaches[k + 1 :]) for k in range(1, len(self.reaches))]
        return [more + reach.behind + reach.ahead for more, reach in zip(later, self.reaches[1:], strict=True)]

    def turns(self) -> Iterator[Turn]:
        """The launches, one slab of the last pass after the other; each pass is ahead of those that need it."""
        done = [0] * len(self.reaches)
        for start in range(0, self.depth, self.planes):
            wanted = [min(self.depth, start + self.planes)]
            for reach in reversed(self.reaches[1:]):
                wanted.insert(0, min(self.depth, wanted[0] + reach.ahead))
            for number, stop in enumerate(wanted):
                if stop > done[number]:
                    yield Turn(number, done[number], stop)
                    done[number] = stop
