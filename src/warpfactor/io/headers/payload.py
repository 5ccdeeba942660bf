"""What headers have in common: sizes, numbers, and the bytes that must follow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from isal import isal_zlib

from warpfactor.errors import InputError
from warpfactor.memory import check_memory


class DamageError(InputError):
    """What is wrong with a file, as a part of the sentence that names it."""


MOST_AXES = 5  # a series of vector images
_CHUNK = 1 << 20
_FURTHEST = 1e9  # millimetres
_ZLIB, _GZIP = 15, 31  # window bits of the two kinds of deflate streams
_DAMAGE: tuple[type[Exception], ...] = (cast(Any, isal_zlib.error), EOFError)
TRUNCATED = "is truncated, it ends before the data that its header announces; copy it again from its source"


def header_lines(stream: BinaryIO, *, most: int = 1 << 16) -> Iterator[str]:
    """The lines of a text header, without line ends; DamageError if it is no text, or too long for a header."""
    read = 0
    while read < most:
        line = stream.readline(most - read)
        read += len(line)
        if not line:
            return
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DamageError("its header is not text; copy it again from its source") from error
    raise DamageError(f"its header does not end within {most} bytes; copy it again from its source")


def whole_numbers(text: str, name: str, count: int | None = None) -> tuple[int, ...]:
    """The whole numbers of a header entry; DamageError if there are others, or not `count` of them."""
    try:
        values = tuple(int(part) for part in text.split())
    except ValueError as error:
        raise DamageError(f"its entry {name} is {text[:40]!r} instead of whole numbers; correct the header") from error
    if count is not None and len(values) != count:
        raise DamageError(f"its entry {name} has {len(values)} numbers instead of {count}; correct the header")
    return values


def finite_numbers(text: str, name: str, count: int | None = None) -> tuple[float, ...]:
    """The numbers of a header entry; DamageError if one is not finite, or if there are not `count` of them."""
    try:
        values = tuple(float(part) for part in text.split())
    except ValueError as error:
        raise DamageError(f"its entry {name} is {text[:40]!r} instead of numbers; correct the header") from error
    if not all(math.isfinite(value) for value in values):
        raise DamageError(f"its entry {name} has a number that is not finite; correct the header")
    if count is not None and len(values) != count:
        raise DamageError(f"its entry {name} has {len(values)} numbers instead of {count}; correct the header")
    return values


def check_place(text: str, name: str, count: int | None = None) -> None:
    """Raise a DamageError unless a header entry has the numbers of a place in space; ITK does not end with 1e308."""
    if any(abs(value) > _FURTHEST for value in finite_numbers(text, name, count)):
        raise DamageError(f"its entry {name} has a number beyond {_FURTHEST:g}, which no image has; correct the header")


def check_sizes(sizes: Sequence[int], name: str) -> None:
    """Raise a DamageError if an axis has no voxel."""
    if not sizes or min(sizes) < 1:
        raise DamageError(f"its entry {name} has a size below 1; correct the header")


def check_need(count: int) -> None:
    """Raise a DamageError if so many bytes do not fit into memory."""
    check_memory(count, "It", remedy="read it on a larger machine, or correct its header")


def check_deflated(stream: BinaryIO, needed: int, *, gzip: bool, limit: int | None = None) -> None:
    """Raise a DamageError if a compressed stream is damaged, or gives fewer bytes than needed.

    Args:
        stream: at the start of the compressed bytes.
        needed: number of bytes that it must give.
        gzip: gzip; otherwise zlib.
        limit: length of the compressed bytes, if it is known.
    """
    worker = cast(Any, isal_zlib).decompressobj(_GZIP if gzip else _ZLIB)
    given, left = 0, limit
    try:
        while not worker.eof:
            packed = stream.read(_CHUNK if left is None else min(_CHUNK, left))
            if not packed:
                raise EOFError
            left = None if left is None else left - len(packed)
            given += _unpacked(worker, packed, needed - given)
    except EOFError as error:
        raise DamageError(TRUNCATED) from error
    except _DAMAGE as error:
        raise DamageError(f"its compressed data is damaged ({error}); copy it again from its source") from error
    if given != needed:
        raise DamageError(f"it unpacks to {given} bytes, its header announces {needed}; copy it again from its source")


def _unpacked(worker: Any, packed: bytes, wanted: int) -> int:
    """How many bytes a chunk gives; DamageError once they are more than wanted."""
    given = 0
    while packed:
        part = worker.decompress(packed, _CHUNK)
        given += len(part)
        if given > wanted:
            raise DamageError("it unpacks to more bytes than its header announces; copy it again from its source")
        packed = b"" if worker.eof else worker.unconsumed_tail
        if not part and not packed:
            break
    return given


def remaining(path: Path, stream: BinaryIO) -> int:
    """Number of bytes from the position of the stream to the end of the file."""
    return path.stat().st_size - stream.tell()
