"""Local normalised cross-correlation: r = mean of 1 - LNCC over windows that have contrast in the fixed image."""

from dataclasses import dataclass
from types import ModuleType

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.similarity.base import Cost, Pair, Term, at_level, normalized_weights


@dataclass(frozen=True)
class LNCC:
    """Settings of local normalised cross-correlation.

    Attributes:
        size: edge of the window in voxels, odd; one for all levels or one per level, coarse to fine.
        window: "box", or "gaussian" with a sixth of the edge as SD.
        squared: correlation squared (contrast may be inverted) or signed.
        exact: the true gradient; False leaves out how a voxel changes its neighbours' windows, as the paper's kernel.
        symmetric: use the mean of the warped and the (rescaled) fixed image's slope as direction of the force.
        flat: windows with less variance than this, in units of the image's own variance, count as flat.
    """

    size: int | tuple[int, ...] = 5
    window: str = "box"
    squared: bool = True
    exact: bool = True
    symmetric: bool = False
    flat: float = 1e-5
    name: str = "lncc"

    def __post_init__(self) -> None:
        sizes = self.size if isinstance(self.size, tuple) else (self.size,)
        if not sizes or any(s < 1 or s % 2 == 0 for s in sizes):
            raise InputError(f"LNCC window size {self.size} must be odd and positive; use 3, 5, 7, ...")
        if self.window not in ("box", "gaussian"):
            raise InputError(f"Unknown LNCC window {self.window!r}; use 'box' or 'gaussian'")

    def prepare(self, pair: Pair, ops: ModuleType, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Cost:
        """The cost for the images of one level."""
        radius = at_level(self.size, level) // 2
        radii = tuple(radius if n > 1 else 0 for n in pair.shape)

        def term(fixed: Tensor, moving: Tensor) -> Term:
            def evaluate(u: Tensor, matrix: Tensor, gradient: Tensor | None) -> tuple[float, float]:
                result: tuple[float, float] = ops.lncc(
                    fixed,
                    moving,
                    u,
                    matrix,
                    radius=radii,
                    window=self.window,
                    squared=self.squared,
                    exact=self.exact,
                    symmetric=self.symmetric,
                    flat=(self.flat, self.flat),
                    gradient=gradient,
                    fixed_mask=pair.fixed_mask,
                    moving_mask=pair.moving_mask,
                )
                return result

            return evaluate

        terms = tuple(term(f, m) for f, m in zip(pair.fixed, pair.moving, strict=True))
        return Cost(terms, normalized_weights(weights, len(terms)))
