"""Scenes and stages for tests: prepared on the CPU backend, with results that are easy to look at."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from warpfactor import kernels
from warpfactor.geometry.image import Image
from warpfactor.scene.prepare import make_scene
from warpfactor.scene.scene import Scene
from warpfactor.stages.greedy import run_greedy
from warpfactor.stages.linear.stage import LinearSettings, run_linear
from warpfactor.stages.settings import Deformable
from warpfactor.stages.stage import Event, Stage, Watch

OPS = kernels.select("cpu")


def scene_of(fixed: Image, moving: Image, **masks: Image) -> Scene:
    return make_scene(fixed, moving, ops=OPS, **masks)


class Warped(NamedTuple):
    """What a deformable stage returned."""

    displacement: Tensor
    stage: Stage

    @property
    def records(self) -> tuple[Event, ...]:
        return self.stage.history


class Aligned(NamedTuple):
    """What a linear stage returned."""

    matrix: np.ndarray
    stage: Stage


def warp(scene: Scene, settings: Deformable, *, ops: Any = OPS, progress=None, stop=None, **options) -> Warped:
    return Warped(*run_greedy(scene, settings, ops=ops, watch=Watch(progress, stop), **options))


def align(scene: Scene, settings: LinearSettings, *, ops: Any = OPS, progress=None, stop=None, **options) -> Aligned:
    return Aligned(*run_linear(scene, settings, ops=ops, watch=Watch(progress, stop), **options))


class Stopper:
    """A progress callback that asks a stage to stop after an event for which `when` is true."""

    def __init__(self, when) -> None:
        self.when, self.asked = when, False

    def __call__(self, event: Event) -> None:
        self.asked = self.asked or bool(self.when(event))

    def stop(self) -> bool:
        return self.asked
