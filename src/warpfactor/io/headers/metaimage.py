"""MetaImage (.mha, .mhd): lines "Key = Value", the last of which names the file of the voxels."""

from __future__ import annotations

import math
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

BYTES = {
    **dict.fromkeys(("MET_CHAR", "MET_UCHAR", "MET_CHAR_ARRAY", "MET_UCHAR_ARRAY"), 1),
    **dict.fromkeys(("MET_SHORT", "MET_USHORT", "MET_SHORT_ARRAY", "MET_USHORT_ARRAY"), 2),
    **dict.fromkeys(("MET_INT", "MET_UINT", "MET_FLOAT", "MET_INT_ARRAY", "MET_UINT_ARRAY", "MET_FLOAT_ARRAY"), 4),
    **dict.fromkeys(("MET_LONG", "MET_ULONG", "MET_LONG_ARRAY", "MET_ULONG_ARRAY"), 8),
    **dict.fromkeys(("MET_LONG_LONG", "MET_ULONG_LONG", "MET_DOUBLE", "MET_DOUBLE_ARRAY"), 8),
}
_ORIGINS = ("Offset", "Position", "Origin")
_TURNS = ("TransformMatrix", "Rotation", "Orientation")
_VALUES = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}


def check(path: Path) -> None:
    """Raise a DamageError if the file is damaged."""
    with path.open("rb") as stream:
        entries = _entries(stream)
        needed = _needed_bytes(entries)
        check_need(needed)
        where = entries["ElementDataFile"]
        if where == "LOCAL":
            _check_voxels(path, stream, entries, needed)
            return
    if where.split()[:1] == ["LIST"] or "%" in where:
        try_image(path)  # one file per slice
        return
    voxels = path.parent / where
    if not voxels.is_file():
        raise DamageError(f"its voxels should be in {where}, which does not exist; copy that file as well")
    with voxels.open("rb") as stream:
        _check_voxels(voxels, stream, entries, needed)


def _entries(stream: BinaryIO) -> dict[str, str]:
    entries: dict[str, str] = {}
    for line in header_lines(stream):
        key, equals, value = line.partition("=")
        if not equals and line.strip():
            raise DamageError(
                "it is not a MetaImage file, although its suffix says so; check the program that wrote it"
            )
        entries[key.strip()] = value.strip()
        if key.strip() == "ElementDataFile":
            return entries
    raise DamageError(TRUNCATED if "NDims" in entries else "it is not a MetaImage file, although its suffix says so")


def _needed_bytes(entries: dict[str, str]) -> int:
    """The number of bytes of the voxels; DamageError for entries that cannot be."""
    axes = whole_numbers(entries.get("NDims", ""), "NDims", 1)[0]
    if not 2 <= axes <= MOST_AXES:
        raise DamageError(f"its entry NDims is {axes}; an image has 2 or 3 dimensions and a series 4")
    sizes = whole_numbers(entries.get("DimSize", ""), "DimSize", axes)
    check_sizes(sizes, "DimSize")
    channels = whole_numbers(entries.get("ElementNumberOfChannels", "1"), "ElementNumberOfChannels", 1)
    check_sizes(channels, "ElementNumberOfChannels")
    kind = entries.get("ElementType", "")
    if kind not in BYTES:
        raise DamageError(f"its entry ElementType is {kind[:40]!r}, which is not a known data type; correct the header")
    _check_geometry(entries, axes)
    return math.prod(sizes) * channels[0] * BYTES[kind]


def _check_geometry(entries: dict[str, str], axes: int) -> None:
    for names, count in (
        (_ORIGINS, axes),
        (_TURNS, axes * axes),
        (("ElementSpacing", "ElementSize", "CenterOfRotation"), axes),
    ):
        for name in names:
            if name in entries:
                check_place(entries[name], name, count)


def _check_voxels(path: Path, stream: BinaryIO, entries: dict[str, str], needed: int) -> None:
    """Raise a DamageError if the voxels that follow are too few or damaged."""
    skipped = whole_numbers(entries.get("HeaderSize", "0"), "HeaderSize", 1)[0]
    if skipped > 0:
        stream.seek(skipped)
    elif skipped == -1:  # the voxels are the last bytes of the file
        stream.seek(max(0, path.stat().st_size - needed))
    elif skipped:
        raise DamageError(f"its entry HeaderSize is {skipped}; correct the header")
    if not _is_true(entries, "BinaryData", default=False):
        _check_text(stream, math.prod(whole_numbers(entries["DimSize"], "DimSize")))
    elif _is_true(entries, "CompressedData", default=False):
        length = entries.get("CompressedDataSize")
        limit = None if length is None else whole_numbers(length, "CompressedDataSize", 1)[0]
        check_deflated(stream, needed, gzip=False, limit=limit)
    elif remaining(path, stream) < needed:
        raise DamageError(TRUNCATED)


def _is_true(entries: dict[str, str], name: str, *, default: bool) -> bool:
    text = entries.get(name)
    if text is None:
        return default
    if text.lower() not in _VALUES:
        raise DamageError(f"its entry {name} is {text[:40]!r} instead of True or False; correct the header")
    return _VALUES[text.lower()]


def _check_text(stream: BinaryIO, voxels: int) -> None:
    found = finite_numbers(stream.read().decode("latin-1"), "ElementDataFile")
    if len(found) < voxels:
        raise DamageError(TRUNCATED)
