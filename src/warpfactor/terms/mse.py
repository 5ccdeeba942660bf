"""Mean squared difference of intensities, for images of one contrast: already in the residual form r = mean r_x²."""

from dataclasses import dataclass
from types import ModuleType

from torch import Tensor

from warpfactor.terms.base import Cost, Pair, Term, normalized_weights


@dataclass(frozen=True)
class MSE:
    """Settings of the mean squared difference.

    Attributes:
        symmetric: use the mean of the warped and the fixed image's slope (the efficient second-order force).
        demons: α; write the demons force (paper eq. 9) instead of the gradient. Set by the `demons` descent.
        lengths: what a unit of length is along each axis for that force.
    """

    symmetric: bool = False
    demons: float | None = None
    lengths: tuple[float, float, float] = (1.0, 1.0, 1.0)
    name: str = "mse"

    def prepare(self, pair: Pair, ops: ModuleType, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Cost:
        """The cost for the images of one level, the moving image in the fixed image's standardised units."""
        terms = []
        scales = zip(pair.fixed_scale, pair.moving_scale, pair.units, strict=True)
        for fixed, moving, (of, om, (uf, um)) in zip(pair.fixed, pair.moving, scales, strict=True):
            # Each image was standardised by itself; a difference needs both in the same units, those of the fixed one.
            alike = (om[1] * um / (of[1] * uf), (om[0] - of[0]) / (of[1] * uf))
            terms.append(self._term(fixed, moving, alike, uf * uf, pair, ops))
        return Cost(tuple(terms), normalized_weights(weights, len(terms)))

    def _term(
        self, fixed: Tensor, moving: Tensor, alike: tuple[float, float], unit: float, pair: Pair, ops: ModuleType
    ) -> Term:
        """`unit` is what a squared difference is to be multiplied by."""

        def evaluate(u: Tensor, matrix: Tensor, gradient: Tensor | None) -> tuple[float, float]:
            total, count = ops.mse(
                fixed,
                moving,
                u,
                matrix,
                gradient=gradient,
                fixed_mask=pair.fixed_mask,
                moving_mask=pair.moving_mask,
                alike=alike,
                symmetric=self.symmetric,
                demons=self.demons,
                lengths=self.lengths,
            )
            if unit != 1.0 and gradient is not None and self.demons is None:  # the demons force is a length
                gradient *= unit
            return unit * total, count

        return evaluate
