"""Statistics of runs: means and spreads, and differences of two methods on the same cases with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warpfactor.errors import InputError

RESAMPLES, SEED, LEVEL = 10_000, 0, 0.95
ENOUGH = 6  # pairs from which an interval counts: with fewer, all differ one way by chance in more than one of 20 cases


@dataclass(frozen=True)
class Summary:
    """Of a figure over cases; NaN values do not count, and all is NaN over none.

    Attributes:
        count: values that count.
        sd: with n - 1; NaN of a single value.
        worst: the smallest if higher is better, else the largest.
    """

    count: int
    mean: float
    sd: float
    median: float
    worst: float


@dataclass(frozen=True)
class Paired:
    """What a method gains over another on the cases that both have.

    Attributes:
        count: cases that both have.
        mean: of the differences, method minus other.
        low, high: bootstrap confidence interval of that mean.
        won, lost: cases where the method is better, worse; the rest are ties.
    """

    count: int
    mean: float
    low: float
    high: float
    won: int
    lost: int

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0

    @property
    def verdict(self) -> str:
        """Whether the difference is clear, in a word for tables: yes, no, or too few cases to tell."""
        if self.count < ENOUGH:
            return "too few"
        return "yes" if self.clear else "no"


def summarize(values: Sequence[float], *, higher_is_better: bool = False) -> Summary:
    """Mean, SD, median and worst of the values that are not NaN."""
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
) -> Paired:
    """Differences of two methods, case by case.

    Args:
        method, other: the figure by case.
        resamples, seed: of the bootstrap over cases; the same seed gives the same interval.
    """
    both = [case for case in method if case in other]
    differences = np.array([method[case] - other[case] for case in both], dtype=np.float64)
    differences = differences[~np.isnan(differences)]
    if not differences.size:
        return Paired(0, math.nan, math.nan, math.nan, 0, 0)
    low, high = bootstrap_interval(differences.tolist(), resamples=resamples, seed=seed)
    better = differences if higher_is_better else -differences
    return Paired(
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
    """Percentile interval of the mean, from resampling the values; NaN for fewer than two, which say nothing."""
    if not 0 < level < 1 or resamples < 1:
        raise InputError(f"An interval needs a level between 0 and 1 and resamples, not {level} and {resamples}.")
    data = np.asarray(values, dtype=np.float64)
    if data.size < 2:
        return math.nan, math.nan
    rng = np.random.default_rng(seed)
    means = data[rng.integers(data.size, size=(resamples, data.size))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return low, high
