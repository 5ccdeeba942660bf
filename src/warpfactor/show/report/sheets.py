"""Sheets of slices: the slices of a plane side by side in one JPEG or PNG picture, encoded in base64."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from warpfactor.show.report.slices import TILE

Bytes = NDArray[np.uint8]
QUALITIES = (82, 70, 55, 40, 25, 12, 5)  # the last ones are needed for noise only
ROOM = 3_450_000  # bytes of all sheets together, 4.6 MB in base64; the rest of a page takes less than 0.4 MB


@dataclass(frozen=True)
class Stack:
    """Slices of every plane, as grey levels.

    Attributes:
        name: key by which the page finds it.
        slices: per plane (slice, row, column) uint8.
        exact: whether the stack is stored without loss.
    """

    name: str
    slices: Sequence[Bytes]
    exact: bool = False


def layout(count: int, height: int, width: int) -> dict[str, int]:
    """Layout of the slices on a sheet: number of columns, and size of a tile, which is padded to whole JPEG blocks."""
    across = max(1, math.ceil(math.sqrt(count * height / width)))
    return {"across": across, "tileHeight": -(-height // TILE) * TILE, "tileWidth": -(-width // TILE) * TILE}


def encode(stacks: Sequence[Stack]) -> dict[str, list[str]]:
    """The sheets of every stack, per plane, as data: URLs, in the best quality that fits into ROOM."""
    sheets = {stack.name: [_sheet(slices) for slices in stack.slices] for stack in stacks}
    exact = {stack.name: [_png(sheet) for sheet in sheets[stack.name]] for stack in stacks if stack.exact}
    left = ROOM - _size(exact)
    for quality in QUALITIES:
        lossy = {s.name: [_jpeg(sheet, quality) for sheet in sheets[s.name]] for s in stacks if not s.exact}
        if _size(lossy) <= left:
            break
    kinds = {"jpeg": lossy, "png": exact}
    return {
        name: [data_url(data, kind) for data in found] for kind, all_ in kinds.items() for name, found in all_.items()
    }


def data_url(data: bytes, kind: str) -> str:
    """A picture as a data: URL."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"


def jpeg_url(picture: Bytes, quality: int = 80) -> str:
    """One picture, (row, column) or (row, column, 3), as a data: URL."""
    return data_url(_jpeg(picture, quality), "jpeg")


def _sheet(slices: Bytes) -> Bytes:
    """All slices on one (row, column) sheet, in reading order; tiles are padded with edge values."""
    count, height, width = slices.shape
    place = layout(count, height, width)
    across, down = place["across"], -(-count // place["across"])
    tall, wide = place["tileHeight"], place["tileWidth"]
    edged = np.pad(slices, ((0, 0), (0, tall - height), (0, wide - width)), mode="edge")
    tiles = np.zeros((down * across, tall, wide), dtype=np.uint8)
    tiles[:count] = edged
    return tiles.reshape(down, across, tall, wide).swapaxes(1, 2).reshape(down * tall, across * wide)


def _size(encoded: dict[str, list[bytes]]) -> int:
    return sum(len(data) for found in encoded.values() for data in found)


def _jpeg(picture: Bytes, quality: int) -> bytes:
    return _packed(picture, format="JPEG", quality=quality)


def _png(picture: Bytes) -> bytes:
    return _packed(picture, format="PNG", compress_level=6)


def _packed(picture: Bytes, **options: Any) -> bytes:
    stream = io.BytesIO()
    Pillow.fromarray(picture).save(stream, **options)
    return stream.getvalue()
