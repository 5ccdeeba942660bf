"""Recipe: everything that decides how two images are registered, as data that can be printed, saved and run again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from warpfactor.errors import InputError
from warpfactor.recipebook import toml
from warpfactor.recipebook.plain import changed, from_plain, to_plain
from warpfactor.stages.linear.stage import LinearSettings
from warpfactor.stages.settings import Deformable

SMALL = 1 << 19  # voxels: a brain has 190 000 at 2 mm and 1.5 million at 1 mm


@dataclass(frozen=True)
class Recipe:
    """The stages of a registration.

    Attributes:
        name: for people and files.
        description: what it is for, one line.
        linear: stages that each start where the one before ended; none leaves the initial transform as it is.
        deformable: the warp; None ends with the linear stages.
        planar: the warp between images of one slice, if it is found otherwise: a window there has fewer voxels.
        small: the warp of objects of fewer than `SMALL` voxels, if it is found otherwise: there is less to blur away
            and time for more steps.
    """

    name: str
    description: str = ""
    linear: tuple[LinearSettings, ...] = ()
    deformable: Deformable | None = None
    planar: Deformable | None = None
    small: Deformable | None = None

    def __post_init__(self) -> None:
        if not self.linear and self.deformable is None:
            raise InputError(f"Recipe {self.name!r} has neither a linear nor a deformable stage; give at least one.")

    def replace(self, changes: Mapping[str, Any] | None = None, **more: Any) -> Recipe:
        """This recipe with some settings changed, all at once; values are converted and checked.

        Args:
            changes: by dotted name, such as "deformable.sigma_grad" or "deformable.metric.size". "linear.dof" is for
                all linear stages, "linear.0.dof" for the first. A metric or damping may be given by its name alone,
                and `deformable` or `linear` may be "none". What is set in `deformable` is set in `planar` and `small`
                too.
            more: the same, for names without dots.
        """
        given = {**(changes or {}), **more}
        for key in given:
            _check_place(key)
        parts = {key: value for key, value in given.items() if key.partition(".")[0] == "deformable"}
        for other in ("planar", "small"):
            if getattr(self, other) is not None:
                given |= {key.replace("deformable", other, 1): value for key, value in parts.items()} | given
        return changed(self, given, "recipe")

    def for_images(self, *, planar: bool) -> Recipe:
        """What is done with images of one slice, or of several."""
        if not planar:
            return replace(self, planar=None)
        return replace(self, deformable=self.planar or self.deformable, planar=None, small=None)

    def for_object(self, voxels: int) -> Recipe:
        """What is done if the fixed image shows an object of so many voxels."""
        used = self.small if voxels < SMALL and self.small is not None else self.deformable
        return replace(self, deformable=used, small=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """The recipe of what `to_dict` returned; what is missing takes its default."""
        return from_plain(cls, data, "recipe")

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
