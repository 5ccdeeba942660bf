"""Statistics over cases: mean and spread, and paired differences of two methods with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warpfactor.errors import InputError

RESAMPLES, SEED, LEVEL = 10_000, 0, 0.95
# Minimum number of pairs for an interval to count. With fewer pairs, all differences have the same sign by chance in
# more than one of 20 comparisons.
ENOUGH = 6


@dataclass(frozen=True)
class Summary:
    """Summary of a measure over cases. NaN values are ignored; without values everything is NaN.

    Attributes:
        count: Number of values.
        mean: Mean.
        sd: Standard deviation with n - 1; NaN for a single value.
        median: Median.
        worst: The smallest value if higher is better, otherwise the largest.
    """

    count: int
    mean: float
    sd: float
    median: float
    worst: float


@dataclass(frozen=True)
class PairedDifference:
    """Difference between two methods on the cases that both have.

    Attributes:
        count: Number of such cases.
        mean: Mean difference, method minus other.
        low: Lower end of the bootstrap confidence interval of the mean.
        high: Upper end of that interval.
        won: Number of cases on which the method is better.
        lost: Number of cases on which the method is worse; the rest are ties.
    """

    count: int
    mean: float
    low: float
    high: float
    won: int
    lost: int

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    @property
    def verdict(self) -> str:
        """Whether the difference is clear, for tables: "yes", "no", or "too few" cases."""
        if self.count < ENOUGH:
            return "too few"
        return "yes" if self.clear else "no"


def summarize(values: Sequence[float], *, higher_is_better: bool = False) -> Summary:
    """Summarize the values that are not NaN."""
    kept = np.array([value for value in values if not math.isnan(value)], dtype=np.float64)
    if not kept.size:
        return Summary(0, *[math.nan] * 4)
    return Summary(
        count=int(kept.size),
        mean=float(kept.mean()),
        sd=float(kept.std(ddof=1)) if kept.size > 1 else math.nan,
        median=float(np.median(kept)),
        worst=float(kept.min() if higher_is_better else kept.max()),
    )


def compare(
    method: Mapping[str, float],
    other: Mapping[str, float],
    *,
    higher_is_better: bool = False,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> PairedDifference:
    """Compare two methods case by case.

    Args:
        method: Value of a measure by case.
        other: The same for the other method.
        higher_is_better: Direction of the measure.
        resamples: Number of bootstrap samples of the cases.
        seed: Seed of the bootstrap; the same seed gives the same interval.
    """
    both = [case for case in method if case in other]
    differences = np.array([method[case] - other[case] for case in both], dtype=np.float64)
    differences = differences[~np.isnan(differences)]
    if not differences.size:
        return PairedDifference(0, math.nan, math.nan, math.nan, 0, 0)
    low, high = bootstrap_interval(differences.tolist(), resamples=resamples, seed=seed)
    better = differences if higher_is_better else -differences
    return PairedDifference(
        count=int(differences.size),
        mean=float(differences.mean()),
        low=low,
        high=high,
        won=int(np.count_nonzero(better > 0)),
        lost=int(np.count_nonzero(better < 0)),
    )


def bootstrap_interval(
    values: Sequence[float], *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float]:
    """Bootstrap percentile interval of the mean; NaN for fewer than two values."""
    if not 0 < level < 1 or resamples < 1:
        raise InputError(
            f"A bootstrap interval needs a level between 0 and 1 and at least one sample, not {level} and {resamples}."
        )
    data = np.asarray(values, dtype=np.float64)
    if data.size < 2:
        return math.nan, math.nan
    rng = np.random.default_rng(seed)
    means = data[rng.integers(data.size, size=(resamples, data.size))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return low, high
