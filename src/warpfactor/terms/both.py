"""The cost of two images that both move: compared in the middle, and held still by turns to see how the other pulls.

A metric sees the images only, and is asked by `BothWays`. A term with data of its own, such as landmarks, or one of the
warp alone says itself what it costs between the images (`BetweenTerm`).
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from warpfactor.kernels.numbers import chosen
from warpfactor.kernels.ops import Ops
from warpfactor.scene.middle import Middle
from warpfactor.scene.scene import Scene, Side
from warpfactor.terms.base import Linearization, Term, with_ops

Pair = tuple[Tensor, Tensor]


class PreparedBetween(Protocol):
    """A term over the images of one level that both move to the middle."""

    def linearize(self, displacements: Pair, gradients: Pair | None = None) -> Linearization:
        """The cost where two displacements of the middle, (3, D, H, W) in its voxels, lead the two images.

        Args:
            displacements: for the fixed and for the moving image.
            gradients: overwritten with the derivatives of cost * count by them, each with the other image held still;
                None computes the cost only.
        """
        ...


@runtime_checkable
class BetweenTerm(Protocol):
    """A term that says itself what it costs between the images."""

    def between(
        self, scene: Scene, middle: Middle, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> PreparedBetween:
        """The term over the images of one level, compared on the grid of the middle; see Term.prepare."""
        ...


def prepare_between(
    term: Term,
    scene: Scene,
    middle: Middle,
    ops: Ops,
    *,
    level: int = 0,
    weights: tuple[float, ...] | None = None,
) -> PreparedBetween:
    """A term over the images of one level that both move; of one that sees the images only, both ways round."""
    if isinstance(term, BetweenTerm):
        return term.between(scene, middle, ops, level=level, weights=weights)
    return BothWays(term, middle, scene, ops, level, weights)


def mean_of(first: Linearization, second: Linearization) -> Linearization:
    """The mean of a cost with one image held still and with the other; nothing counts if either has nothing."""
    nothing = (first.count == 0) | (second.count == 0)
    names = [name for name, _ in first.parts]
    costs = [(a + b) / 2 for (_, a), (_, b) in zip(first.parts, second.parts, strict=True)]
    return Linearization(
        cost=chosen(nothing, first.cost, (first.cost + second.cost) / 2),
        residual=chosen(nothing, first.residual, (first.residual + second.residual) / 2),
        count=chosen(nothing, 0.0, (first.count + second.count) / 2),
        parts=tuple(zip(names, costs, strict=True)),
    )


@dataclass
class BothWays:
    """A term over two images that are brought to the middle, each by a displacement of its own.

    Every metric compares a still image with one that moves. Here each image is the still one once, as its displacement
    shows it on the middle grid, and the other is pulled; costs are the mean of both. What was measured of the images as
    a whole, such as the contrast of their windows, is measured once: at the first displacements.

    Attributes:
        term: what is minimised.
        middle: the space and its grid, at the resolution of the level.
        scene: the images of the level, in single precision, each on its own grid.
        level: its number.
        weights: of the channels.
    """

    term: Term
    middle: Middle
    scene: Scene
    ops: Ops
    level: int = 0
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        self.scene = self.scene.single()
        self._matrices = self.middle.matrices(self.scene)
        # What is known of each image moving over the other: nothing yet. A scene may have notes of its fixed image on
        # the grid of that, which its exchanged form has not: with them exchanged images would not be treated alike.
        self._views = [self.scene.swapped(), self.scene.swapped().swapped()]
        self._beyond = [[_commonest_corner(each) for each in side.data] for side in self.scene.sides]
        self._waits = True  # for the device
        self._movable = True  # whether the term can do without it; known once it has been asked

    def linearize(self, displacements: Pair, gradients: Pair | None = None) -> Linearization:
        """See PreparedBetween.linearize."""
        return mean_of(
            *(self._pull(side, displacements, None if gradients is None else gradients[side]) for side in (0, 1))
        )

    def with_ops(self, ops: Ops) -> BothWays | None:
        """See Movable.with_ops; what was measured of the images stays known."""
        if not self._movable:
            return None
        moved = copy(self)
        moved.ops, moved._waits = ops, False
        return moved

    def _pull(self, side: int, displacements: Pair, gradient: Tensor | None) -> Linearization:
        """The cost with one image moving (0 is the fixed, 1 the moving one) and the other still."""
        other = 1 - side
        view = self._views[side].with_fixed(self._in_the_middle(other, displacements[other]))
        prepared = self.term.prepare(view, self.ops, level=self.level, weights=self.weights)
        self._movable = with_ops(prepared, self.ops) is not None
        point = prepared.linearize(displacements[side], self._matrices[side], gradient)
        self._views[side] = view.with_fixed(self.scene.sides[other])  # the notes are kept, not the image
        return point

    def _in_the_middle(self, side: int, displacement: Tensor) -> Side:
        """One of the images as its displacement shows it on the middle grid, masked where it is not."""
        given, matrix = self.scene.sides[side], self._matrices[side]
        channels = [self.ops.sample(each, displacement, matrix, outside=math.nan) for each in given.data]
        inside = torch.eq(channels[0], channels[0])  # not where it is NaN
        if given.mask is not None:
            counts = given.mask.to(channels[0].dtype)
            inside &= self.ops.sample(counts, displacement, matrix, mode="nearest") > 0
        mask = None if self._waits and bool(inside.all()) else inside.view(torch.uint8)
        data = torch.stack(channels) if len(channels) > 1 else channels[0][None]
        if mask is not None:
            # It goes on as it ends: LNCC leaves out rows of one value, which no other value must cut off.
            for image, beyond in zip(data, self._beyond[side], strict=True):
                image.nan_to_num_(beyond)
        return replace(given, data=data, mask=mask, grid=self.middle.grid)


def _commonest_corner(image: Tensor) -> float:
    """The commonest value of the eight corners of an image (D, H, W)."""
    corners = image[tuple(slice(None, None, max(1, n - 1)) for n in image.shape)]
    values, counts = corners.unique(return_counts=True)  # type: ignore[no-untyped-call]
    return float(values[counts.argmax()])
