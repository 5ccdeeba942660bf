"""Slabs: passes that follow each other over a few planes at a time, with buffers that hold no more than these.

A pass reads planes that the one before it wrote, some of them behind and ahead of the plane it writes. Buffers are
rings: plane z of a volume lies in slot z mod `planes`. So a chain of passes needs a few megabytes instead of volumes,
and on devices with a large second-level cache what lies between two passes never goes to memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

BYTES = 32 << 20  # of all buffers of a chain of passes: the A100 has 40 MB of second-level cache, the H100 50
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


def thickness(depth: int, plane_bytes: int) -> int:
    """Planes of a slab, if all buffers together take `plane_bytes` a plane."""
    return min(depth, max(LEAST, BYTES // max(1, plane_bytes)))


def turns(depth: int, planes: int, reaches: Sequence[Reach]) -> Iterator[Turn]:
    """The launches of a chain of passes over a volume, `planes` planes of the last pass at a time."""
    done = [0] * len(reaches)
    for start in range(0, depth, planes):
        wanted = [min(depth, start + planes)]
        for reach in reversed(reaches[1:]):
            wanted.insert(0, min(depth, wanted[0] + reach.ahead))
        for index, stop in enumerate(wanted):
            if stop > done[index]:
                yield Turn(index, done[index], stop)
                done[index] = stop


def ring_planes(depth: int, planes: int, reaches: Sequence[Reach]) -> list[int]:
    """Planes of the buffer behind each pass but the last."""
    found = []
    for index in range(1, len(reaches)):
        later = sum(reach.ahead for reach in reaches[index + 1 :])
        found.append(min(depth, planes + later + reaches[index].behind + reaches[index].ahead))
    return found
