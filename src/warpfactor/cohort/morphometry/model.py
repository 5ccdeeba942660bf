"""A linear model at every voxel, Y = X b + noise, from maps that are given one at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warpfactor.cohort.morphometry.design import Design

Array = NDArray[np.float64]


class VoxelModel:
    """The sums from which effect and t follow, so that no more than one map is held.

    With X of the design: X'Y and Y'Y, both of the voxels that count. Maps are taken relative to the first one, which
    changes nothing but the mean, so that little is lost in the difference of squares.
    """

    def __init__(self, design: Design) -> None:
        self._design = design
        self._products: Array | None = None
        self._squares: Array | None = None
        self._first: Array | None = None
        self._number = 0

    def add(self, values: Array) -> None:
        """Add the (voxels,) map of the next person, in the order of the design."""
        if self._first is None or self._products is None or self._squares is None:
            self._first = values
            self._products = np.zeros((self._design.matrix.shape[1], len(values)))
            self._squares = np.zeros(len(values))
        apart = values - self._first
        self._products += self._design.matrix[self._number][:, None] * apart
        self._squares += apart**2
        self._number += 1

    def effect_and_t(self) -> tuple[Array, Array]:
        """The estimate of the first column of the design and its t, both (voxels,); t is 0 where nothing varies.

        b = (X'X)⁻¹ X'Y, s² = (Y'Y - b'X'Y) / degrees, t = b₁ / sqrt(s² ((X'X)⁻¹)₁₁).
        """
        if self._products is None or self._squares is None:
            raise ValueError("no map was added")
        inverse = np.linalg.inv(self._design.matrix.T @ self._design.matrix)
        estimates = inverse @ self._products
        residual = np.maximum(self._squares - (estimates * self._products).sum(0), 0.0)
        variance = residual / self._design.degrees
        varies = residual > 1e-12 * self._squares
        error = np.sqrt(np.where(varies, variance, 1.0) * inverse[0, 0])
        return estimates[0], np.where(varies, estimates[0] / error, 0.0)


def significance(t: Array, degrees: int) -> tuple[Array, Array]:
    """Two-sided p of t, and p adjusted for the false discovery rate over all voxels (Benjamini and Hochberg 1995)."""
    from scipy import stats

    p: Array = 2.0 * stats.t.sf(np.abs(t), degrees)
    adjusted: Array = stats.false_discovery_control(p)
    return p, adjusted
