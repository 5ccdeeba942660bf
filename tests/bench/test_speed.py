"""`bench speed`: what is planned, measured in a fresh process, tabulated and claimed."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import warpfactor as wf
from scenes import OPS, scene_of, warp
from warpfactor.bench.run import meter
from warpfactor.bench.speed import iteration, runs, tables, worker
from warpfactor.bench.speed.claims import claim_table, find
from warpfactor.bench.speed.images import SHIFT_VOX, make_pair
from warpfactor.bench.speed.iteration import level_settings, window_of
from warpfactor.bench.speed.plan import OPTIMIZERS, WINDOWS, SpeedJob, SpeedPlan
from warpfactor.bench.speed.runs import SpeedMeasurement
from warpfactor.bench.speed.yardsticks import FACTOR, ScaleCopy
from warpfactor.cli import app, warmup
from warpfactor.errors import InputError

JOB = SpeedJob("iteration", size=24, metric="lncc", optimizer="lm", backend="numba", threads=1, quick=True)
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells the high-water mark")


def values(job):
    """Made-up figures: LM takes 40 ns and 36 bytes per voxel, a copy 1 ns; others more."""
    voxels = (job.size or 100) ** 3
    factor = {"adam": 1.1, "reference": 20.0}.get(job.optimizer if job.backend == "numba" else job.backend, 1.0)
    bytes_each = {"adam": 60, "lm+rejection": 48, "default": 47}.get(job.optimizer, 36)
    seconds = 1e-9 * 40 * factor * voxels
    if job.kind == "start":
        return {"import_seconds": 1.5, "load_seconds": 0.4}
    if job.values:
        return {str(value): 40.0 for value in job.values}
    return {
        "voxels": voxels,
        "iterations": 3,
        "window": 7,
        "seconds": 10 * seconds if job.kind == "greedy" or job.method == "greedy" else seconds,
        "cpu_seconds": 2 * seconds,
        "copy_seconds": 1e-9 * voxels,
        "copies": 40 * factor,
        "copies_cpu": 40 * factor,
        "peak_bytes": bytes_each * voxels,
        "parts_seconds": {"lncc": 0.75 * seconds, "all else": 0.25 * seconds},
    }


def measured(plan):
    return [SpeedMeasurement(job, values(job)) for job in plan.jobs()]


def test_a_plan_has_every_combination_once():
    plan = SpeedPlan(sizes=(64, 256), metrics=("lncc", "mi"), threads=2)
    jobs = plan.jobs()
    assert len({job.key for job in jobs}) == len(jobs)
    cpu = [job for job in jobs if job.kind == "iteration" and job.backend == "numba"]
    assert {(j.size, j.metric, j.optimizer) for j in cpu} == {
        (n, m, o) for n in (64, 256) for m in ("lncc", "mi") for o in OPTIMIZERS
    }
    assert {job.size for job in jobs if job.backend == "reference"} == {64}
    assert [(job.kind, job.size, job.values) for job in jobs if job.values] == [("windows", 64, WINDOWS)]
    jobs = SpeedPlan(sizes=(64, 128, 512), metrics=("lncc",)).jobs()
    assert [job.values for job in jobs if job.kind == "sizes"] == [(128, 512)]


def test_a_plan_refuses_what_it_does_not_know():
    with pytest.raises(InputError, match="Unknown optimizer 'sgd'"):
        SpeedPlan(optimizers=("lm", "sgd"))
    with pytest.raises(InputError, match="Unknown metric 'ncc'"):
        SpeedPlan(metrics=("ncc",))
    with pytest.raises(InputError, match="too small"):
        SpeedPlan(sizes=(8,))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("metric", ["lncc", "mse", "mi"])
def test_a_level_runs_to_its_limit(optimizer, metric):
    settings = level_settings(optimizer, metric, iterations=12)
    assert settings.metric.name == metric
    records = warp(scene_of(*make_pair(24)), settings).records
    assert len({record.iteration for record in records if record.accepted}) == 12  # the last verdict is a record too


def test_the_settings_are_those_of_the_recipes():
    assert level_settings("lm", "lncc", iterations=1).optimizer.name == "pointwise"
    assert level_settings("adam", "lncc", iterations=1).optimizer.name == "adam"
    assert level_settings("lm+rejection", "lncc", iterations=1).damping.copies(finest=True)
    assert not level_settings("lm", "lncc", iterations=1).damping.copies(finest=True)
    size = wf.recipe("default").deformable.metric.size
    assert window_of("default") == (size[-1] if isinstance(size, tuple) else size)
    assert level_settings("lm", "lncc", iterations=1, window=9).metric.size == 9


def test_the_pair_is_one_image_and_its_shift():
    fixed, moving = make_pair(32)
    assert fixed.data.std() > 0.1
    shift = SHIFT_VOX
    low = int(shift)
    line, other = fixed.data[0, 10, 10].numpy(), moving.data[0]
    near = other[10 - low : 12 - low, 10 - low : 12 - low].numpy().mean((0, 1))
    assert np.corrcoef(line[4:28], np.interp(np.arange(4, 28) - shift, np.arange(32), near))[0, 1] > 0.95


def test_the_yardstick_copies():
    copy = ScaleCopy(1000)
    assert copy.time().wall > 0
    assert np.array_equal(copy._target, FACTOR * np.ones(3000, np.float32))


@LINUX
def test_memory_is_counted_from_the_mark():
    before = meter.reset_peak()
    large = np.ones(8_000_000)
    del large
    assert 60e6 < meter.peak_bytes() - before < 80e6
    meter.reset_peak()
    assert meter.peak_bytes() - before < 20e6


def test_an_iteration_in_a_fresh_process():
    """Two images, warp, gradient and Adam's moments are 56 bytes per voxel; the allocator rounds up."""
    job = replace(JOB, size=96, metric="mse", optimizer="adam")
    found = runs._run(job)
    assert not found.failure
    assert found.values["voxels"] == 96**3
    assert found.values["image_bytes"] == 8 * 96**3
    assert found.values["iterations"] == 3
    assert found.values["seconds"] > found.values["copy_seconds"] > 0
    assert sum(found.values["parts_seconds"].values()) > 0
    assert {"mse", "compose", "adam"} <= found.values["parts_seconds"].keys()
    if sys.platform.startswith("linux"):
        assert 52 < found.values["peak_bytes"] / 96**3 < 80


def test_rejected_steps_belong_to_their_iteration():
    times = iteration.KernelTimes(OPS)
    watch = iteration.IterationTimer(ScaleCopy(100), times)
    record = type("Record", (), {})
    for accepted in (True, False, True):
        entry = record()
        entry.accepted = accepted
        watch(entry)
    assert len(watch.iterations) == len(watch.copies) == len(times.seconds) == 2
    assert watch.rejected == 1


def test_parts_are_told_apart_by_their_turn():
    times = iteration.KernelTimes(OPS)
    field = make_pair(24)[0].data.clone()
    for _ in range(2):
        times.smooth_gaussian(field, (1.0, 1.0, 1.0))
    times.end_iteration()
    assert list(times.seconds[0]) == ["smooth_gaussian", "smooth_gaussian 2"]


def test_what_does_not_fit_is_not_tried():
    with pytest.raises(InputError, match="need about"):
        iteration.measure_iteration(replace(JOB, size=20_000))


@LINUX
def test_the_voxels_of_a_file_are_counted(tmp_path, monkeypatch):
    wf.write_image(make_pair(24)[0], tmp_path / "a.nii")
    job = replace(JOB, size=0, fixed=str(tmp_path / "a.nii"), moving=str(tmp_path / "a.nii"))
    monkeypatch.setattr(meter, "available_bytes", lambda: 24**3)
    with pytest.raises(InputError, match=f"a: {24**3} voxels need about"):
        iteration.measure_iteration(job)


def test_a_failure_is_a_sentence():
    found = runs._run(SpeedJob("pair", method="nonsense", fixed="no-such-file.nii", moving="no-such-file.nii"))
    assert found.values == {}
    assert "there is no such file" in found.failure


def test_the_fastest_of_several_turns_holds():
    plan = SpeedPlan(sizes=(64,), metrics=("lncc",), rounds=3)
    jobs = plan.jobs()
    assert len({job.key for job in jobs}) == len(jobs)
    assert [job.repeat for job in jobs] == sorted(job.repeat for job in jobs)  # round by round
    slow, most = {0: 1.3, 1: 1.0, 2: 1.1}, {0: 1.0, 1: 1.0, 2: 1.2}

    def turn(job):
        if job.repeat == 0 and job.optimizer == "adam":
            return SpeedMeasurement(job, {}, "broken")
        found = {
            name: value * slow[job.repeat]
            for name, value in values(job).items()
            if "seconds" in name and name != "parts_seconds"
        }
        if job.values:
            return SpeedMeasurement(job, {name: value * slow[job.repeat] for name, value in values(job).items()})
        memory = {} if job.kind == "start" else {"peak_bytes": most[job.repeat] * values(job)["peak_bytes"]}
        return SpeedMeasurement(job, {**values(job), **found, **memory})

    found = runs.fastest([turn(job) for job in jobs])
    assert [m.job for m in found] == SpeedPlan(sizes=(64,), metrics=("lncc",)).jobs()
    assert not any(m.failure for m in found)
    for m in found:
        expected = values(m.job)
        if m.job.kind != "start" and not m.job.values:
            assert m.values["peak_bytes"] == pytest.approx(1.2 * expected["peak_bytes"])
            expected = {name: expected[name] for name in ("seconds", "cpu_seconds")}
        assert {name: m.values[name] for name in expected} == pytest.approx(expected)


def test_runs_are_not_repeated(tmp_path, monkeypatch):
    asked = []

    def run(job):
        asked.append(job)
        return SpeedMeasurement(job, values(job), "broken" if job.optimizer == "adam" else "")

    monkeypatch.setattr(runs, "_run", run)
    jobs = [JOB, replace(JOB, optimizer="adam")]
    first = runs.run_all(jobs, tmp_path)
    assert [m.values for m in runs.run_all(jobs, tmp_path)] == [m.values for m in first]
    assert asked == [*jobs, jobs[1]]  # what failed is tried again
    monkeypatch.setattr(runs, "code_hash", lambda: "other code")
    told = []
    runs.run_all(jobs, tmp_path, announce=lambda number, total, job: told.append((number, total, job.label)))
    assert told == [(0, 2, "iteration, 24^3, lncc, lm"), (1, 2, "iteration, 24^3, lncc, adam")]
    runs.run_all(jobs, tmp_path, again=True)
    assert asked[-2:] == jobs


def test_tables_say_what_was_measured():
    plan = SpeedPlan(sizes=(64, 192, 256), metrics=("lncc",), threads=2)
    found = measured(plan)
    row = next(r for r in tables.iteration_table(found).rows if r["place"] == "256^3" and r["optimizer"] == "lm")
    assert row["ns_per_voxel"] == pytest.approx(40)
    assert row["peak_bytes_per_voxel"] == pytest.approx(36)
    assert row["window"] == 7
    efficiency = tables.efficiency_table(found, "lncc").rows[-1]
    assert efficiency["saved_percent"] == pytest.approx(40)
    assert efficiency["speedup"] == pytest.approx(1.1)
    compared = next(r for r in tables.comparison_table(found).rows if r["place"] == "192^3" and r["optimizer"] == "lm")
    assert compared["reference"] == pytest.approx(20)
    assert find(found, "256^3", "lncc", "lm", kernels="reference") is None


def test_what_is_compared_has_its_turn(monkeypatch):
    """Everything once before anything again; the least median of all turns holds."""
    order = []

    def turn(scene, window, ops):
        order.append((scene.fixed.grid.shape[0], window))
        return 30.0 - len(order)

    monkeypatch.setattr(iteration, "_nanoseconds_per_voxel", turn)
    found = iteration.measure_alternating(
        SpeedJob("windows", size=24, optimizer="lm", values=(3, 5), backend="numba", quick=True)
    )
    assert order == [(24, 3), (24, 5), (24, 3), (24, 5)]
    assert found == {"3": 27.0, "5": 26.0}
    order.clear()
    iteration.measure_alternating(SpeedJob("sizes", optimizer="lm", values=(24, 32), backend="numba", quick=True))
    assert order == [(24, 0), (32, 0), (24, 0), (32, 0)]


def test_a_turn_of_windows():
    job = SpeedJob("windows", size=24, optimizer="lm", values=(3, 15), backend="numba", quick=True)
    found = SpeedMeasurement(job, worker.MEASUREMENTS[job.kind](job))
    assert set(found.values) == {"3", "15"}
    assert min(found.values.values()) > 0
    table = tables.alternating_table([found], "windows")
    assert [row["window"] for row in table.rows] == [3, 15]
    assert min(row["relative"] for row in table.rows) == 1


def test_windows_and_sizes_may_differ_a_little():
    plan = SpeedPlan(sizes=(192, 256), metrics=("lncc",))
    for kind, value, what in (("windows", "15", "windows 3 to 15"), ("sizes", "256", "192^3 to 256^3")):
        found = [m if m.job.kind != kind else replace(m, values={**m.values, value: 50.0}) for m in measured(plan)]
        failed = [row for row in claim_table(found).rows if row["holds"] == "no"]
        assert len(failed) == 1
        assert what in failed[0]["claim"]
        assert failed[0]["measured"] == pytest.approx(25)


def test_claims_hold_or_not():
    plan = SpeedPlan(sizes=(64, 192, 256), metrics=("lncc",), threads=2)
    found = measured(plan)
    holds = {row["claim"]: row["holds"] for row in claim_table(found).rows}
    assert set(holds.values()) == {"yes"}
    assert len(holds) == 9
    slow = [replace(m, values={**m.values, "copies": 51.0}) if find([m], "192^3", "lncc", "lm") else m for m in found]
    assert [row["claim"] for row in claim_table(slow).rows if row["holds"] == "no"] == [
        "LNCC and LM at 192^3, in scaled copies"
    ]


def test_claims_about_time_are_not_judged_on_a_busy_machine(tmp_path):
    """Memory does not depend on other work. What was measured under a load is doubtful until it is measured again."""
    plan = SpeedPlan(sizes=(64, 192, 256), metrics=("lncc",), threads=2)
    holds = {row["claim"]: row["holds"] for row in claim_table(measured(plan), busy=True).rows}
    assert {what for what, told in holds.items() if told == "yes"} == {
        "LM at 256^3, bytes per voxel",
        "Adam at 256^3, bytes per voxel",
        "memory that LM saves at 256^3, %",
    }
    assert set(holds.values()) == {"yes", "not judged"}
    for load, again in ((2.5, False), (0.1, False)):
        runs.note_load(tmp_path, load, again=again)
        assert runs.highest_load(tmp_path) == 2.5
    tables.write(measured(plan), plan, tmp_path)
    assert "Other programs were running (load 2.5)" in (tmp_path / "speed.md").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "speed.json").read_text(encoding="utf-8"))["load"] == 2.5
    runs.note_load(tmp_path, 0.1, again=True)
    assert runs.highest_load(tmp_path) == 0.1


def test_a_small_run_claims_nothing_about_large_images():
    claims = [row["claim"] for row in claim_table(measured(SpeedPlan(sizes=(48,), quick=True))).rows]
    assert claims == ["import, seconds", "load kernels, seconds"]


def test_a_real_pair_is_compared_end_to_end(tmp_path):
    brain = (tmp_path / "a.nii.gz", tmp_path / "b.nii.gz")
    found = measured(SpeedPlan(sizes=(), metrics=("lncc",), brain=brain, pair_sizes=(512,)))
    rows = {(row["place"], row["method"]): row for row in tables.pair_table(found).rows}
    assert rows["512^3", "default"]["peak_bytes_per_voxel"] == pytest.approx(36)
    if ("a", "greedy") in rows:
        assert rows["a", "default"]["faster_than_greedy"] == pytest.approx(10)
        assert rows["a", "greedy"].get("faster_than_greedy") is None


def test_the_command_writes_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "_run", lambda job: SpeedMeasurement(job, values(job)))
    monkeypatch.setattr(warmup, "command", lambda quiet: None)
    folder = tmp_path / "out"
    options = ["bench", "speed", "-o", str(folder), "--sizes", "64,192", "--threads", "2", "--rounds", "2"]
    done = CliRunner().invoke(app.app, options, catch_exceptions=False)
    assert done.exit_code == 0
    assert "Limits" in done.stdout
    assert "192^3, lncc, lm\n" in done.stderr
    assert "192^3, lncc, lm, repeat 2\n" in done.stderr
    entries = json.loads((folder / "speed.json").read_text(encoding="utf-8"))
    assert entries["machine"]["processor"]
    assert entries["threads"] == 2
    assert (folder / "speed.md").read_text(encoding="utf-8").startswith("# Speed and memory")
    assert "measured 2 times" in (folder / "speed.md").read_text(encoding="utf-8")
    assert (folder / "speed.csv").read_text(encoding="utf-8").startswith("place,metric,optimizer")
    assert (folder / "speed.png").stat().st_size > 10_000


def test_a_failed_measurement_is_told(tmp_path, monkeypatch):
    broken = SpeedMeasurement(JOB, {}, "The machine ran out of memory.")
    monkeypatch.setattr(runs, "_run", lambda job: replace(broken, job=job))
    monkeypatch.setattr(warmup, "command", lambda quiet: None)
    options = ["bench", "speed", "-o", str(tmp_path), "--sizes", "64", "--metrics", "mse", "--optimizers", "lm"]
    done = CliRunner().invoke(app.app, options, catch_exceptions=False)
    assert done.exit_code == 3
    assert "The machine ran out of memory." in done.stdout


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--sizes", "64,x", "whole numbers"),
        ("--metrics", "cc", "Unknown metric"),
        ("--rounds", "0", "at least 1"),
        ("--brain", "no.nii.gz no.nii.gz", "there is no such file"),
    ],
)
def test_wrong_options_are_told_at_once(tmp_path, option, value, message):
    done = CliRunner().invoke(app.app, ["bench", "speed", "-o", str(tmp_path), option, *value.split()])
    assert done.exit_code == 2
    assert message in done.stderr
