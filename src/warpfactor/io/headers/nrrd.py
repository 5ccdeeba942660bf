"""NRRD (.nrrd, .nhdr): a line "NRRD000x", lines "field: value", an empty line, the voxels."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import BinaryIO

from warpfactor.io.headers.payload import (
    MOST_AXES,
    TRUNCATED,
    DamageError,
    check_deflated,
    check_need,
    check_place,
    check_sizes,
    finite_numbers,
    header_lines,
    remaining,
    whole_numbers,
)
from warpfactor.io.headers.trial import try_image

# The names of number types that the format allows, by size.
BYTES = {
    **dict.fromkeys(("signed char", "int8", "int8_t", "uchar", "unsigned char", "uint8", "uint8_t"), 1),
    **dict.fromkeys(("short", "short int", "signed short", "signed short int", "int16", "int16_t"), 2),
    **dict.fromkeys(("ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"), 2),
    **dict.fromkeys(("int", "signed int", "int32", "int32_t", "uint", "unsigned int", "uint32", "uint32_t"), 4),
    **dict.fromkeys(("longlong", "long long", "long long int", "signed long long", "signed long long int"), 8),
    **dict.fromkeys(("int64", "int64_t", "ulonglong", "unsigned long long", "unsigned long long int"), 8),
    **dict.fromkeys(("uint64", "uint64_t", "double"), 8),
    "float": 4,
}
_RAW, _GZIP, _TEXT = ("raw",), ("gzip", "gz"), ("ascii", "text", "txt")
_VECTOR = re.compile(r"\(([^()]*)\)")


def check(path: Path) -> None:
    """Raise a DamageError if the file is damaged."""
    with path.open("rb") as stream:
        entries, ended = _entries(stream)
        voxels, needed = _needed(entries)
        check_need(needed)
        apart = entries.get("data file", entries.get("datafile"))
        if apart is None and not ended:
            raise DamageError(TRUNCATED)
        if apart is None:
            _check_voxels(path, stream, entries, voxels, needed)
            return
    if apart.startswith("LIST") or "%" in apart:
        try_image(path)  # one file per slice
        return
    beside = path.parent / apart
    if not beside.is_file():
        raise DamageError(f"its voxels should be in {apart}, which does not exist; copy that file as well")
    with beside.open("rb") as stream:
        _check_voxels(beside, stream, entries, voxels, needed)


def _entries(stream: BinaryIO) -> tuple[dict[str, str], bool]:
    """The fields of the header, and whether the empty line that ends it is there."""
    lines = header_lines(stream)
    if not next(lines, "").startswith("NRRD000"):
        raise DamageError("it is not an NRRD file, although its suffix says so; check the program that wrote it")
    entries: dict[str, str] = {}
    for line in lines:
        if not line.strip():
            return entries, True
        key, colon, value = line.partition(":")
        if colon and not line.startswith("#") and not value.startswith("="):
            entries[key.strip().lower()] = value.strip()
    return entries, False


def _needed(entries: dict[str, str]) -> tuple[int, int]:
    """The number of values and of their bytes; DamageError for entries that cannot be."""
    axes = whole_numbers(entries.get("dimension", ""), "dimension", 1)[0]
    if not 2 <= axes <= MOST_AXES:
        raise DamageError(f"its entry dimension is {axes}; an image has 2 or 3 dimensions, with its channels up to 5")
    sizes = whole_numbers(entries.get("sizes", ""), "sizes", axes)
    check_sizes(sizes, "sizes")
    kind = " ".join(entries.get("type", "").lower().split())
    if kind not in BYTES:
        raise DamageError(f"its entry type is {kind[:40]!r}, which is not a known data type; correct the header")
    _check_geometry(entries)
    return math.prod(sizes), math.prod(sizes) * BYTES[kind]


def _check_geometry(entries: dict[str, str]) -> None:
    for name in ("space origin", "space directions"):
        for vector in _VECTOR.findall(entries.get(name, "")):
            check_place(vector.replace(",", " "), name)


def _check_voxels(path: Path, stream: BinaryIO, entries: dict[str, str], voxels: int, needed: int) -> None:
    encoding = entries.get("encoding", "").lower()
    skipped = whole_numbers(entries.get("byte skip", entries.get("byteskip", "0")), "byte skip", 1)[0]
    if whole_numbers(entries.get("line skip", entries.get("lineskip", "0")), "line skip", 1)[0] or skipped < -1:
        try_image(path)
        return
    if encoding in _GZIP and skipped <= 0:
        check_deflated(stream, needed, gzip=True)
    elif encoding in _RAW:
        if remaining(path, stream) - max(0, skipped) < needed:
            raise DamageError(TRUNCATED)
    elif encoding in _TEXT:
        if len(finite_numbers(stream.read().decode("latin-1").replace(",", " "), "data")) < voxels:
            raise DamageError(TRUNCATED)
    else:
        raise DamageError(f"its encoding {encoding[:40]!r} cannot be checked; save it as raw or gzip")
