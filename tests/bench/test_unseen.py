"""Pairs of unseen kinds: each can be made again, and the table says what the default finds."""

import numpy as np
import pytest

from warpfactor.bench.unseen import main, unseen_pairs
from warpfactor.bench.verdicts.results import draw_of

PAIRS = dict(unseen_pairs())


@pytest.mark.parametrize("name", ["heart 3", "gland 1", "chest, one circle filled", "cells that repeat"])
def test_a_pair_is_the_same_every_time(name):
    first, again = (PAIRS[name](draw_of(name)) for _ in range(2))
    assert np.array_equal(first.moving_points, again.moving_points)
    assert bool((first.moving.data == again.moving.data).all())
    assert len(first.fixed_points) > 100
    assert float(first.fixed.data.std()) > 0


def test_the_table_has_errors_roughness_and_verdict(tmp_path):
    rows = main(["--only", "heart 0", "--threads", "1", "--output", str(tmp_path / "table.md")])
    assert (tmp_path / "table.md").read_text().splitlines() == rows
    name, before, _, after, rough, folds, metric, verdict = (part.strip() for part in rows[-1].strip("|").split("|"))
    assert (name, folds, metric, verdict) == ("heart 0", "0", "mixed", "green")
    assert float(after) < 0.4 * float(before)
    assert float(rough) < 0.25
