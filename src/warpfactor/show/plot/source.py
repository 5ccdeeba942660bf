"""What a figure needs of a result, whether it was just computed or read from a folder."""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard

from warpfactor.errors import InputError
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Warp
from warpfactor.io import from_any


class Result(Protocol):
    """What the results of `register` and of `read_result` have in common."""

    @property
    def warped(self) -> Image: ...

    @property
    def warp(self) -> Warp | None: ...

    def to_dict(self) -> dict[str, Any]: ...

    def apply_points(self, points: Any, *, to: str = "fixed") -> Any: ...


def is_result(source: Any) -> TypeGuard[Result]:
    """Whether this is a result, not an image or a transform."""
    return hasattr(type(source), "apply_points")


def image_of(source: Any) -> Image:
    """The warped image of a result, or the image itself."""
    return source.warped if is_result(source) else from_any(source)


def name_of(source: Any, image: Image) -> str:
    """The name of the image that `image_of` returned, for a title."""
    if is_result(source):
        return f"{source.to_dict()['moving'].get('name', 'moving')}, warped,"
    return image.name


def warp_of(source: Result | Warp) -> Warp:
    """The warp of a result; InputError if it has none."""
    if isinstance(source, Warp):
        return source
    _check_result(source, " or a Warp")
    if source.warp is None:
        raise InputError("This result has no warp to draw; its recipe is linear, or the warp was discarded.")
    return source.warp


def object_sd_log(source: Result | Warp) -> float | None:
    """SD of the log Jacobian in the object of the fixed image; None for a warp alone, whose object is not known."""
    if isinstance(source, Warp):
        return None
    inside = source.to_dict()["figures"].get("warp_jacobian_determinant_in_fixed_foreground") or {}
    sd_log: float | None = inside.get("sd_log")
    return sd_log


def stages_of(source: Result) -> list[dict[str, Any]]:
    """The stages as result.json lists them."""
    _check_result(source)
    stages: list[dict[str, Any]] = source.to_dict()["stages"]
    return stages


def _check_result(source: Any, other: str = "") -> None:
    if not is_result(source):
        raise InputError(
            f"{source!r:.60} is not a result; give what `register` or `read_result(folder)` returned{other}."
        )
