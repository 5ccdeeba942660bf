"""Runs in processes of their own: they go on after a stop, failures are recorded, changed settings run again."""

import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
import time

import pytest

import warpfactor as wf
from stand_ins import run_here
from warpfactor.bench.data.dataset import read_table
from warpfactor.bench.data.example import write_example
from warpfactor.bench.run import meter, runner
from warpfactor.bench.run.method import Method, parse_method
from warpfactor.bench.run.record import plan_run, read_run
from warpfactor.bench.run.runner import RUNS, RunOptions, kept_transform, run_all
from warpfactor.errors import FileError, InputError

QUICK = parse_method("quick=rigid+linear.levels=2+linear.iterations=1+linear.starts=identity")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    table = write_example(tmp_path_factory.mktemp("data") / "ex", pairs=3, shape=(1, 32, 32))
    return read_table(table).cases


def names(folder):
    return sorted(path.name.partition("--")[0] for path in (folder / RUNS).glob("*.json"))


def test_a_stopped_benchmark_goes_on_where_it_was(cases, tmp_path, monkeypatch):
    broken = dataclasses.replace(cases[1], moving=tmp_path / "broken.nii.gz")
    broken.moving.write_bytes(b"no image")
    three = (cases[0], broken, cases[2])

    def stop_after_two(state):
        if state.fresh == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(three, [QUICK], tmp_path / "out", watch=stop_after_two)
    assert names(tmp_path / "out") == ["phantom_0", "phantom_1"]
    states = []
    monkeypatch.setattr(runner, "_run_once", run_here)
    first, failed, last = run_all(three, [QUICK], tmp_path / "out", watch=states.append)
    assert [(s.done, s.fresh) for s in states] == [(2, 0), (3, 1)]
    assert (first.done, failed.done, last.done) == (True, False, True)
    assert failed.reason.startswith(f"{broken.moving}: ") and failed.case == "phantom 1"
    _check_figures(first)
    again = []
    runs = run_all(three, [QUICK], tmp_path / "out", watch=again.append)
    assert [(s.done, s.fresh) for s in again] == [(3, 0)] and runs[0].scores == first.scores
    _check_other_label(three, tmp_path / "out")


def _check_figures(run):
    """A run says what it was, what came out and what it cost."""
    assert 0 < run.scores["wall_s"] < 60 and run.scores["cpu_s"] > 0
    assert run.scores["peak_memory_mb"] >= run.scores["start_memory_mb"] > 50
    assert 0 < run.scores["dice"] < 1 and run.scores["landmarks"] == 40 == len(run.per_landmark_mm)
    assert set(run.per_label["dice"]) == set(run.per_label["dice_before"])
    assert run.entries["settings"]["linear"][0]["dof"] == "rigid" and run.entries["machine"]["cores"] > 0
    assert run.entries["details"]["stages"][0]["name"] == "rigid"


def _check_other_label(three, folder):
    """The same settings under another name need no new run."""
    states = []
    runs = run_all(three, [dataclasses.replace(QUICK, label="renamed")], folder, watch=states.append)
    assert len(states) == 1 and {run.method for run in runs} == {"renamed"}


def test_transforms_are_kept_and_can_be_started_from(cases, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_run_once", run_here)
    run_all(cases[:1], [QUICK], tmp_path, RunOptions(keep=True, threads=1))
    kept = kept_transform(plan_run(cases[0], QUICK), tmp_path)
    assert isinstance(wf.read_transform(kept), wf.Affine)
    warp = parse_method("warp=default+linear=none+deformable.levels=2+deformable.iterations=2")
    (run,) = run_all(cases[:1], [warp], tmp_path, initials={cases[0].name: kept})
    assert run.done, run.reason
    assert run.entries["initial"] == str(kept) and run.scores["sd_log_jacobian"] > 0
    first = read_run(tmp_path / RUNS / plan_run(cases[0], QUICK).file_name)
    assert run.scores["dice_affine"] == pytest.approx(first.scores["dice"], abs=1e-6)


def test_a_key_changes_with_what_decides_the_result(cases, tmp_path):
    case = cases[0]
    key = plan_run(case, QUICK).key
    assert plan_run(case, dataclasses.replace(QUICK, label="other")).key == key
    assert plan_run(dataclasses.replace(case, name="other"), QUICK).key == key
    start = tmp_path / "start.mat"
    start.write_text("x")
    others = [
        plan_run(case, parse_method("rigid")).key,
        plan_run(cases[1], QUICK).key,
        plan_run(case, QUICK, masks=True).key,
        plan_run(case, QUICK, initial=start).key,
        plan_run(dataclasses.replace(case, fixed_labels=None, moving_labels=None), QUICK).key,
        plan_run(case, parse_method("demons")).key,
    ]
    assert len({key, *others}) == 7


def test_a_recipe_that_changed_under_its_name_has_another_key(cases, tmp_path):
    keys = set()
    for step in (0.5, 0.6):
        (tmp_path / "r.json").write_text(json.dumps({"deformable": {"step": step}}))
        keys.add(plan_run(cases[0], Method("r", str(tmp_path / "r.json"), {})).key)
    assert len(keys) == 2


def test_wrong_methods_and_places_are_found_before_anything_runs(cases, tmp_path):
    with pytest.raises(InputError, match="Unknown setting"):
        run_all(cases, [parse_method("default+deformable.x=1")], tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="the folder cannot be created"):
        run_all(cases, [QUICK], tmp_path / "file")
    with pytest.raises(InputError, match="must be at least 1"):
        RunOptions(jobs=0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs two processes that start at once")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")  # they only start others
def test_two_benchmarks_in_one_folder_share_their_runs(cases, tmp_path):
    """The second one waits for the run that the first one makes, and takes it."""
    fork = multiprocessing.get_context("fork")
    told = fork.SimpleQueue()

    def share():
        told.put([run.scores["wall_s"] for run in run_all(cases[:1], [QUICK], tmp_path, RunOptions(threads=1))])

    both = [fork.Process(target=share) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(timeout=300)
    assert [process.exitcode for process in both] == [0, 0]
    times = [told.get() for _ in both]
    assert times[0] == times[1] and len(times[0]) == 1
    assert sorted(p.suffix for p in (tmp_path / RUNS).iterdir()) == [".json"]


def test_a_half_written_run_is_run_again(tmp_path):
    path = tmp_path / "run.json"
    for text in ("{", "[]", '{"format": 1}', '{"format": 99, "status": "done"}'):
        path.write_text(text)
        assert read_run(path) is None
    assert read_run(tmp_path / "nowhere.json") is None


def test_the_meter_counts_time_processors_and_memory():
    with meter.measured() as cost:
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        subprocess.run([sys.executable, "-c", "x = bytes(80 << 20)"], check=True)
    tick = 0.01  # of the system's count of processor time, at both ends
    assert cost.wall_s > 0.1 - tick and cost.cpu_s > 0.1 - 2 * tick
    assert cost.peak_memory_mb > 80 + cost.start_memory_mb * 0.5
