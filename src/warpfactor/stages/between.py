"""Deformable stages that bring both images to the middle: what they share, whatever they describe the way by.

The force on the middle is half the difference of how the two images pull there. Exchanging them turns it round and
changes nothing else, so the same steps are taken the other way. Steps, damping, smoothing and what adapts are those of
the greedy stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.kernels.buffers import give_back_memory, new_field
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import Level, coarse_to_fine
from warpfactor.scene.middle import Middle
from warpfactor.scene.scene import Scene
from warpfactor.stages.device import run_level
from warpfactor.stages.level import Carried, Iteration, LevelSolver
from warpfactor.stages.pyramid import (
    Endings,
    deformable_stage,
    full_cost,
    level_grid,
    reporter,
    resample_field,
    resize,
    stage_levels,
)
from warpfactor.stages.settings import Deformable
from warpfactor.stages.shading import WINDOWS, window_likeness, without_shading
from warpfactor.stages.stage import Stage, Watch
from warpfactor.terms import Linearization, Sum, Term, Weighted
from warpfactor.terms.base import with_ops
from warpfactor.terms.both import BothWays, Pair, PreparedBetween, prepare_between
from warpfactor.terms.channels import spare_like

Ways = Callable[[Tensor, Ops], Pair]


@dataclass(frozen=True)
class _Cost:
    """The cost as a function of a state, of which `ways` makes the displacements to the fixed and the moving image.

    Attributes:
        both: what is minimised, of two displacements of the middle.
        ops: for `ways`.
        ways: the two displacements of a state.
        unwaited: the same without waiting for the device.
        spare: room for a second gradient, where the state has none; made once and used again.
    """

    both: PreparedBetween
    ways: Ways
    ops: Ops
    unwaited: Ways
    spare: list[Tensor] = field(default_factory=list)

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize; the first three fields of the gradient become the force on the middle."""
        pair = self.ways(displacement, self.ops)
        if gradient is None:
            return self.both.linearize(pair)
        force = gradient[:3]
        against = gradient[3:] if len(gradient) > 3 else spare_like(force, self.spare)
        point = self.both.linearize(pair, (against, force))
        force.sub_(against).mul_(0.5)
        return point

    def with_ops(self, ops: Ops) -> _Cost | None:
        """See Movable.with_ops."""
        both = with_ops(self.both, ops)
        return None if both is None else replace(self, both=both, ops=ops, ways=self.unwaited, spare=[])


class MiddleLevel(LevelSolver, ABC):
    """One level of a stage between the images; what it finds is a state, (3 or 6, D, H, W).

    Args:
        middle: with the grid of the level.

    Attributes:
        fields: how many displacement fields a state has.
    """

    fields: ClassVar[int]

    def __init__(
        self,
        level: Level,
        middle: Middle,
        settings: Deformable,
        ops: Ops,
        report: Callable[[Iteration], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.middle = middle
        super().__init__(level, torch.eye(3, 4, dtype=torch.float64), settings, ops, report, stop)

    @staticmethod
    @abstractmethod
    def ways(state: Tensor, ops: Ops) -> Pair:
        """The displacements to the fixed and to the moving image."""

    def _ways_on_device(self, state: Tensor, ops: Ops) -> Pair:
        """The same without waiting for the device; `ops` are of DeviceOps."""
        return self.ways(state, ops)

    @property
    def grid(self) -> Grid:
        return self.middle.grid

    def _prepared(self, metric: Term) -> _Cost:
        level, weights, ops = self.level, self.settings.channel_weights, self.ops
        both = prepare_between(metric, level.scene, self.middle, ops, level=level.number, weights=weights)
        return _Cost(both, self.ways, ops, self._ways_on_device)

    def _force(self, other: Tensor) -> Tensor:
        return other.narrow(-4, 0, 3)


@dataclass(frozen=True)
class Between:
    """What a stage between the images found.

    Attributes:
        middle: the space between them.
        state: of the kind that its levels work on, at full resolution; zero if it was not kept.
        stage: how it went.
    """

    middle: Middle
    state: Tensor
    stage: Stage


def run_between(
    solver: type[MiddleLevel],
    scene: Scene,
    settings: Deformable,
    *,
    ops: Ops,
    affine: Matrix | None = None,
    guides: Sequence[Weighted] = (),
    metric_weight: float = 1.0,
    watch: Watch | None = None,
) -> Between:
    """The state that minimises the cost of both images in the middle, and how the stage went.

    The cost at full resolution decides whether it is used: if it rose, the state is zero.

    Args:
        solver: the kind of level.
        affine: 4x4, LPS mm, fixed to moving world; None is the identity.
        guides: terms that are minimised together with the metric, such as landmarks.
        metric_weight: of the metric beside the guides.
        watch: who is told, and who may stop it.
    """
    watch = watch or Watch()
    scene = scene.single()
    if guides:
        settings = replace(settings, metric=Sum((Weighted(settings.metric, metric_weight), *guides)))
    through = np.eye(4) if affine is None else np.asarray(affine, dtype=np.float64)
    middle = Middle.of(scene.fixed.grid, scene.moving.grid, through)
    start = new_field((3 * solver.fields, *middle.grid.shape), device=scene.device).zero_()
    last = len(settings.levels) - 1
    both = prepare_between(settings.metric, scene, middle, ops, level=last, weights=settings.channel_weights)

    def cost_of(field: Tensor) -> Linearization:
        return full_cost(both.linearize(solver.ways(field, ops)))

    before = cost_of(start)
    search = _Search(scene, middle, solver, settings, ops, watch)
    found = search.run(start)
    stage = deformable_stage(settings, before, lambda: cost_of(found), search.endings, watch)
    return Between(middle, found if stage.kept else found.zero_(), stage)


@dataclass
class _Search:
    """A run over the levels.

    Attributes:
        endings: how each level ended, by factor.
    """

    scene: Scene
    middle: Middle
    solver: type[MiddleLevel]
    settings: Deformable
    ops: Ops
    watch: Watch
    endings: Endings = field(default_factory=list)
    carried: Carried = field(default_factory=Carried)

    def run(self, start: Tensor) -> Tensor:
        """The state on the full grid of the middle; `start` is left as it is."""
        grid = self.middle.grid
        levels = stage_levels(self.scene, grid, self.settings, self.endings, self.ops)
        state, last = coarse_to_fine(levels, self._solve, (start, grid))
        lifted = resample_field(state, last, grid, self.ops)
        give_back_memory()
        return lifted.clone() if lifted is start else lifted

    def _solve(self, level: Level, before: tuple[Tensor, Grid]) -> tuple[Tensor, Grid]:
        """The state after one level, and its grid."""
        settings, ops = self.settings, self.ops
        coarse, old = before
        middle = self.middle.at(level_grid(self.middle.grid, level.factor))
        lifted = resample_field(coarse, old, middle.grid, ops)
        state = lifted.clone() if lifted is coarse else lifted
        if self.carried.state is None:
            self.carried.state = settings.optimizer.init(state[:3])
        else:
            carry = self.carried.state
            self.carried.state = settings.optimizer.lift(carry, lambda each: resize(each, old, middle.grid, ops))

        def likeness(of: Scene) -> float:
            windows = BothWays(WINDOWS, middle, of, ops, weights=settings.channel_weights)
            return window_likeness(windows.linearize(self.solver.ways(state, ops)))

        level = without_shading(level, settings, likeness, ops)
        report = reporter(level, self.middle.grid, settings, self.watch)
        solver = self.solver(level, middle, settings, ops, report, lambda: self.watch.stopped)
        give_back_memory()
        state, ending = run_level(solver, state, self.carried)
        self.endings.append((level.factor, ending))
        return state, middle.grid
