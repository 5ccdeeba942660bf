"""Rates of wrong verdicts: what counts as good and failing, the intervals, and records that can be read back."""

import json

import pytest

import warpfactor as wf
from commands import run
from warpfactor.bench.verdicts import results
from warpfactor.bench.verdicts.pairs import LabelTruth, all_pairs
from warpfactor.bench.verdicts.rates import ErrorRate, TrialRecord, rates, truths
from warpfactor.bench.verdicts.run import LINES, read_records, trial_records


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
    assert [each.how for each in found[:2]] == ["registered", results.SPOILT[0].__name__]
    assert found[0].level == "green"
    assert found[1].level != "green"
    assert found[1].score < 0.8 * found[0].score


def test_every_way_to_spoil_a_result_makes_it_worse():
    source = next(source for source in all_pairs(None) if source.name == "phantom slice t1 1")
    other = next(source for source in all_pairs(None) if source.name == "phantom slice t1 2")
    pairs = [each.make() for each in (source, other)]
    cases = [(pair, results.register_pair(pair)) for pair in pairs]
    pair, case = cases[0]
    made = list(results.results_of(pair, case, cases, range(len(results.SPOILT))))
    assert len(made) == 1 + len(results.SPOILT)
    assert all(each.score < 0.95 * made[0].score for each in made[1:]), {each.how: each.score for each in made}
    assert isinstance(pair.truth, LabelTruth)


def test_records_are_read_back_and_damage_is_named(tmp_path):
    (tmp_path / LINES).write_text(json.dumps(record(0.5).__dict__) + "\n")
    assert read_records(tmp_path) == [record(0.5)]
    (tmp_path / LINES).write_text("{}\n")
    with pytest.raises(wf.FileError, match="line 1 is damaged"):
        read_records(tmp_path)


def test_wrong_options_are_a_sentence(tmp_path):
    assert "give a number and a count" in run("bench", "verdicts", "-o", tmp_path, "--part", "3/2", code=2).stderr
    assert "is not a folder" in run("bench", "verdicts", "-o", tmp_path, "--data", tmp_path / "none", code=2).stderr
