"""Gzip for fields of floating-point numbers, whose low bytes are noise.

A search for repetitions finds next to nothing in them; runs of one byte (zero displacement) and unequal frequencies
are all there is to gain. For the warp of a 1 mm brain (162x214x167, 3 x float32, 69 MB) zlib took 2.1 CPU seconds to
reach 64.2 MB at every level from 1 to 6, and 0.9 to reach 64.5 MB with runs only.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from warpfactor.itk import sitk

_CHUNK = 1 << 22
_GZIP_CONTAINER = 31  # zlib's code for a gzip header and the largest window
_MEMORY = 9


def applies(path: Path) -> bool:
    return path.name.lower().endswith(".nii.gz")


def write(image: Any, path: Path) -> None:
    """Write a SimpleITK image as .nii.gz, by way of an unpacked file beside it."""
    plain = path.with_suffix("")
    try:
        sitk.WriteImage(image, str(plain))
        pack(plain, path)
    finally:
        plain.unlink(missing_ok=True)


def pack(source: Path, target: Path) -> None:
    """Gzip a file; Python's lock is free meanwhile, so several can be packed at once."""
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP_CONTAINER, _MEMORY, zlib.Z_RLE)
    with source.open("rb") as plain, target.open("wb") as packed:
        while chunk := plain.read(_CHUNK):
            packed.write(packer.compress(chunk))
        packed.write(packer.flush())
