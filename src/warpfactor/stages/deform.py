"""The deformable stages by the names they have in recipes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.halfway import middle_grid
from warpfactor.scene.scene import Scene
from warpfactor.stages.found import Found
from warpfactor.stages.greedy import run_greedy
from warpfactor.stages.settings import Deformable
from warpfactor.stages.symmetric import run_symmetric
from warpfactor.stages.velocity import run_velocity


def _greedy(scene: Scene, settings: Deformable, **given: Any) -> Found:
    return Found(*run_greedy(scene, settings, **given))


def _between(run: Callable[..., Found]) -> Callable[..., Found]:
    """A stage that has no start, with the arguments of one that has."""

    def find(scene: Scene, settings: Deformable, *, start: None = None, **given: Any) -> Found:
        return run(scene, settings, **given)

    return find


def _fixed_grid(fixed: Grid, moving: Grid) -> Grid:
    return fixed


class _Method(NamedTuple):
    """A deformable stage.

    Attributes:
        run: finds the warp; see run_greedy for its arguments.
        grid: on which it compares two images that lie on each other.
        alike: whether it treats both images alike. Such a stage starts from an affine: a warp belongs to the fixed
            image's own grid.
        voxel_bytes: what a whole run holds at most for every voxel of the fixed image, besides the images as they were
            read; measured on images of 128 voxels along each axis.
    """

    run: Callable[..., Found]
    grid: Callable[[Grid, Grid], Grid]
    alike: bool
    voxel_bytes: int


_METHODS = {
    "greedy": _Method(_greedy, _fixed_grid, alike=False, voxel_bytes=50),
    "symmetric": _Method(_between(run_symmetric), middle_grid, alike=True, voxel_bytes=120),
    "velocity": _Method(_between(run_velocity), middle_grid, alike=True, voxel_bytes=145),
}


def run_deformable(scene: Scene, settings: Deformable, **given: Any) -> Found:
    """What the stage that `settings.method` names finds; see run_greedy for the arguments."""
    check_given(settings, given.get("start"))
    return _METHODS[settings.method].run(scene, settings, **given)


def check_given(settings: Deformable, start: Tensor | None) -> None:
    """InputError if a stage cannot begin with a warp."""
    if start is not None and treats_alike(settings):
        raise InputError(
            f"The method {settings.method!r} moves both images, so it cannot start from a warp of one of them; "
            "give the affine alone, or use the method 'greedy'."
        )


def working_grid(settings: Deformable, fixed: Grid, moving: Grid) -> Grid:
    """The grid by whose size levels and iterations are chosen."""
    return _METHODS[settings.method].grid(fixed, moving)


def runs_coarser(settings: Deformable) -> bool:
    """Whether the finest level can have its warp on a coarser grid; see finest.py."""
    return not treats_alike(settings)


def voxel_bytes(settings: Deformable) -> int:
    """What a run holds at most for every voxel of the fixed image, besides the images as they were read."""
    return _METHODS[settings.method].voxel_bytes


def treats_alike(settings: Deformable) -> bool:
    """Whether exchanged images have the inverse of the warp."""
    return _METHODS[settings.method].alike
