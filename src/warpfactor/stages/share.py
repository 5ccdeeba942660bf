"""Who computes which planes of an image: one process alone computes all, ranks compute a slab each.

A stage that is shared runs in all processes at once. Fields have the shape of the whole image in each of them, but hold
numbers in the planes of the process and around them only; sums over the image are the same numbers in all, so all take
the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from torch import Tensor

from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene
from warpfactor.stages.agreement import Agreement, agreement

T = TypeVar("T")


class Share(Protocol):
    """What a shared stage asks besides operations."""

    def ops(self, ops: Ops) -> Ops:
        """The operations on fields, of a backend; those of the backend itself are for images."""
        ...

    def planes(self, depth: int) -> tuple[int, int]:
        """The first plane of this process, and the one after its last, of an image of so many."""
        ...

    def scene(self, make: Callable[[], Scene]) -> Scene:
        """What this process needs of a scene, which the first process makes."""
        ...

    def agreed(self, make: Callable[[], T]) -> T:
        """What the first process finds."""
        ...

    def around(self, field: Tensor, reach: int) -> None:
        """Have the planes around those of this process, `reach` on both sides, of a (C, D, H, W) field."""
        ...

    def agreement(self, force: Tensor, weights: Sequence[float], sigma: Sequence[float], ops: Ops) -> Agreement:
        """See agreement.py."""
        ...

    def whole(self, field: Tensor, change: Callable[[], int]) -> None:
        """Have all planes of a (C, D, H, W) field in the first process, and change it there.

        Args:
            change: changes the whole field and returns the number of changes.
        """
        ...


class Alone:
    """One process, which has all planes."""

    def ops(self, ops: Ops) -> Ops:
        return ops

    def planes(self, depth: int) -> tuple[int, int]:
        return 0, depth

    def scene(self, make: Callable[[], Scene]) -> Scene:
        return make()

    def agreed(self, make: Callable[[], T]) -> T:
        return make()

    def around(self, field: Tensor, reach: int) -> None:
        pass

    def agreement(self, force: Tensor, weights: Sequence[float], sigma: Sequence[float], ops: Ops) -> Agreement:
        return agreement(force, weights, sigma, ops)

    def whole(self, field: Tensor, change: Callable[[], int]) -> None:
        change()


ALONE = Alone()
