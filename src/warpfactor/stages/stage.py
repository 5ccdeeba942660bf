"""What all stages have in common: one event per iteration, one way to end, one result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum


class Ending(Enum):
    """Why a stage, or one level of it, ended."""

    CONVERGED = "converged"  # the cost had flattened, or no step promises to lower it
    LIMIT = "limit"  # the iterations ran out
    STALLED = "stalled"  # no step lowered the cost any more
    ROSE = "rose"  # the cost began to rise
    BROAD = "broad"  # what moves is so smooth that a smoother stage finds it better; see Recipe.broad
    NOISE = "noise"  # two halves of the force no longer agree: only noise is left
    INTERRUPTED = "interrupted"  # somebody stopped it; the best so far holds
    SKIPPED = "skipped"  # a level that has the same shape as the next one
    WORSE = "worse"  # the result was worse than the start, which holds
    NOTHING = "nothing"  # there was nothing to do


@dataclass(frozen=True)
class Event:
    """One iteration of a stage, as `progress` is told and as the history keeps it.

    Attributes:
        stage: "translation", "rigid", "similarity", "affine" or "deformable".
        level: factor of the level; 1 is the fixed image's own resolution.
        iteration: number within the level, from 0.
        limit: how many iterations the level may have.
        cost: at the transform that was tried.
        residual: r, the factor of the paper's steps; None in linear stages.
        damping: of the step.
        accepted: whether the transform that was tried is kept.
        step_vox: longest step taken from there, in voxels of the level; None in linear stages.
        done: share of the stage's work that is done, 0 to 1; a stage may end earlier.
        seconds: since the stage started.
        parts: costs of the terms, by name, if there are several.
        metric: of a linear stage, which may try several.
    """

    stage: str
    level: float
    iteration: int
    limit: int
    cost: float
    residual: float | None
    damping: float
    accepted: bool
    step_vox: float | None
    done: float
    seconds: float
    parts: tuple[tuple[str, float], ...] = ()
    metric: str = ""


Progress = Callable[[Event], None]


@dataclass
class Watch:
    """Who is told of the iterations of a stage, and who may stop it between two of them.

    Attributes:
        progress: called with every event.
        stop: asked between two iterations; the stage ends with the best so far when it returns True.
        coarser: what the factors of the levels are multiplied by, where the images of the stage are coarser ones.
        before_s: seconds that the stage has taken before, if this is its last part.
        events: so far.
        began: when the stage started, or this part of it.
    """

    progress: Progress | None = None
    stop: Callable[[], bool] | None = None
    coarser: float = 1.0
    before_s: float = 0.0
    events: list[Event] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Since the stage started."""
        return self.before_s + time.perf_counter() - self.began

    @property
    def stopped(self) -> bool:
        """Whether somebody wants the stage to end."""
        return self.stop is not None and self.stop()

    def tell(self, event: Event) -> None:
        event = replace(event, level=self.coarser * event.level)
        self.events.append(event)
        if self.progress is not None:
            self.progress(event)


@dataclass(frozen=True)
class Stage:
    """How a stage went.

    Attributes:
        name: "translation", "rigid", "similarity", "affine" or "deformable".
        metric: the name of its metric, or of all its terms.
        level: factor of the resolution at which the costs were taken; 1 is the fixed image's own.
        cost_before, cost_after: without any prior; 0 is a perfect match, infinite means no overlap.
        ending: why it ended.
        kept: whether its result was used; False if it was worse than what it started from.
        seconds: how long it took.
        history: one event per iteration.
        levels: how each level of a deformable stage ended, by factor, coarse to fine.
        start: name of the start that was chosen; of linear stages.
        start_costs: what every plain or near start that was tried cost, by name.
        evidence: of a linear stage, by how many standard deviations its result is better than the same transform turned
            away in many ways; None if that was not measured.
        terms: name, cost before and cost after of each term, if there are several.
    """

    name: str
    metric: str
    level: float
    cost_before: float
    cost_after: float
    ending: Ending
    kept: bool
    seconds: float
    history: tuple[Event, ...]
    levels: tuple[tuple[float, Ending], ...] = ()
    start: str | None = None
    start_costs: tuple[tuple[str, float], ...] = ()
    evidence: float | None = None
    terms: tuple[tuple[str, float, float], ...] = ()

    @property
    def interrupted(self) -> bool:
        return self.ending is Ending.INTERRUPTED

    def counted(self, coarser: float) -> Stage:
        """The stage with levels of images that are this much finer than its own; its history has them already."""
        levels = tuple((coarser * factor, how) for factor, how in self.levels)
        return replace(self, level=coarser * self.level, levels=levels)

    def change(self, digits: int) -> str:
        """What it did to its cost, as text; a zero has no minus."""
        before, after = (f"{round(cost, digits) + 0.0:.{digits}f}" for cost in (self.cost_before, self.cost_after))
        return f"{before if math.isfinite(self.cost_before) else 'no overlap'} -> {after}"
