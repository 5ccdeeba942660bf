"""Ways to damage the bytes of a file, drawn from a seeded generator."""

import random
import re
import struct

NUMBERS = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
WORDS = [
    b"nan",
    b"inf",
    b"-inf",
    b"1e308",
    b"1e30",
    b"-1",
    b"0",
    b"2147483648",
    b"9" * 25,
    b"",
    b"x",
    b"\xff\xfe",
    b"null",
]
HEADER = 400  # bytes at the start in which most of what matters is

Draw = random.Random


def truncate(raw: bytes, draw: Draw) -> bytes:
    return raw[: draw.randrange(len(raw))]


def flip_bits(raw: bytes, draw: Draw) -> bytes:
    found = bytearray(raw)
    for _ in range(draw.choice((1, 1, 2, 8))):
        found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


def set_number(raw: bytes, draw: Draw) -> bytes:
    """A number in the header becomes one that no file should have."""
    kinds = {
        "<h": (-1, 0, 1, 32767, -32768),
        "<i": (-1, 0, 2**31 - 1, -(2**31)),
        ">i": (-1, 0, 2**31 - 1, -(2**31)),
        "<f": (float("nan"), float("inf"), 0.0, -1.0, 1e30),
        "<q": (-1, 2**63 - 1, 2**40),
    }
    form = draw.choice(sorted(kinds))
    new = struct.pack(form, draw.choice(kinds[form]))
    place = draw.randrange(max(1, min(len(raw), HEADER)))
    return raw[:place] + new + raw[place + len(new) :]


def set_word(raw: bytes, draw: Draw) -> bytes:
    """A number that is written out becomes another word."""
    found = list(NUMBERS.finditer(raw, 0, HEADER))
    if not found:
        return set_number(raw, draw)
    chosen = draw.choice(found)
    return raw[: chosen.start()] + draw.choice(WORDS) + raw[chosen.end() :]


def delete(raw: bytes, draw: Draw) -> bytes:
    place = draw.randrange(len(raw))
    return raw[:place] + raw[place + draw.choice((1, 4, 64)) :]


def insert(raw: bytes, draw: Draw) -> bytes:
    place = draw.randrange(len(raw))
    return raw[:place] + draw.randbytes(draw.choice((1, 4, 64))) + raw[place:]


def repeat(raw: bytes, draw: Draw) -> bytes:
    place = draw.randrange(len(raw))
    return raw[:place] + raw[place : place + draw.choice((8, 128))] * 2 + raw[place:]


def overwrite(raw: bytes, draw: Draw) -> bytes:
    place, count = draw.randrange(len(raw)), draw.choice((4, 32))
    return raw[:place] + bytes([draw.choice((0, 255))]) * count + raw[place + count :]


MUTATIONS = (truncate, flip_bits, set_number, set_word, delete, insert, repeat, overwrite)
