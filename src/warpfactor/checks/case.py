"""Case: everything a report is about, from a registration that just ran or from a result folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import FileError, WarpfactorError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp
from warpfactor.io import read_image
from warpfactor.kernels import BACKENDS, select
from warpfactor.kernels.ops import Ops
from warpfactor.registration.folder import SavedResult, read_result
from warpfactor.registration.inputs import load_image, load_mask
from warpfactor.registration.result import WARPED, Registration

SIDES = ("fixed", "moving")
COSTS = ("cost_before", "cost_after")


@dataclass(frozen=True)
class Case:
    """A registration to report on.

    Attributes:
        fixed, moving: the images, as far as they were found; more channels than the first are not looked at.
        fixed_mask, moving_mask: where the images counted, if there were masks.
        warped: the moving image on the fixed grid as the result has it; only needed where `moving` is missing.
        affine, warp, inverse_warp: as in Registration.
        fixed_grid: of the fixed image.
        entries: result.json.
        missing: for each image that was not found, why; by side.
        ops: the backend that measures it.
    """

    fixed: Image | None
    moving: Image | None
    fixed_mask: Image | None
    moving_mask: Image | None
    warped: Image | None
    affine: Affine
    warp: Warp | None
    inverse_warp: Warp | None
    fixed_grid: Grid
    entries: Mapping[str, Any]
    missing: Mapping[str, str]
    ops: Ops

    @property
    def transform(self) -> Transform:
        """Fixed to moving."""
        return self.affine if self.warp is None else Chain((self.warp, self.affine), "fixed", "moving")

    @property
    def after(self) -> tuple[Image, Transform] | None:
        """An image, and the transform that shows it as it is after registration."""
        if self.moving is not None:
            return self.moving, self.transform
        return None if self.warped is None else (self.warped, Affine(dimension=self.fixed_grid.ndim))


def from_registration(
    found: Registration,
    *,
    fixed: Any,
    moving: Any,
    fixed_mask: Any = None,
    moving_mask: Any = None,
    extra: Mapping[str, Any] | None = None,
) -> Case:
    """The case of a registration and the images that were given to it, in any form `register` takes.

    Args:
        extra: entries of result.json that the registration does not know: labels, landmarks, command.
    """
    fixed_image = _placed(fixed, found.fixed_grid, "fixed")
    moving_image = _placed(moving, found.moving_grid, "moving")
    return Case(
        fixed=fixed_image,
        moving=moving_image,
        fixed_mask=load_mask(fixed_mask, fixed_image, name="fixed mask"),
        moving_mask=load_mask(moving_mask, moving_image, name="moving mask"),
        warped=None,
        affine=found.affine,
        warp=found.warp,
        inverse_warp=found.inverse_warp,
        fixed_grid=found.fixed_grid,
        entries=_with_known_costs({**found.to_dict(), **(extra or {})}),
        missing={},
        ops=_operations(found.run.backend),
    )


def _with_known_costs(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Entries with None for every cost of a stage that is no finite number: the images did not overlap there."""
    stages = [{**stage, **{key: _finite(stage[key]) for key in COSTS}} for stage in entries["stages"]]
    return {**entries, "stages": stages}


def _finite(value: Any) -> float | None:
    """Older files have the text "inf"."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _placed(source: Any, grid: Grid, name: str) -> Image:
    """The image; arrays lie where the registration had them."""
    image = load_image(source, name=name)
    parts = source if isinstance(source, (list, tuple)) else (source,)
    return replace(image, grid=grid) if all(isinstance(part, (np.ndarray, Tensor)) for part in parts) else image


def from_folder(folder: str | Path, *, fixed: str | Path | None = None, moving: str | Path | None = None) -> Case:
    """The case of a result folder; images are looked for where result.json says, unless they are given."""
    saved = read_result(folder)
    images, missing = dict[str, Image | None](), dict[str, str]()
    for side, given in zip(SIDES, (fixed, moving), strict=True):
        try:
            images[side] = _find_image(saved, side, given)
        except WarpfactorError as error:
            if given is not None:
                raise
            images[side], missing[side] = None, str(error)
    return Case(
        fixed=images["fixed"],
        moving=images["moving"],
        fixed_mask=_find_mask(saved, "fixed_mask", images["fixed"]),
        moving_mask=_find_mask(saved, "moving_mask", images["moving"]),
        warped=None if images["moving"] is not None else _warped(saved.folder),
        affine=next((part for part in saved.transform.parts if isinstance(part, Affine)), Affine()),
        warp=_warp(saved.transform),
        inverse_warp=_warp(saved.inverse),
        fixed_grid=saved.fixed_grid,
        entries=_with_known_costs(saved.entries),
        missing=missing,
        ops=select(),
    )


def _operations(name: str) -> Ops:
    """The backend of a registration, if it runs on the CPU, where reports are made."""
    known = BACKENDS.get(name)
    return known.load() if known is not None and known.runs_on(torch.device("cpu")) else select()


def _candidates(saved: SavedResult, name: str) -> Sequence[Path]:
    """Where an input may be; seen from the folder first, so that folders can be moved together."""
    entry = (saved.entries.get("inputs") or {}).get(name) or {}
    relative, absolute = entry.get("path_from_result"), entry.get("path")
    return [*([saved.folder / relative] if relative else []), *([Path(absolute)] if absolute else [])]


def _find_image(saved: SavedResult, side: str, given: str | Path | None) -> Image:
    """The image of a side; FileError says what to do if it is not to be found or is another one."""
    places = [Path(given)] if given is not None else [p for p in _candidates(saved, side) if p.exists()]
    if not places:
        name = saved.entries[side].get("name", side)
        raise FileError(f"The {side} image {name} was not found; give its place with --{side}.")
    image = read_image(places[0])
    grid = saved.fixed_grid if side == "fixed" else saved.moving_grid
    if not image.grid.same_space(grid):
        raise FileError(f"{places[0]}: is not the {side} image of this result, its grid is another; give --{side}.")
    return image


def _find_mask(saved: SavedResult, name: str, image: Image | None) -> Image | None:
    places = [path for path in _candidates(saved, name) if path.exists()]
    return load_mask(places[0], image) if places and image is not None else None


def _warp(transform: Transform) -> Warp | None:
    """The warp of a saved transform, in single precision: files hold no more."""
    warp = next((part for part in transform.parts if isinstance(part, Warp)), None)
    return None if warp is None else replace(warp, displacement=warp.displacement.to(torch.float32).contiguous())


def _warped(folder: Path) -> Image | None:
    return read_image(folder / WARPED) if (folder / WARPED).exists() else None
