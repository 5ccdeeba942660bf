"""The operations on fields of which every rank has a slab.

Each operation first has the planes that it reads around its own sent by their ranks, then computes its own planes by
the kernels of `kernels/numba/planes.py`. Sums go through all ranks plane by plane and are added in one order, so every
rank gets the number that one process would. Statistics of images come from rank 0, which has them whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from warpfactor.kernels.numba import planes as kernels
from warpfactor.kernels.ops import Ops, Tally
from warpfactor.ranks.exchange import NOTHING, Exchange, Planes, widened
from warpfactor.ranks.lent import MARGIN, Lent, Wanted, reached

Sums = tuple[float, float]


class SlabOps:
    """The operations that a greedy stage needs; see `kernels.ops.Ops` for what they are.

    Args:
        whole: the backend, for what rank 0 computes by itself.
    """

    def __init__(self, whole: Ops, exchange: Exchange, lent: Lent) -> None:
        self._whole, self._exchange, self._lent = whole, exchange, lent

    # Metrics ------------------------------------------------------------------------------------------------------

    def lncc_plans(
        self,
        fixed: Tensor,
        mask: Tensor | None,
        *,
        radius: Sequence[int],
        window: Any,
        exact: bool,
        floors: Sequence[float],
    ) -> tuple[object, ...]:
        """Plans that divide the image as rank 0 does, which has it whole."""
        divisions = self._exchange.agreed(
            lambda: kernels.lncc_divisions(fixed, mask, radius=radius, exact=exact, floors=floors)
        )
        return kernels.make_plans(divisions, tuple(fixed.shape[1:]), radius, window)

    def lncc(  # noqa: PLR0913 - as in Ops
        self,
        fixed: Tensor,
        moving: Tensor,
        displacement: Tensor,
        matrix: Tensor,
        *,
        radius: Any,
        flat: tuple[float, float],
        plan: Any,
        window: Any = "box",
        squared: bool = True,
        exact: bool = True,
        symmetric: bool = False,
        gradient: Tensor | None = None,
        fixed_mask: Tensor | None = None,
        moving_mask: Tensor | None = None,
    ) -> Sums:
        depth = fixed.shape[0]
        needs = [
            kernels.lncc_reach(planes, depth, radius[0]) if planes[0] < planes[1] else NOTHING
            for planes in self._exchange.cuts(depth)
        ]
        own = self._exchange.own(depth)
        self._exchange.fetch(displacement, needs)
        around = needs[self._exchange.rank]
        self._hold((fixed, fixed_mask, around), (moving, moving_mask), displacement, around, matrix)
        parts = np.zeros((len(plan.division.blocks), 2, depth))
        if own[0] < own[1]:
            parts = kernels.lncc(
                fixed,
                moving,
                displacement,
                matrix,
                own,
                radius=radius,
                window=window,
                squared=squared,
                exact=exact,
                symmetric=symmetric,
                flat=flat,
                gradient=gradient,
                fixed_mask=fixed_mask,
                moving_mask=moving_mask,
                plan=plan,
            )
        return kernels.lncc_total(self._exchange.gathered(parts[..., slice(*own)], depth))

    def mse(self, fixed: Tensor, moving: Tensor, displacement: Tensor, matrix: Tensor, **given: Any) -> Sums:
        return self._difference(kernels.mse, fixed, moving, displacement, matrix, given)

    def mind(self, fixed: Tensor, moving: Tensor, displacement: Tensor, matrix: Tensor, **given: Any) -> Sums:
        return self._difference(kernels.mind, fixed, moving, displacement, matrix, given)

    def _difference(
        self, kernel: Any, fixed: Tensor, moving: Tensor, displacement: Tensor, matrix: Tensor, given: dict[str, Any]
    ) -> Sums:
        """A metric that looks at single voxels and their neighbours."""
        depth = fixed.shape[0]
        own = self._exchange.own(depth)
        images = (fixed, given["fixed_mask"], widened(own, 1, depth)), (moving, given["moving_mask"])
        self._hold(*images, displacement, own, matrix)
        parts = kernel(fixed, moving, displacement, matrix, own, **given)
        total, count = self._exchange.gathered(parts[:, slice(*own)], depth).sum(1)
        return float(total), float(count)

    def _hold(
        self,
        fixed: tuple[Tensor, Tensor | None, Planes],
        moving: tuple[Tensor, Tensor | None],
        displacement: Tensor,
        planes: Planes,
        matrix: Tensor,
    ) -> None:
        """Have what is read of both images to compute some planes."""
        box = reached(displacement, planes, matrix, moving[0].shape[0]) if not self._exchange.is_first else NOTHING
        self._lent.hold(Wanted(*fixed), Wanted(*moving, box, MARGIN))

    def mind_channels(self, image: Tensor, *, pairs: Sequence[tuple[Any, Any]], sigma: Sequence[float]) -> Tensor:
        return self._lent.volume(lambda: self._whole.mind_channels(image, pairs=pairs, sigma=sigma))

    # Steps --------------------------------------------------------------------------------------------------------

    def norms(self, gradient: Tensor, weights: Sequence[float]) -> tuple[float, float, float]:
        depth = gradient.shape[1]
        own = self._exchange.own(depth)
        squares, lengths, count = self._exchange.gathered(kernels.norms(gradient, weights, own), depth).sum(1)
        return float(squares), float(lengths), float(count)

    def descend(
        self, gradient: Tensor, *, form: str, damping: float, weights: Sequence[float], residual: float = 1.0
    ) -> Sums:
        own = self._exchange.own(gradient.shape[1])
        found = kernels.descend(gradient, own, form=form, damping=damping, weights=weights, residual=residual)
        return kernels.figures(self._exchange.gathered(found, gradient.shape[1]))

    # Fields -------------------------------------------------------------------------------------------------------

    def compose(self, warp: Tensor, step: Tensor, *, scale: float = 1.0, out: Tensor | None = None) -> Tensor:
        assert out is not None
        depth = warp.shape[1]
        own = self._exchange.own(depth)
        reach = 0
        if own[0] < own[1]:
            reach = int(abs(scale) * max(abs(float(end)) for end in step[0, slice(*own)].aminmax())) + 2
        need = widened(own, reach, depth)
        self._exchange.fetch(warp, [(int(a), int(b)) for a, b in self._exchange.words(need)])
        kernels.compose(warp, step, scale, out, own)
        return out

    def resize(self, field: Tensor, shape: Sequence[int], scale: Sequence[float], offset: Sequence[float]) -> Tensor:
        targets = self._exchange.cuts(shape[0])
        self._exchange.fetch(
            field, [kernels.resize_reach(planes, field.shape[1], scale[0], offset[0]) for planes in targets]
        )
        found: Tensor = kernels.resize(field, shape, scale, offset, targets[self._exchange.rank])
        return found

    def smooth_gaussian(
        self,
        field: Tensor,
        sigma: Sequence[float],
        *,
        boundary: Any = "nearest",
        truncate: float = 3.0,
        tail: tuple[float, float] = (0.0, 1.0),
    ) -> Tensor:
        own = self._exchange.own(field.shape[1])
        options = {"boundary": boundary, "truncate": truncate, "tail": tail}
        kernels.smooth_in_planes(field, own, sigma, **options)
        self._exchange.fetch_around(field, kernels.smooth_reach(field, sigma, boundary, truncate, tail))
        kernels.smooth_along_z(field, own, sigma, **options)
        return field

    def jacobian_determinant(self, displacement: Tensor) -> Tensor:
        self._exchange.fetch_around(displacement, 1)
        return kernels.jacobian_determinant(displacement, self._exchange.own(displacement.shape[1]))

    # Statistics of images -----------------------------------------------------------------------------------------

    def smooth_box(self, field: Tensor, radius: Sequence[int]) -> Tensor:
        return self._whole.smooth_box(field, radius) if self._exchange.is_first else field

    def tally(
        self, values: Tensor, *, mask: Tensor | None = None, log_range: tuple[float, float] | None = None
    ) -> Tally:
        return self._exchange.agreed(lambda: self._whole.tally(values, mask=mask, log_range=log_range))

    def percentiles(self, values: Tensor, ranks: Sequence[float], *, mask: Tensor | None = None) -> list[float]:
        return self._exchange.agreed(lambda: self._whole.percentiles(values, ranks, mask=mask))
