"""Self-similarity with a share of local correlation, for slices of different contrast.

A slice has a third of the patches that self-similarity compares in a volume. Local correlation sees outlines where two
contrasts share them, with either sign; a small share of it steadies the warp and misleads little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from warpfactor.errors import InputError
from warpfactor.kernels.ops import Ops, Slab
from warpfactor.scene.middle import Middle
from warpfactor.scene.scene import Scene
from warpfactor.terms.base import Prepared
from warpfactor.terms.both import PreparedBetween
from warpfactor.terms.lncc import LNCC
from warpfactor.terms.mind import MIND
from warpfactor.terms.sum import Sum, Weighted


@dataclass(frozen=True)
class Mixed:
    """Settings of self-similarity mixed with local correlation.

    Attributes:
        share: weight of local correlation beside that of self-similarity, which is 1.
        mind: self-similarity.
        lncc: local correlation.
    """

    share: float = 0.3
    mind: MIND = field(default_factory=MIND)
    lncc: LNCC = field(default_factory=lambda: LNCC(5, symmetric=True, flat=0.003))
    name: str = "mixed"

    def __post_init__(self) -> None:
        if not 0 < self.share < math.inf:
            raise InputError(f"The share of local correlation is {self.share:g}; it must be a positive number.")

    @property
    def sees_shading(self) -> bool:
        """Shading is not looked for: self-similarity is not misled by it."""
        return False

    def for_levels(self, count: int) -> Mixed:
        return replace(self, lncc=self.lncc.for_levels(count))

    def prepare(self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Prepared:
        """Both metrics over the images of one level."""
        return self._sum.prepare(scene, ops, level=level, weights=weights)

    def between(
        self, scene: Scene, middle: Middle, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> PreparedBetween:
        """See BetweenTerm.between."""
        return self._sum.between(scene, middle, ops, level=level, weights=weights)

    @property
    def slab_bytes(self) -> int:
        """That of both, and the gradient of the second."""
        return self.mind.slab_bytes + self.lncc.slab_bytes + 12

    def reach(self, level: int) -> int:
        return max(self.mind.reach(level), self.lncc.reach(level))

    def prepare_slabs(
        self, scene: Scene, ops: Ops, slabs: Sequence[Slab], *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> tuple[Prepared, ...]:
        """Both metrics over every slab of the fixed image."""
        parts = (part.prepare_slabs(scene, ops, slabs, level=level, weights=weights) for part in (self.mind, self.lncc))
        return tuple(self._sum.joined(both) for both in zip(*parts, strict=True))

    @property
    def _sum(self) -> Sum:
        return Sum((Weighted(self.mind), Weighted(self.lncc, self.share)))
