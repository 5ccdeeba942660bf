"""Rates of wrong verdicts: what counts as good and failing, the intervals, and records that can be read back."""

import json

import numpy as np
import pytest

import warpfactor as wf
from commands import run
from warpfactor.bench.verdicts import results
from warpfactor.bench.verdicts.again import moved
from warpfactor.bench.verdicts.bent import FILES, bent_pairs
from warpfactor.bench.verdicts.pairs import all_pairs
from warpfactor.bench.verdicts.rates import ErrorRate, TrialRecord, rates, truths
from warpfactor.bench.verdicts.run import LINES, SPOILT_WAYS, read_records, trial_records
from warpfactor.bench.verdicts.truth import LabelTruth


def record(score, *, kind="brain", how="registered", level="green", better=1, meant="", pair="a"):
    return TrialRecord(pair, kind, how, score, better, meant, level, (), {})


def test_scores_decide_and_not_the_checks():
    usual = [record(0.6) for _ in range(5)]
    found = truths([*usual, record(0.55, level="red"), record(0.5), record(0.4, how="shifted"), record(None)])
    assert found[5:] == ["good", "between", "failing", "between"]
    errors = [record(error, better=-1, kind="lung", pair=str(error)) for error in (0.01, 0.01, 0.01, 0.04)]
    assert truths(errors) == ["good", "good", "good", "failing"]
    assert truths([record(0.6), record(0.6, meant="failing")])[1] == "failing"
    maps = [record(error, better=-1, kind="hard") for error in (0.001, 0.03, 0.2)]
    assert truths(maps) == ["good", "between", "failing"]


def test_false_green_and_false_alarm_are_counted_apart():
    judged = [(record(0, level=level), truth) for level, truth in (
        ("green", "failing"), ("red", "failing"), ("amber", "good"), ("green", "good"), ("green", "between")
    )]  # fmt: skip
    green, alarm = rates(judged)
    assert (green.wrong, green.count, alarm.wrong, alarm.count) == (1, 2, 1, 2)


def test_the_interval_is_that_of_wilson():
    low, high = ErrorRate(2, 100).interval
    assert (low, high) == (pytest.approx(0.0055, abs=1e-4), pytest.approx(0.0700, abs=1e-4))
    assert ErrorRate(0, 0).interval == (0.0, 1.0)


def test_a_pair_is_registered_spoilt_and_judged():
    """A phantom of which the registration is good by its labels, and what is spoilt of it is worse by them."""
    source = next(source for source in all_pairs(None) if source.name == "phantom slice t1 0")
    found = list(trial_records([source]))
    assert found[0].how == "registered"
    assert found[0].level == "green"
    spoilt = found[1 : 1 + SPOILT_WAYS]
    assert {each.how for each in spoilt} <= {way.__name__ for way in results.SPOILT}
    assert all(each.level != "green" for each in spoilt if each.score < 0.8 * found[0].score)
    assert any(each.score < 0.8 * found[0].score for each in spoilt)


def test_every_way_to_spoil_a_result_makes_it_worse():
    source = next(source for source in all_pairs(None) if source.name == "phantom slice t1 1")
    other = next(source for source in all_pairs(None) if source.name == "phantom slice t1 2")
    pairs = [each.make() for each in (source, other)]
    cases = [(pair, results.register_pair(pair)) for pair in pairs]
    pair, case = cases[0]
    made = list(results.results_of(pair, case, cases, results.SPOILT))
    assert len(made) == 1 + len(results.SPOILT)
    assert all(each.score < 0.95 * made[0].score for each in made[1:]), {each.how: each.score for each in made}
    assert isinstance(pair.truth, LabelTruth)


def test_a_warp_of_zero_fails_if_the_registration_was_much_better():
    found = [record(0.6), record(0.5, how="no_warp"), record(0.59, how="no_warp")]
    assert truths(found) == ["good", "failing", "between"]


def test_a_pair_that_is_moved_keeps_its_truth():
    source = next(source for source in all_pairs(None) if source.name == "phantom slice t1 0")
    pair = source.make()
    there = moved(pair, results.draw_of("x"))
    motion = there.moving.grid.matrix @ np.linalg.inv(pair.moving.grid.matrix)
    assert there.truth.score(wf.Affine(motion, dimension=2)) == pytest.approx(pair.truth.score(wf.Affine(dimension=2)))


def test_a_bent_image_has_landmarks_where_it_looks_the_same(tmp_path):
    path = tmp_path / FILES[0][1]
    path.parent.mkdir()
    image = wf.phantom.phantom((1, 48, 52)).fixed
    wf.write_image(wf.Image(image[None], wf.Grid.from_spacing((48, 52), 2.0)), path)
    (source,) = bent_pairs(tmp_path)
    pair = source.make()
    assert source.half == 2
    points = pair.truth.points
    assert not pair.truth.chosen
    index = pair.fixed.grid.world_to_index(points.fixed)
    assert len(index) > 40
    assert np.all((index > -0.5) & (index < np.array(pair.fixed.grid.shape) - 0.5)), "the fixed image shows them all"
    seen = [
        pair.fixed.data[0][tuple(np.rint(pair.fixed.grid.world_to_index(each)).astype(int).T)].numpy()
        for each in (points.fixed, points.moving)
    ]
    there = pair.moving.data[0][tuple(np.rint(pair.moving.grid.world_to_index(points.moving)).astype(int).T)].numpy()
    assert np.corrcoef(seen[0], there)[0, 1] > 0.9 > np.corrcoef(seen[1], there)[0, 1]


def test_every_pair_has_a_name_of_its_own_and_both_halves_have_all_kinds():
    sources = all_pairs(None)
    assert len({source.name for source in sources}) == len(sources)
    assert {source.kind for source in sources if source.half == 1} == {
        source.kind for source in sources if source.half == 2
    }


def test_records_are_read_back_and_damage_is_named(tmp_path):
    (tmp_path / LINES).write_text(json.dumps(record(0.5).__dict__) + "\n")
    assert read_records(tmp_path) == [record(0.5)]
    (tmp_path / LINES).write_text("{}\n")
    with pytest.raises(wf.FileError, match="line 1 is damaged"):
        read_records(tmp_path)


def test_wrong_options_are_a_sentence(tmp_path):
    assert "give a number and a count" in run("bench", "verdicts", "-o", tmp_path, "--part", "3/2", code=2).stderr
    assert "give 1 or 2" in run("bench", "verdicts", "-o", tmp_path, "--half", "3", code=2).stderr
    assert "is not a folder" in run("bench", "verdicts", "-o", tmp_path, "--data", tmp_path / "none", code=2).stderr
