"""Result folders, read back: the transform in both directions and the grids of both images."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from warpfactor.errors import FileError, InputError
from warpfactor.geometry.grid import Grid, Points
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Transform, Warp
from warpfactor.io import read_transform
from warpfactor.io.transforms import ANTS_AFFINE, ANTS_INVERSE_WARP, ANTS_WARP
from warpfactor.registration.carrying import carry_image, carry_points
from warpfactor.registration.result import RESULT, grid_from_dict


@dataclass(frozen=True, repr=False)
class SavedResult:
    """What a result folder holds: a Registration without its images, settings and figures.

    Those are in `entries`, as result.json has them: `entries["figures"]`, `entries["recipe"]`.

    Attributes:
        folder: it was read from.
        transform: points of fixed space to moving space; images of moving space onto fixed grids.
        fixed_grid, moving_grid: of the two images.
        entries: result.json.
    """

    folder: Path
    transform: Transform
    fixed_grid: Grid
    moving_grid: Grid
    entries: dict[str, Any]

    def __repr__(self) -> str:
        names = (self.entries[side].get("name", side) for side in ("moving", "fixed"))
        recipe = self.entries.get("recipe", {}).get("name", "")
        return f"SavedResult({self.folder}: {' onto '.join(names)}, {recipe}; {self.entries.get('status', '')})"

    def __getattr__(self, name: str) -> Any:
        """The error for what a Registration has and this has not."""
        raise AttributeError(
            f"A saved result has no attribute {name!r}; what result.json holds is in `entries`, "
            "for instance entries['figures']."
        )

    @cached_property
    def inverse(self) -> Transform:
        """Points of moving space to fixed space; its file is read when it is asked for."""
        affine = f"[{self.folder / ANTS_AFFINE},1]"
        parts: list[str | Path] = [affine] if self.warp is None else [affine, self.folder / ANTS_INVERSE_WARP]
        return read_transform(parts, source="moving", target="fixed")

    @property
    def warp(self) -> Warp | None:
        """The warp before the affine, if there is one."""
        return next((part for part in self.transform.parts if isinstance(part, Warp)), None)

    def apply(
        self, image: Any, *, to: str = "fixed", mode: str = "linear", outside: float = 0.0, grid: Grid | None = None
    ) -> Image:
        """Another image of one space, carried to the other, as by `Registration.apply`."""
        return carry_image(self, image, to=to, mode=mode, outside=outside, grid=grid)

    def apply_points(self, points: ArrayLike, *, to: str = "fixed") -> Points:
        """Points of one space carried to the other, as by `Registration.apply_points`."""
        return carry_points(self, points, to=to)


def read_result(folder: str | Path) -> SavedResult:
    """The result that `Registration.save` or `warpfactor register` wrote into a folder."""
    place = Path(folder)
    entries = read_entries(place)
    warped = entries["files"]["fixed_to_moving_warp_before_affine_lps_mm"] is not None
    affine = place / ANTS_AFFINE
    forward: list[str | Path] = [place / ANTS_WARP, affine] if warped else [affine]
    return SavedResult(
        folder=place,
        transform=read_transform(forward, source="fixed", target="moving"),
        fixed_grid=grid_from_dict(entries["fixed"]),
        moving_grid=grid_from_dict(entries["moving"]),
        entries=entries,
    )


def read_entries(place: Path) -> dict[str, Any]:
    """The result.json of a folder; FileError if there is none."""
    path = place / RESULT
    if not path.is_file():
        raise FileError(f"{place}: is no result folder, it holds no {RESULT}.")
    try:
        entries: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for side in ("fixed", "moving"):
            grid_from_dict(entries[side])
        entries["files"]["fixed_to_moving_warp_before_affine_lps_mm"]
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, InputError) as error:
        raise FileError(f"{path}: is damaged or was not written by warpfactor ({error}).") from error
    return entries
