"""Local normalised cross-correlation: r = mean of 1 - LNCC over windows that have contrast in the fixed image."""

import itertools
from dataclasses import dataclass
from types import ModuleType

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.terms.base import Cost, Pair, Term, at_level, normalized_weights
from warpfactor.terms.contrast import least_variance


@dataclass(frozen=True)
class LNCC:
    """Settings of local normalised cross-correlation.

    Attributes:
        size: edge of the window in voxels, odd; one for all levels or one per level, coarse to fine.
        window: "box", or "gaussian" with a sixth of the edge as SD.
        squared: correlation squared (contrast may be inverted) or signed.
        exact: the true gradient; False leaves out how a voxel changes its neighbours' windows, as the paper's kernel.
        symmetric: use the mean of the warped and the (rescaled) fixed image's slope as direction of the force.
        flat: windows with less than this share of the image's contrast do not count; see contrast.py.
        noise: nor do windows with less than this many times the variance of the noise.
    """

    size: int | tuple[int, ...] = 5
    window: str = "box"
    squared: bool = True
    exact: bool = True
    symmetric: bool = False
    flat: float = 0.01
    noise: float = 2.0
    name: str = "lncc"

    def __post_init__(self) -> None:
        sizes = self.size if isinstance(self.size, tuple) else (self.size,)
        if not sizes or any(s < 1 or s % 2 == 0 for s in sizes):
            raise InputError(f"LNCC window size {self.size} must be odd and positive; use 3, 5, 7, ...")
        if self.window not in ("box", "gaussian"):
            raise InputError(f"Unknown LNCC window {self.window!r}; use 'box' or 'gaussian'")
        if not (0 <= self.flat < 1 and self.noise >= 0):
            raise InputError(f"LNCC flat {self.flat} must be in [0, 1) and noise {self.noise} not negative")

    def prepare(self, pair: Pair, ops: ModuleType, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Cost:
        """The cost for the images of one level."""
        radius = at_level(self.size, level) // 2
        radii = tuple(radius if n > 1 else 0 for n in pair.shape)
        floors = self._floors(pair, radii, ops)
        plans = ops.lncc_plans(
            pair.fixed,
            pair.fixed_mask,
            radius=radii,
            window=self.window,
            exact=self.exact,
            floors=[flat[0] for flat in floors],
        )

        def term(fixed: Tensor, moving: Tensor, flat: tuple[float, float], plan: object) -> Term:
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
                    flat=flat,
                    gradient=gradient,
                    fixed_mask=pair.fixed_mask,
                    moving_mask=pair.moving_mask,
                    plan=plan,
                )
                return result

            return evaluate

        terms = tuple(itertools.starmap(term, zip(pair.fixed, pair.moving, floors, plans, strict=True)))
        return Cost(terms, normalized_weights(weights, len(terms)))

    def _floors(self, pair: Pair, radii: tuple[int, ...], ops: ModuleType) -> tuple[tuple[float, float], ...]:
        """Least variances of fixed and moving windows, per channel; measured once for a pair."""

        def floor(image: Tensor, mask: Tensor | None) -> float:
            return least_variance(image, mask, radii, share=self.flat, noise=self.noise, ops=ops)

        key = ("least variances", radii, self.flat, self.noise)
        if key not in pair.notes:
            pair.notes[key] = tuple(
                (floor(fixed, pair.fixed_mask), floor(moving, pair.moving_mask))
                for fixed, moving in zip(pair.fixed, pair.moving, strict=True)
            )
        found: tuple[tuple[float, float], ...] = pair.notes[key]
        return found
