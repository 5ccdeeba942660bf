"""Tensor-based morphometry: where volumes differ between groups; this package is `warpfactor.morphometry`."""

from warpfactor.cohort.morphometry.compare import Comparison, MorphometrySettings, compare

__all__ = ["Comparison", "MorphometrySettings", "compare"]
