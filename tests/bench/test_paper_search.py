"""The search for settings: it finds what is there, and a stopped one makes the same trials as one that was not."""

import pytest

import paper_runs
from warpfactor.bench.data.dataset import read_table
from warpfactor.bench.data.example import write_example
from warpfactor.bench.paper import EXPERIMENTS
from warpfactor.bench.paper.methods import DAMPING
from warpfactor.bench.paper.pairs import Pairs
from warpfactor.bench.paper.search import FOLDER, search
from warpfactor.bench.paper.study import Study, StudyPlan
from warpfactor.bench.run.runner import RunOptions
from warpfactor.errors import InputError

pytest.importorskip("optuna")
TRIALS = 12


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    table = write_example(tmp_path_factory.mktemp("data") / "ex", pairs=1, shape=(1, 32, 32))
    return read_table(table).cases[0]


@pytest.fixture
def runner(monkeypatch):
    return paper_runs.install(monkeypatch)


def two_groups(case, first="a1"):
    names = ((first, "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"))
    return Pairs(tuple(paper_runs.renamed(case, name, group) for name, group in names))


def make(case, folder, *, first="a1", options=None, **plan):
    return Study(two_groups(case, first), folder, plan=StudyPlan(**{"trials": TRIALS, **plan}), options=options)


def trials(found):
    return [(trial.settings, trial.mean) for trial in found.trials]


def test_a_search_starts_from_the_papers_numbers_and_gets_better(case, runner, tmp_path):
    found = search(make(case, tmp_path), "a")
    assert len(found.trials) == TRIALS and found.trials[0].settings == DAMPING
    assert found.best.mean > found.trials[0].mean == pytest.approx(0.605 - 0.002 * 0.41504 - 0.0025, abs=1e-5)
    assert found.ranked[0].mean >= found.ranked[-1].mean
    assert search(make(case, tmp_path, trials=3), "a").trials == found.trials[:3]


def test_a_stopped_search_makes_the_trials_of_one_that_was_not(case, runner, tmp_path):
    whole = search(make(case, tmp_path / "whole"), "a")
    runner.stop_after = len(runner.calls) + 4 + 2 * 6 + 1  # in the middle of a trial
    with pytest.raises(KeyboardInterrupt):
        search(make(case, tmp_path / "part"), "a")
    runner.stop_after = float("inf")
    before = len(runner.calls)
    assert trials(search(make(case, tmp_path / "part"), "a")) == trials(whole)
    assert len(runner.calls) - before < 2 * TRIALS  # the affines and the first trial again, then what was missing


def test_other_pairs_and_seeds_are_other_searches(case, runner, tmp_path):
    search(make(case, tmp_path, trials=2), "a")
    search(make(case, tmp_path, trials=2, seed=5), "a")
    other = search(make(case, tmp_path, trials=2), "b")
    assert other.trials[1].settings != search(make(case, tmp_path, trials=2), "a").trials[1].settings
    assert len(list((tmp_path / FOLDER).glob("*.db"))) == 3
    search(make(case, tmp_path, trials=3, options=RunOptions(again=True)), "a")
    assert len(list((tmp_path / FOLDER).glob("*.db"))) == 3


def test_pairs_that_fail_with_the_papers_numbers_have_no_part(case, runner, tmp_path):
    found = search(make(case, tmp_path, first=paper_runs.BROKEN, trials=2), "a")
    assert [each.name for each in found.cases] == ["a2"] and len(found.trials) == 2
    assert [run.done for run in found.runs] == [False, True]


def test_a_trial_that_fails_is_written_down_and_the_search_goes_on(case, runner, tmp_path, monkeypatch):
    usual = paper_runs.dice

    def fails_at_large_increase(settings, number):
        deformable = settings["deformable"]
        if deformable and deformable["damping"]["increase"] > 4:
            return float("nan")
        return usual(settings, number)

    monkeypatch.setattr(paper_runs, "dice", fails_at_large_increase)
    found = search(make(case, tmp_path), "a")
    failed = [trial for trial in found.trials if trial.reason]
    assert failed and len(found.trials) == TRIALS and failed[0].reason == "a1: The cost became nan."
    assert all(trial.settings["increase"] > 4 for trial in failed) and found.best.settings["increase"] <= 4


def test_tune_and_transfer_report_every_dataset(case, runner, tmp_path):
    study = make(case, tmp_path, source="b", trials=12)
    EXPERIMENTS["transfer"].check(study)
    report = EXPERIMENTS["transfer"].run(study)
    tables = {table.name: table.rows for table in report.tables}
    target, source = tables["transfer"]
    assert (target["group"], source["group"]) == ("a", "b") and source["LM-transfer"] is None
    assert target["LM-tuned"] >= target["LM"] and source["LM-tuned"] >= source["LM"]
    assert report.draw(tmp_path / "transfer.png").stat().st_size > 1000
    assert {r["group"] for r in tables["differences"] if r["method"] == "LM-transfer"} == {"a"}
    tuned = EXPERIMENTS["tune"].run(make(case, tmp_path, trials=12))
    named = {table.name: table for table in tuned.tables}
    assert len(named["trials"].rows) == 24 and [row["group"] for row in named["best"].rows] == ["a", "b"]
    assert named["best"].rows[0]["mean"] == pytest.approx(target["LM-tuned"])
    assert tuned.draw(tmp_path / "tune.png").stat().st_size > 1000
    assert "λ₀ of the best 5" in [column.title for column in named["best"].columns]
    few = EXPERIMENTS["tune"].run(make(case, tmp_path / "few", trials=2))
    best = next(table for table in few.tables if table.name == "best")
    assert "λ₀ of the best 2" in [column.title for column in best.columns]


def test_a_transfer_needs_two_datasets_and_a_known_source(case, runner, tmp_path):
    with pytest.raises(InputError, match="needs two"):
        EXPERIMENTS["transfer"].check(Study(Pairs((case,)), tmp_path))
    with pytest.raises(InputError, match="Unknown dataset 'c'"):
        EXPERIMENTS["transfer"].check(make(case, tmp_path, source="c"))


def test_without_optuna_the_way_to_get_it_is_named(case, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"\.\[bench\]"):
        EXPERIMENTS["tune"].check(make(case, tmp_path))
