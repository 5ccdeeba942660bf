"""TIFF: the chain of its directories, one per plane, and where their entries lie.

A reader that meets a directory beyond the end of a file ends the chain there, so that a truncated stack is a shorter
one.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

from warpfactor.io.headers.payload import TRUNCATED, DamageError

_ORDERS = {b"II": "<", b"MM": ">"}
_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_MOST_ENTRIES = 4096


class _Form(NamedTuple):
    """The sizes of a TIFF or a BigTIFF: byte order, offsets, counts of entries, and the length of one entry."""

    order: str
    offset: str
    number: str
    entry: int

    def read(self, stream: BinaryIO, letter: str) -> int:
        form = f"{self.order}{letter}"
        raw = stream.read(struct.calcsize(form))
        if len(raw) < struct.calcsize(form):
            raise DamageError(TRUNCATED)
        return int(struct.unpack(form, raw)[0])


def check(path: Path) -> None:
    """Raise a DamageError if a directory, or what it refers to, lies beyond the end of the file."""
    size, seen = path.stat().st_size, set[int]()
    with path.open("rb") as stream:
        form = _form(stream)
        place = form.read(stream, form.offset)
        while place:
            if place in seen:
                raise DamageError("its directories refer to each other in a circle; copy it again from its source")
            seen.add(place)
            place = _next(stream, form, place, size)
    if not seen:
        raise DamageError("it holds no image; copy it again from its source")


def _form(stream: BinaryIO) -> _Form:
    head = stream.read(4)
    order = _ORDERS.get(head[:2])
    if order is None or len(head) < 4:
        raise DamageError("it is not a TIFF file, although its suffix says so; check the program that wrote it")
    version = struct.unpack(f"{order}H", head[2:])[0]
    if version == 43:
        stream.read(4)  # the size of offsets, always 8
        return _Form(order, "Q", "Q", 20)
    return _Form(order, "I", "H", 12)


def _next(stream: BinaryIO, form: _Form, place: int, size: int) -> int:
    """Check the directory at `place` and return where the next one is, 0 after the last."""
    if place >= size:
        raise DamageError(TRUNCATED)
    stream.seek(place)
    count = form.read(stream, form.number)
    if not 0 < count <= _MOST_ENTRIES:
        raise DamageError(f"it has a directory of {count} entries; copy it again from its source")
    raw = stream.read(count * form.entry)
    if len(raw) < count * form.entry:
        raise DamageError(TRUNCATED)
    width = struct.calcsize(f"{form.order}{form.offset}")
    for start in range(0, len(raw), form.entry):
        _, kind, values, where = struct.unpack_from(f"{form.order}HH{form.offset}{form.offset}", raw, start)
        length = _BYTES.get(kind, 1) * values
        if length > width and where + length > size:
            raise DamageError(TRUNCATED)
    return form.read(stream, form.offset)
