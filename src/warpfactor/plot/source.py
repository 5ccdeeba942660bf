"""What a picture needs of a result, whether it was just computed or read from a folder."""

from __future__ import annotations

from typing import Any, TypeAlias

from warpfactor.errors import InputError
from warpfactor.image import Image
from warpfactor.io import from_any, read_image
from warpfactor.register.result import WARPED, Registration
from warpfactor.register.saved import SavedResult
from warpfactor.transform import Warp

Result: TypeAlias = Registration | SavedResult


def image_of(source: Any) -> Image:
    """The warped image of a result, or any image itself."""
    if isinstance(source, Registration):
        return source.warped
    if isinstance(source, SavedResult):
        return read_image(source.folder / WARPED)
    return from_any(source)


def warp_of(source: Result | Warp) -> Warp:
    """The warp of a result; InputError if it has none."""
    warp = source if isinstance(source, Warp) else source.warp
    if warp is None:
        raise InputError("This result has no warp to draw: its recipe is linear, or the warp was left out.")
    return warp


def stages_of(source: Result) -> list[dict[str, Any]]:
    """The stages as result.json lists them."""
    entries = source.to_dict() if isinstance(source, Registration) else source.entries
    stages: list[dict[str, Any]] = entries["stages"]
    return stages
