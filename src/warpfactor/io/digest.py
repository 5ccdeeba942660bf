"""Hashes of files, by which a file is known again wherever it lies."""

from __future__ import annotations

import hashlib
from pathlib import Path

_BLOCK = 1 << 20


def file_sha256(place: Path) -> str | None:
    """SHA-256 of a file, or of all files of a folder; None for what is neither, such as a pipe."""
    if not place.is_file() and not place.is_dir():
        return None
    total = hashlib.sha256()
    for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if file.is_file():
            with file.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    total.update(block)
    return total.hexdigest()
