"""What a step is: frozen settings that turn a gradient into a step, with whatever state that takes.

A step knows how to start (`init`), how to go on (`step`) and how its state is carried to a finer level (`lift`); the
level solver asks none for its name. Most have no state and are pure functions of gradient, damping and residual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from warpfactor.kernels.numbers import larger
from warpfactor.kernels.ops import Ops
from warpfactor.terms.base import Term


@dataclass(frozen=True)
class Units:
    """What a unit of length is along each axis, and how a bounded step becomes voxels.

    Attributes:
        weights: per axis (z, y, x), by which gradients and steps are measured.
        length: voxels of the finest axis that a step of size one in these units, times weights, stands for.
        sigma: smoothing SD of one voxel of the finest axis, per axis in voxels.
    """

    weights: tuple[float, float, float]
    length: float
    sigma: tuple[float, float, float]


class Taken(NamedTuple):
    """The length of the longest step, and the decrease of the cost that the linear model predicts for it."""

    longest: float
    decrease: float


class Step(Protocol):
    """How a gradient becomes a step."""

    @property
    def name(self) -> str: ...

    @property
    def damped(self) -> bool:
        """Whether the damping has any part in the step; if not, a rejected step would only be repeated."""
        ...

    @property
    def reach(self) -> int:
        """How many voxels around one its step depends on."""
        ...

    def bind(self, metric: Term, units: Units) -> Term:
        """The metric that this step needs at a level; InputError if it cannot work with the one given."""
        ...

    def init(self, warp: Tensor) -> Any:
        """The state before the first step of a (3, D, H, W) warp; None if there is none."""
        ...

    def lift(self, state: Any, resize: Callable[[Tensor], Tensor]) -> Any:
        """The state on the grid of a finer level; `resize` carries one field there."""
        ...

    def together(self, states: Sequence[Any]) -> Any:
        """One state for steps of several pairs at once, of which each pair's own is made a part; None if there is none.

        Its `number` is that of the next step of every pair, 0 if none is taken, and is set by whoever counts the steps.
        """
        ...

    def count(self, state: Any, steps: int) -> None:
        """Note so many steps in the state of a pair, which were taken together with others."""
        ...

    def step(self, gradient: Tensor, state: Any, *, damping: float, residual: float, units: Units, ops: Ops) -> Taken:
        """Overwrite the gradient with the step; the state, if there is one, is updated in place."""
        ...

    def scale(self, most: float, longest: float) -> float:
        """What to multiply the step by, so that no voxel moves further than `most`.

        Args:
            most: the longest step allowed, in the units of the step.
            longest: the longest step there is.
        """
        ...


class Stateless:
    """What steps without a state and without wishes have in common."""

    @property
    def reach(self) -> int:
        """Nothing but the gradient of the voxel itself."""
        return 0

    def bind(self, metric: Term, units: Units) -> Term:
        return metric

    def init(self, warp: Tensor) -> Any:
        return None

    def lift(self, state: Any, resize: Callable[[Tensor], Tensor]) -> Any:
        return None

    def together(self, states: Sequence[Any]) -> Any:
        return None

    def count(self, state: Any, steps: int) -> None:
        pass

    def scale(self, most: float, longest: float) -> float:
        """Only steps longer than one are shortened: the rule of the paper."""
        return most / larger(longest, 1.0)
