"""What every part of a run needs besides its data: kernels, device, clock, progress and who shares the work."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from threading import Event as StopEvent

import torch

from warpfactor.kernels.ops import Ops
from warpfactor.ranks.crew import Ranks, checked_progress
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.inputs import Images
from warpfactor.registration.resources import Clock
from warpfactor.stages.stage import Progress, Stage, Watch

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunContext:
    """What every part of a run needs besides its data.

    Attributes:
        coarser: factor by which the images of the stages are coarser than those that are registered.
    """

    ops: Ops
    backend: str
    device: torch.device
    threads: int
    seed: int
    clock: Clock
    progress: Progress | None
    stop: StopEvent | None
    crew: Ranks | None = None
    coarser: float = 1.0

    def log_start(self, images: Images, recipe: Recipe) -> None:
        """Say what is registered, and how."""
        names = (images.moving.name, images.moving.grid.summary, images.fixed.name, images.fixed.grid.summary)
        _log.info("registering %s (%s) to %s (%s)", *names)
        _log.info("recipe %s, backend %s on %s, %d threads", recipe.name, self.backend, self.device, self.threads)

    def log_stage(self, stage: Stage) -> None:
        """Say how a stage ended."""
        ended = (stage.name, stage.metric, stage.change(4), stage.ending.value, len(stage.history), stage.seconds)
        _log.info("%s: %s cost %s, %s after %d iterations and %.1f s", *ended)

    def watch(self, before_s: float = 0.0) -> Watch:
        """A watch for the next stage, or for the last part of one that has taken some seconds before."""
        progress = self.progress if self.crew is None else checked_progress(self.crew, self.progress)
        return Watch(progress, None if self.stop is None else self.stop.is_set, self.coarser, before_s)

    @property
    def stopped(self) -> bool:
        return self.stop is not None and self.stop.is_set()
