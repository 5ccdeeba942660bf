"""Means, spreads, paired differences and bootstrap intervals are what their definitions say."""

import math

import numpy as np
import pytest

from warpfactor.bench.score.stats import bootstrap_interval, compare, summarize
from warpfactor.errors import InputError


def test_summary_leaves_nan_out():
    found = summarize([1.0, math.nan, 4.0, 7.0])
    assert (found.count, found.mean, found.median, found.worst) == (3, 4.0, 4.0, 7.0)
    assert found.sd == pytest.approx(3.0)
    assert summarize([1.0, 4.0], higher_is_better=True).worst == 1.0
    assert math.isnan(summarize([2.0]).sd)
    assert summarize([]).count == 0 and math.isnan(summarize([]).mean)


def test_differences_are_of_the_same_cases():
    found = compare({"a": 0.5, "b": 0.7, "c": 0.9}, {"b": 0.6, "a": 0.5, "d": 0.1}, higher_is_better=True)
    assert (found.count, found.won, found.lost) == (2, 1, 0)
    assert found.mean == pytest.approx(0.05)
    assert compare({"a": 1.0}, {"b": 1.0}).count == 0


def test_lower_wins_where_lower_is_better():
    found = compare({"a": 1.0, "b": 2.0, "c": math.nan}, {"a": 2.0, "b": 1.5, "c": 1.0})
    assert (found.count, found.won, found.lost) == (2, 1, 1)


def test_the_interval_is_that_of_the_mean(rng):
    """For normal values the bootstrap must come near the textbook interval, and be the same every time."""
    values = rng.normal(0.3, 1.0, 400).tolist()
    low, high = bootstrap_interval(values)
    half = 1.96 * np.std(values) / np.sqrt(len(values))
    assert low == pytest.approx(np.mean(values) - half, abs=0.01)
    assert high == pytest.approx(np.mean(values) + half, abs=0.01)
    assert bootstrap_interval(values) == (low, high)
    assert bootstrap_interval(values, seed=1) != (low, high)


def test_a_difference_is_clear_if_its_interval_leaves_out_zero():
    ones = {str(n): 1.0 + 0.01 * n for n in range(10)}
    assert compare(ones, dict.fromkeys(ones, 0.0)).clear
    assert not compare(ones, {key: value + (-1) ** int(key) for key, value in ones.items()}).clear


def test_one_value_has_no_interval():
    assert all(math.isnan(end) for end in bootstrap_interval([1.0]))
    with pytest.raises(InputError, match="level between 0 and 1"):
        bootstrap_interval([1.0, 2.0], level=1.0)
