"""Mutual information: r = log B - MI, natural logarithms throughout, for images of different contrast."""

from dataclasses import dataclass
from types import ModuleType

from torch import Tensor

from warpfactor import kernels
from warpfactor.errors import InputError
from warpfactor.terms.base import Cost, Pair, Term, normalized_weights, sampled

QUANTILE_SAMPLES = 1_000_000  # enough for percentiles to a thousandth of the range


@dataclass(frozen=True)
class MI:
    """Settings of mutual information.

    Attributes:
        bins: B, of each axis of the joint histogram.
        tails: fraction of intensities clipped at each end when the range of the bins is chosen.
    """

    bins: int = 32
    tails: float = 0.001
    name: str = "mi"

    def __post_init__(self) -> None:
        if not 5 <= self.bins <= 512:
            raise InputError(f"Mutual information needs 5 to 512 bins, not {self.bins}")
        if not 0 <= self.tails < 0.5:
            raise InputError(f"The clipped tails must be in [0, 0.5), not {self.tails}")

    def prepare(self, pair: Pair, ops: ModuleType, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Cost:
        """The cost for the images of one level."""
        terms = tuple(self._term(f, m, pair, ops) for f, m in zip(pair.fixed, pair.moving, strict=True))
        return Cost(terms, normalized_weights(weights, len(terms)))

    def _term(self, fixed: Tensor, moving: Tensor, pair: Pair, ops: ModuleType) -> Term:
        fixed_range = robust_range(fixed, pair.fixed_mask, self.tails)
        moving_range = robust_range(moving, pair.moving_mask, self.tails)

        def evaluate(u: Tensor, matrix: Tensor, gradient: Tensor | None) -> tuple[float, float]:
            result: tuple[float, float] = ops.mi(
                fixed,
                moving,
                u,
                matrix,
                bins=self.bins,
                fixed_range=fixed_range,
                moving_range=moving_range,
                gradient=gradient,
                fixed_mask=pair.fixed_mask,
                moving_mask=pair.moving_mask,
            )
            return result

        return evaluate


def robust_range(image: Tensor, mask: Tensor | None, tails: float) -> tuple[float, float]:
    """Intensity range without the given fraction at each end; the full range where that leaves nothing."""
    values = sampled(image, mask, QUANTILE_SAMPLES)
    low, high = kernels.select(image.device).percentiles(values, (100 * tails, 100 * (1 - tails)))
    if high <= low:
        low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 0.5, low + 0.5)
