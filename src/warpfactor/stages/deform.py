"""The deformable stages by the names they have in recipes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.halfway import middle_grid
from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene
from warpfactor.stages.found import Found
from warpfactor.stages.greedy import run_greedy
from warpfactor.stages.settings import Deformable
from warpfactor.stages.stage import Watch
from warpfactor.stages.symmetric import run_symmetric
from warpfactor.terms import Weighted


class _Method(Protocol):
    """A deformable stage; see run_greedy for what its arguments are."""

    def __call__(
        self,
        scene: Scene,
        settings: Deformable,
        *,
        ops: Ops,
        affine: Matrix | None = None,
        start: Tensor | None = None,
        guides: Sequence[Weighted] = (),
        watch: Watch | None = None,
    ) -> Found: ...


def _greedy(
    scene: Scene,
    settings: Deformable,
    *,
    ops: Ops,
    affine: Matrix | None = None,
    start: Tensor | None = None,
    guides: Sequence[Weighted] = (),
    watch: Watch | None = None,
) -> Found:
    return Found(*run_greedy(scene, settings, ops=ops, affine=affine, start=start, guides=guides, watch=watch))


def _fixed_grid(fixed: Grid, moving: Grid) -> Grid:
    return fixed


class _Known(NamedTuple):
    """A stage, the grid on which it compares two images that lie on each other, and whether it treats them alike."""

    run: _Method
    grid: Callable[[Grid, Grid], Grid]
    symmetric: bool


_METHODS = {
    "greedy": _Known(_greedy, _fixed_grid, symmetric=False),
    "symmetric": _Known(run_symmetric, middle_grid, symmetric=True),
}


def run_deformable(
    scene: Scene,
    settings: Deformable,
    *,
    ops: Ops,
    affine: Matrix | None = None,
    start: Tensor | None = None,
    guides: Sequence[Weighted] = (),
    watch: Watch | None = None,
) -> Found:
    """What the stage that `settings.method` names finds; see run_greedy for the arguments."""
    return _METHODS[settings.method].run(
        scene, settings, ops=ops, affine=affine, start=start, guides=guides, watch=watch
    )


def working_grid(settings: Deformable, fixed: Grid, moving: Grid) -> Grid:
    """The grid by whose size levels and iterations are chosen."""
    return _METHODS[settings.method].grid(fixed, moving)


def treats_alike(settings: Deformable) -> bool:
    """Whether exchanged images have the inverse of the warp."""
    return _METHODS[settings.method].symmetric
