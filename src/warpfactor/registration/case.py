"""The Case of a registration: from a result in memory, or from a result folder and the images that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from warpfactor.checks.case import Case
from warpfactor.checks.inputs import IMAGE_DIFFERS, IMAGE_NOT_FOUND, IMAGE_UNREADABLE
from warpfactor.errors import FileError, Notice, WarpfactorError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Transform, Warp
from warpfactor.io import read_image
from warpfactor.io.lazy import open_lazily
from warpfactor.registration.folder import SavedResult, read_result
from warpfactor.registration.inputs import load_mask
from warpfactor.registration.large import coarse_image, in_place
from warpfactor.registration.provenance import change_of, input_paths
from warpfactor.registration.record import WARPED
from warpfactor.show.wording import sentence
from warpfactor.stages.finest import warp_grid

if TYPE_CHECKING:
    from warpfactor.registration.result import Registration

SIDES = ("fixed", "moving")


def case_of_result(result: Registration, extra: Mapping[str, Any] | None = None) -> Case:
    """The case of a result in memory.

    Args:
        extra: entries of result.json that the result does not know: labels, landmarks, command.
    """
    images = result.images
    inputs = {name: {"path": str(path)} for name, path in result.run.sources.items()}
    return Case(
        fixed=images.fixed,
        moving=images.moving,
        fixed_mask=images.fixed_mask,
        moving_mask=images.moving_mask,
        warped=None,
        affine=result.affine,
        warp=result.warp,
        inverse_warp=result.inverse_warp,
        fixed_grid=images.fixed.grid,
        entries={**result.to_dict(), **({"inputs": inputs} if inputs else {}), **(extra or {})},
        missing={},
        ops=result.ops,
    )


def case_of_folder(folder: str | Path, *, fixed: str | Path | None = None, moving: str | Path | None = None) -> Case:
    """The case of a result folder.

    Args:
        folder: the result folder.
        fixed, moving: the images; by default they are looked for where result.json says.
    """
    saved = read_result(folder)
    images, missing, changed = dict[str, Image | None](), dict[str, Notice](), dict[str, Notice]()
    for side, given in zip(SIDES, (fixed, moving), strict=True):
        found = _find_image(saved, side, given)
        images[side] = found if isinstance(found, Image) else None
        if isinstance(found, Notice):
            missing[side] = found
            continue
        used = given or next(path for path in _candidates(saved, side) if path.exists())
        notice = change_of(saved.entries, side, Path(used))
        if notice is not None:
            changed[side] = notice
    return Case(
        fixed=images["fixed"],
        moving=images["moving"],
        fixed_mask=_find_mask(saved, "fixed_mask", images["fixed"]),
        moving_mask=_find_mask(saved, "moving_mask", images["moving"]),
        warped=None if images["moving"] is not None else _warped(saved),
        affine=next((part for part in saved.transform.parts if isinstance(part, Affine)), Affine()),
        warp=_single_warp(saved.transform),
        inverse_warp=_single_warp(saved.inverse),
        fixed_grid=warp_grid(saved.fixed_grid) if _is_coarse(saved) else saved.fixed_grid,
        entries=saved.entries,
        missing=missing,
        ops=saved.ops,
        changed=changed,
    )


def _find_image(saved: SavedResult, side: str, given: str | Path | None) -> Image | Notice:
    """The image of a side, or why it is not available; FileError if the image that was given is not the right one."""
    if given is not None:
        image, grid = _read(saved, side, Path(given))
        notice = _difference(saved, side, grid, Path(given))
        if notice is not None:
            raise FileError(sentence(notice))
        return image
    places = [path for path in _candidates(saved, side) if path.exists()]
    if not places:
        return Notice(IMAGE_NOT_FOUND, {"side": side, "name": saved.entries[side].get("name", side)})
    try:
        image, grid = _read(saved, side, places[0])
    except WarpfactorError as error:
        return Notice(IMAGE_UNREADABLE, {"side": side, "error": str(error)})
    return _difference(saved, side, grid, places[0]) or image


def _is_coarse(saved: SavedResult) -> bool:
    """Whether the images of a result are shown at half their resolution, where its warp is."""
    return (saved.entries.get("memory") or {}).get("warp") == "half"


def _read(saved: SavedResult, side: str, path: Path) -> tuple[Image, Grid]:
    """The image to show, and the grid of the file."""
    if not _is_coarse(saved):
        image = _respaced(saved, side, read_image(path))
        return image, image.grid
    wanted = saved.fixed_grid if side == "fixed" else saved.moving_grid
    full = open_lazily(path)
    if full.grid.shape == wanted.shape and not full.grid.same_space(wanted):
        full = open_lazily(path, spacing_mm=wanted.spacing_mm[3 - wanted.ndim :])
    image = coarse_image(full, saved.ops)
    return (in_place(image, warp_grid(full.grid), saved.ops) if side == "fixed" else image), full.grid


def _respaced(saved: SavedResult, side: str, image: Image) -> Image:
    """The image with the spacing that it had in the registration, which may have been given instead of its own."""
    grid = saved.fixed_grid if side == "fixed" else saved.moving_grid
    if image.grid.shape != grid.shape or image.grid.same_space(grid):
        return image
    other = image.with_spacing(grid.spacing_mm[3 - image.grid.ndim :])
    return other if other.grid.same_space(grid) else image


def _difference(saved: SavedResult, side: str, found: Grid, path: Path) -> Notice | None:
    """A notice if an image does not have the grid of its side."""
    grid = saved.fixed_grid if side == "fixed" else saved.moving_grid
    if found.same_space(grid):
        return None
    facts = {"found": found.summary, "expected": grid.summary, "same_shape": found.shape == grid.shape}
    return Notice(IMAGE_DIFFERS, {"side": side, "path": str(path), **facts})


def _candidates(saved: SavedResult, name: str) -> Sequence[Path]:
    return input_paths(saved.entries, saved.folder, name)


def _find_mask(saved: SavedResult, name: str, image: Image | None) -> Image | None:
    if _is_coarse(saved):  # the page then says only that there was one
        return None
    places = [path for path in _candidates(saved, name) if path.exists()]
    return load_mask(places[0], image) if places and image is not None else None


def _single_warp(transform: Transform) -> Warp | None:
    """The warp of a saved transform in single precision, which is all that its file holds."""
    warp = next((part for part in transform.parts if isinstance(part, Warp)), None)
    return None if warp is None else replace(warp, displacement=warp.displacement.to(torch.float32).contiguous())


def _warped(saved: SavedResult) -> Image | None:
    if _is_coarse(saved):
        path = saved.folder / saved.entries["files"]["warped_moving_on_fixed_grid"]
        return coarse_image(open_lazily(path), saved.ops) if path.exists() else None
    return saved.warped if (saved.folder / WARPED).exists() else None
