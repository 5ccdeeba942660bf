"""Recipe: everything that decides how two images are registered, as data that can be printed, saved and run again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.recipebook import toml
from warpfactor.recipebook.plain import changed, from_plain, to_plain
from warpfactor.stages.linear.stage import LinearSettings
from warpfactor.stages.settings import Deformable, fitted

FORMER = ("planar", "small")  # parts of recipes of version 0.1, null in every result.json of it


@dataclass(frozen=True)
class Recipe:
    """The stages of a registration.

    Attributes:
        name: for people and files.
        description: what it is for, one line.
        linear: stages that each start where the one before ended; none leaves the initial transform as it is.
        deformable: the warp; None ends with the linear stages.
        broad: the warp of images whose motion turns out to be smooth, if it is found otherwise; see
            Deformable.broad_from.
        across: the warp between images that turn out to have different contrasts, if it is found otherwise.
        across_planar: the same between images of one slice.
    """

    name: str
    description: str = ""
    linear: tuple[LinearSettings, ...] = ()
    deformable: Deformable | None = None
    broad: Deformable | None = None
    across: Deformable | None = None
    across_planar: Deformable | None = None

    def __post_init__(self) -> None:
        if not self.linear and self.deformable is None:
            raise InputError(f"Recipe {self.name!r} has neither a linear nor a deformable stage; give at least one.")

    def replace(self, changes: Mapping[str, Any] | None = None, **more: Any) -> Recipe:
        """This recipe with some settings changed, all at once; values are converted and checked.

        Args:
            changes: by dotted name, such as "deformable.sigma_grad" or "deformable.metric.size". "linear.dof" is for
                all linear stages, "linear.0.dof" for the first. A metric or damping may be given by its name alone,
                and `deformable` or `linear` may be "none". What is set in `deformable` is set in the warps across
                contrasts and of smooth motion too; but a metric that is set is used for all contrasts. Levels or
                iterations that are set hold for images of every size.
            more: the same, for names without dots.
        """
        given = {**(changes or {}), **more}
        for key in given:
            _check_place(key)
        parts = {key: value for key, value in given.items() if key.partition(".")[0] == "deformable"}
        base, whole = self, dict[str, Any]()
        if any(key == "deformable" or key.startswith("deformable.metric") for key in parts):
            base = replace(self, broad=None, across=None, across_planar=None)
        if self.deformable is not None and {"deformable.levels", "deformable.iterations"} & parts.keys():
            parts = {"deformable.coarsest": 0, "deformable.meant_for": 0, **parts}  # nothing follows from the size
            whole = {"deformable.levels": self.deformable.levels, "deformable.iterations": self.deformable.iterations}
        given |= parts
        for other in ("broad", "across", "across_planar"):
            if getattr(base, other) is not None:
                shared = {**whole, **parts}  # levels and iterations belong together
                given |= {key.replace("deformable", other, 1): value for key, value in shared.items()} | given
        return changed(base, given, "recipe")

    def for_grid(self, grid: Grid) -> Recipe:
        """The recipe for a fixed image on this grid: levels and iterations follow from its size."""
        planar = grid.shape[0] == 1
        warp, across = self.deformable, (self.across_planar or self.across) if planar else self.across
        return replace(
            self,
            deformable=None if warp is None else fitted(warp, grid),
            broad=None if self.broad is None else fitted(self.broad, grid),
            across=None if across is None else fitted(across, grid),
            across_planar=None,
        )

    def for_contrasts(self, *, same: bool) -> Recipe:
        """The recipe for images of the same contrast, or of different contrasts."""
        if same or self.across is None:
            return replace(self, across=None)
        return replace(self, deformable=self.across, broad=None, across=None)

    def for_motion(self, *, broad: bool) -> Recipe:
        """The recipe for smooth motion, or for any motion; the choice is made once."""
        chosen = self.broad if broad else self.deformable
        return replace(self, deformable=None if chosen is None else replace(chosen, broad_from=0.0), broad=None)

    def for_guides(self) -> Recipe:
        """The recipe with guides, which pull at single places: settings for smooth motion would follow them less."""
        found = self.for_motion(broad=False)
        return replace(found, deformable=None if found.deformable is None else replace(found.deformable, heavy=0.0))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """The recipe of a dictionary as `to_dict` returns it; missing settings take their defaults."""
        return from_plain(cls, {key: value for key, value in data.items() if key not in FORMER}, "recipe")

    def to_toml(self) -> str:
        return toml.write(self.to_dict())


def _check_place(key: str) -> None:
    """InputError with the whole name if a setting is named without the stage it belongs to."""
    name = key.partition(".")[0]
    if name in _names(Recipe):
        return
    stages = {"linear": LinearSettings, "deformable": Deformable}
    whole = [f"{stage}.{key}" for stage, kind in stages.items() if name in _names(kind)]
    if whole:
        raise InputError(f"Unknown setting {key!r}; settings are named with their stage, here {' or '.join(whole)}.")


def _names(kind: Any) -> set[str]:
    return {field.name for field in fields(kind)}
