"""What a picture needs of a result, whether it was just computed or read from a folder."""

from __future__ import annotations

from typing import Any, TypeAlias

from warpfactor.errors import InputError
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Warp
from warpfactor.io import from_any, read_image
from warpfactor.registration.folder import SavedResult
from warpfactor.registration.result import WARPED, Registration

Result: TypeAlias = Registration | SavedResult


def image_of(source: Any) -> Image:
    """The warped image of a result, or any image itself."""
    if isinstance(source, Registration):
        return source.warped
    if isinstance(source, SavedResult):
        return read_image(source.folder / WARPED)
    return from_any(source)


def name_of(source: Any, image: Image) -> str:
    """How a title calls what `image_of` returned."""
    if isinstance(source, Registration):
        return f"{source.run.names[1]}, warped,"
    if isinstance(source, SavedResult):
        return f"{source.entries['moving'].get('name', 'moving')}, warped,"
    return image.name


def warp_of(source: Result | Warp) -> Warp:
    """The warp of a result; InputError if it has none."""
    if not isinstance(source, Warp):
        _check_result(source, " or a Warp")
    warp = source if isinstance(source, Warp) else source.warp
    if warp is None:
        raise InputError("This result has no warp to draw: its recipe is linear, or the warp was left out.")
    return warp


def object_sd_log(source: Result | Warp) -> float | None:
    """SD of the log Jacobian in the object of the fixed image; None for a warp alone, whose object is not known."""
    if isinstance(source, Registration):
        return None if source.figures.warp is None else source.figures.warp.jacobian_foreground.sd_log
    if isinstance(source, SavedResult):
        inside = source.entries["figures"].get("warp_jacobian_determinant_in_fixed_foreground") or {}
        return inside.get("sd_log")
    return None


def stages_of(source: Result) -> list[dict[str, Any]]:
    """The stages as result.json lists them."""
    _check_result(source)
    entries = source.to_dict() if isinstance(source, Registration) else source.entries
    stages: list[dict[str, Any]] = entries["stages"]
    return stages


def _check_result(source: Any, other: str = "") -> None:
    if not isinstance(source, (Registration, SavedResult)):
        raise InputError(f"{source!r:.60} is no result; give what `register` or `read_result(folder)` returned{other}.")
