"""Chunks of a Zarr array that were cut short, where the decoder does not notice it.

Blosc may fill what a chunk has lost with other numbers, but the chunk's first bytes say how long it is. An empty shard
is taken for one that was never written. Other codecs refuse what is too short, and a chunk whose file is missing holds
the fill value, by the format.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from warpfactor.errors import FileError

BLOSC = "blosc"
HEADER = struct.Struct("<12xI")  # the last field is the length of the chunk, header included


def check_chunks(path: Path, array: Any, selection: Sequence[slice | int] | None = None) -> None:
    """FileError if a chunk that is to be read has lost its end.

    Args:
        path: for the message.
        array: of zarr, in a folder.
        selection: what of it is to be read; None for the whole array.
    """
    root, packed = Path(array.store.root) / array.path, not array.shards and _uses_blosc(array)
    for key in _keys(array, selection):
        chunk = root / key
        if not chunk.is_file():
            continue
        length = chunk.stat().st_size
        if length == 0 or (packed and length != _announced(chunk)):
            raise FileError(
                f"{path}: the chunk {key} is damaged: it has {length} bytes, which is not what was written; copy the "
                "folder again."
            )


def _uses_blosc(array: Any) -> bool:
    """Whether Blosc makes the bytes of the chunks' files, with the names of Zarr 2 and 3."""
    last = array.compressors[-1:]
    plain = [codec.to_dict() if hasattr(codec, "to_dict") else codec.get_config() for codec in last]
    return any(str(each.get("name", each.get("id"))).endswith(BLOSC) for each in plain)


def _announced(chunk: Path) -> int:
    with chunk.open("rb") as stream:
        start = stream.read(HEADER.size)
    return int(HEADER.unpack(start)[0]) if len(start) == HEADER.size else -1


def _keys(array: Any, selection: Sequence[slice | int] | None) -> Iterator[str]:
    """Names of the files that hold a part of the array."""
    sizes = array.shards or array.chunks
    wanted = selection or [slice(0, length) for length in array.shape]
    spans = [
        (part, part + 1) if isinstance(part, int) else part.indices(length)[:2]
        for part, length in zip(wanted, array.shape, strict=True)
    ]
    numbers = [range(start // size, -(-stop // size)) for (start, stop), size in zip(spans, sizes, strict=True)]
    return (array.metadata.encode_chunk_key(where) for where in itertools.product(*numbers))
