"""Gzip for floating-point numbers, whose low bytes are noise: fields and interpolated images.

There is little to gain in them, so it should cost little. For the warp of a 1 mm brain (162x214x167, 3 x float32,
69 MB) zlib takes 2.1 CPU seconds to reach 64.2 MB at every level from 1 to 6, and 0.96 to reach 64.6 MB with runs only;
Intel's ISA-L takes 0.10 to reach 65.5 MB. For the brain itself, interpolated, 0.10 (runs only) and 0.02 for 5.9 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from isal import isal_zlib

_GZIP_CONTAINER = 31  # zlib's code for a gzip header and the largest window

Put = Callable[[bytes | memoryview], object]


@contextmanager
def opened(path: Path) -> Iterator[Put]:
    """What to call with each part of a file; it is packed if its name ends in .gz.

    Python's lock is free while a part is packed, so several files can be packed at once.
    """
    with path.open("wb") as stream:
        if path.suffix.lower() != ".gz":
            yield stream.write
            return
        packer = isal_zlib.compressobj(1, isal_zlib.DEFLATED, _GZIP_CONTAINER)
        yield lambda part: stream.write(packer.compress(part))
        stream.write(packer.flush())
