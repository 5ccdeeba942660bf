"""Transforms that are given on the command line, as a result folder or as files; and how they are written again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import warpfactor as wf
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.geometry.transform import Transform
    from warpfactor.registration.folder import SavedResult

SPACES = ("fixed", "moving")


@dataclass(frozen=True)
class GivenTransform:
    """A transform from fixed to moving space.

    Attributes:
        transform: maps points of fixed space to moving space.
        fixed_grid, moving_grid: of the two images, where known.
        saved: the result folder it comes from; None for files, which neither name their spaces nor hold the inverse.
    """

    transform: Transform
    fixed_grid: wf.Grid | None
    moving_grid: wf.Grid | None
    saved: SavedResult | None = None

    def towards(self, space: str) -> Transform:
        """The transform that resamples images onto grids of `space` and maps points of `space` to the other one."""
        if space == "fixed":
            return self.transform
        return self.transform.inverse() if self.saved is None else self.saved.inverse

    def grid_of(self, space: str) -> wf.Grid | None:
        """The grid of the fixed or the moving image, if known."""
        return self.fixed_grid if space == "fixed" else self.moving_grid

    def output_grid(self, space: str, reference: Path | None) -> wf.Grid:
        """The grid of the reference image, or that of the space."""
        if reference is not None:
            return wf.read_image(reference).grid
        known = self.grid_of(space)
        if known is None:
            raise InputError(f"The grid of the {space} image is not known; give an image of that space as --reference.")
        return known

    def lazy_grid(self, space: str, reference: Path | None) -> wf.Grid:
        """As `output_grid`; of the reference image only the header is read, where its format allows it."""
        from warpfactor.io.lazy import open_lazily

        return self.output_grid(space, None) if reference is None else open_lazily(reference).grid


def read_given(result: Path | None, transforms: list[str] | None, *, single: bool = False) -> GivenTransform:
    """The transform of a result folder or of a list of files; its fields in single precision to save memory."""
    if (result is None) == (not transforms):
        raise InputError("Give either a result folder (--result) or transform files (--transform).")
    if result is not None:
        saved = wf.read_result(result, single=single)
        return GivenTransform(saved.transform, saved.fixed_grid, saved.moving_grid, saved)
    transform = wf.read_transform(list(transforms or ()), single=single)
    first = transform.parts[0]
    return GivenTransform(transform, first.grid if isinstance(first, wf.Warp) else None, None)


def other_space(space: str) -> str:
    """The opposite of "fixed" or "moving"."""
    if space not in SPACES:
        raise InputError(f"Unknown space {space!r}; use 'fixed' or 'moving'.")
    return "moving" if space == "fixed" else "fixed"


def write_transform(
    transform: Transform, output: Path, reference: Path | None, grid: wf.Grid | None, *, force: bool
) -> None:
    """Write a transform.

    As a displacement field it is sampled on the grid of `reference`, or on `grid`. A single warp keeps its own grid if
    there is no reference.
    """
    from warpfactor.io.formats import field_suffixes

    if reference is not None:
        grid = wf.read_image(reference).grid
    alone = isinstance(transform, wf.Warp) and reference is None
    if grid is not None and not alone and output.name.lower().endswith(field_suffixes()):
        transform = transform.to_warp(grid)
    wf.write_transform(transform, output, force=force)
