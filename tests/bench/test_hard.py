"""Hard pairs are found by the linear stages without options, and the table of them counts."""

import functools

import pytest

import warpfactor as wf
from warpfactor.bench.data.hard import HardPair, hard_pairs, make_pair
from warpfactor.bench.score.hard import LIMIT, run_case, table

QUICK = (
    HardPair("turned 45", "slice 200", 45),
    HardPair("turned 180, inverted", "slice 200", 180, contrast="inverted"),
    HardPair("turned 90, not monotonic", "slice 200", 90, contrast="wave"),
    HardPair("scale 1.6, turned 135", "slice 200", 135, scale=1.6),
    HardPair("half cut off, turned 45", "slice 200", 45, half="cut y"),
    HardPair("noise", "slice 200", 90, noise=0.4),
    HardPair("volume, turned 90", "volume", 90, (0, 1, 0)),
)


@functools.cache
def outcome_of(case):
    return run_case(case)


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_a_hard_pair_is_found(case):
    outcome = outcome_of(case)
    assert outcome.right, outcome
    assert outcome.evidence > 5


def test_there_are_sixty():
    cases = hard_pairs()
    assert len(cases) == len({case.name for case in cases}) == 60
    assert {"slice 200", "slice 8000", "volume"} <= {case.source for case in cases}


def test_the_true_map_is_true():
    """The moving image at the true places is the fixed image."""
    fixed, moving, truth = make_pair(HardPair("turned", "slice 200", 45, noise=0.0))
    carried = wf.Affine(truth).resample(moving, fixed.grid)
    inside = (slice(None), slice(None), slice(60, 140), slice(60, 140))
    assert float((carried.data[inside] - fixed.data[inside]).abs().mean()) < 0.03


def test_the_table_counts():
    outcome = outcome_of(QUICK[0])
    text = table([outcome, outcome])
    assert text.startswith(f"2 of 2 are right: mean error below {LIMIT:.0%}")
    assert text.count("| yes |") == 2
