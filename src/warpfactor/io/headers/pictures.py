"""PNG, JPEG and BMP: whether a picture is whole, as far as its own marks tell."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from warpfactor.io.headers.payload import TRUNCATED, DamageError, check_need

_PNG = b"\x89PNG\r\n\x1a\n"
_LARGEST_CHUNK = 1 << 31
_FRAMES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}  # start of a frame
_START, _END, _SCAN = 0xD8, 0xD9, 0xDA
_ALONE = {0x01, *range(0xD0, 0xD8)}  # markers without a length
_BITMAP_HEADER = 40
_MOST_PIXELS_PER_BYTE = 1024  # every block of 64 pixels takes a bit at least; twice that, to be safe


def check_png(path: Path) -> None:
    """Raise a DamageError unless every chunk has its checksum and the last one is there."""
    content = path.read_bytes()
    if not content.startswith(_PNG):
        raise DamageError("it is not a PNG file, although its suffix says so; check the program that wrote it")
    place, names = len(_PNG), list[bytes]()
    while not names or names[-1] != b"IEND":
        if len(content) < place + 12:
            raise DamageError(TRUNCATED)
        length, name = struct.unpack_from(">I4s", content, place)
        if length >= _LARGEST_CHUNK or len(content) < place + 12 + length:
            raise DamageError(TRUNCATED)
        (checksum,) = struct.unpack_from(">I", content, place + 8 + length)
        if zlib.crc32(content[place + 4 : place + 8 + length]) != checksum:
            raise DamageError(f"its chunk {name!r} is damaged; copy it again from its source")
        if not names:
            _check_png_size(name, content[place + 8 : place + 8 + length])
        names.append(name)
        place += 12 + length


def _check_png_size(name: bytes, header: bytes) -> None:
    if name != b"IHDR" or len(header) != 13:
        raise DamageError("it does not begin with a PNG header; copy it again from its source")
    width, height = struct.unpack_from(">II", header)
    _check_picture(width, height)


def check_jpeg(path: Path) -> None:
    """Raise a DamageError unless the marks of a JPEG follow each other up to that of its end."""
    content = path.read_bytes()
    if content[:2] != bytes((0xFF, _START)):
        raise DamageError("it is not a JPEG file, although its suffix says so; check the program that wrote it")
    place, pixels = 2, 0
    while (marker := _marker(content, place)) != _END:
        if marker == 0xFF or marker in _ALONE:
            place += 1 if marker == 0xFF else 2
            continue
        segment = _segment(content, place)
        if marker in _FRAMES:
            pixels = _frame_pixels(segment)
        place += 4 + len(segment)
        if marker == _SCAN:
            place = _end_of_scan(content, place)
    if not pixels:
        raise DamageError("it holds no picture; copy it again from its source")
    if pixels > _MOST_PIXELS_PER_BYTE * len(content):
        raise DamageError(TRUNCATED)


def _marker(content: bytes, place: int) -> int:
    if len(content) < place + 2:
        raise DamageError(TRUNCATED)
    if content[place] != 0xFF:
        raise DamageError("its segments are not where its header says; copy it again from its source")
    return content[place + 1]


def _segment(content: bytes, place: int) -> bytes:
    """What follows a marker and its length."""
    if len(content) < place + 4:
        raise DamageError(TRUNCATED)
    (length,) = struct.unpack_from(">H", content, place + 2)
    if length < 2 or len(content) < place + 2 + length:
        raise DamageError(TRUNCATED)
    return content[place + 4 : place + 2 + length]


def _frame_pixels(frame: bytes) -> int:
    """The number of pixels that a frame announces."""
    if len(frame) < 6:
        raise DamageError("its frame has no size; copy it again from its source")
    height, width = struct.unpack_from(">HH", frame, 1)
    _check_picture(width, height)
    return int(width * height)


def _end_of_scan(content: bytes, place: int) -> int:
    """Where the next marker begins; in compressed data every other byte 255 is followed by 0 or a restart mark."""
    while True:
        place = content.find(b"\xff", place)
        if place < 0 or place + 1 >= len(content):
            raise DamageError(TRUNCATED)
        if content[place + 1] != 0 and content[place + 1] not in _ALONE and content[place + 1] != 0xFF:
            return place
        place += 1 if content[place + 1] == 0xFF else 2


def check_bmp(path: Path) -> None:
    """Raise a DamageError unless the rows that the header announces are there."""
    content = path.read_bytes()
    if content[:2] != b"BM" or len(content) < 14 + _BITMAP_HEADER:
        raise DamageError("it is not a whole BMP file; copy it again from its source")
    start, header, width, height, planes, bits, packing = struct.unpack_from("<IIiiHHI", content, 10)
    if header < _BITMAP_HEADER or planes != 1 or bits not in (1, 4, 8, 16, 24, 32):
        raise DamageError("its header is not valid; copy it again from its source")
    if packing:
        raise DamageError("its pixels are packed in a way that cannot be checked; save it as PNG")
    _check_picture(width, abs(height))
    if start < 14 + header or len(content) < start + (width * bits + 31) // 32 * 4 * abs(height):
        raise DamageError(TRUNCATED)


def _check_picture(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise DamageError(f"its size is {width} x {height} pixels; copy it again from its source")
    check_need(width * height)
