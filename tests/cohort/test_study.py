"""A cohort from table to page: what is done, what is kept and why, what fails, and what the folder then holds."""

import csv
import errno
import json
import os
import shutil

import pytest

import warpfactor as wf
from people import volumes, write_bids
from serial import SerialEngine, use_serial
from small import QUICK
from warpfactor.cohort import job
from warpfactor.cohort.engine.engine import Crash
from warpfactor.cohort.rows import FRUITLESS_ROUNDS
from warpfactor.cohort.store import Store

pytest.importorskip("distributed", reason="the extra `cohort` is not installed")


@pytest.fixture
def serial(monkeypatch):
    monkeypatch.setattr("warpfactor.checks.examine.align", lambda *_: None)
    return use_serial(monkeypatch)


@pytest.fixture(scope="module")
def finished(people, tmp_path_factory):
    """A cohort that was run, with its frame."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_serial(monkeypatch)
        folder = tmp_path_factory.mktemp("cohort") / "out"
        return folder, wf.cohort.run(people / "table.csv", folder, overrides=QUICK)


@pytest.fixture
def out(finished, tmp_path):
    """A copy of the finished cohort."""
    return shutil.copytree(finished[0], tmp_path / "out")


def again(people, out, **options):
    """Run the cohort a second time; the frame, and the reasons of its plan."""
    events = []
    frame = wf.cohort.run(people / "table.csv", out, watch=events.append, **{"overrides": QUICK, **options})
    return frame, {row.name: row.why for row in events[0].plan}


def test_every_row_has_a_folder_as_register_leaves_it(finished, people):
    folder, frame = finished
    assert list(frame["state"]) == ["done"] * 3 and set(frame["group"]) == {"a", "b"}
    assert (frame["dice"] > 0.5).all() and frame["sd_log"].notna().all()
    names = {path.name for path in (folder / "p0").iterdir()}
    assert {"result.json", "report.html", "warped.nii.gz", "warped_labels.nii.gz", "1Warp.nii.gz"} <= names
    alone = wf.register(people / "template.nii.gz", people / "sub0.nii.gz", overrides=QUICK)
    assert (wf.read_image(folder / "p0" / "warped.nii.gz").data == alone.warped.data).all()
    carried = wf.read_image(folder / "p0" / "carried_sub0.nii.gz")
    assert (carried.data == alone.warped.data).all(), "here the carried image is the moving one"
    with (folder / "results.csv").open(newline="") as stream:
        assert [row["name"] for row in csv.DictReader(stream)] == ["p0", "p1", "p2"]
    assert "p2" in (folder / "summary.html").read_text(encoding="utf-8")


def test_a_second_run_does_nothing(people, out, serial):
    before = {path: path.stat().st_mtime_ns for path in out.glob("p*/*")}
    frame, why = again(people, out)
    assert serial.done == [] and set(why.values()) == {"up to date"}
    assert {path: path.stat().st_mtime_ns for path in out.glob("p*/*")} == before
    assert list(frame["state"]) == ["done"] * 3 and frame["dice"].notna().all()


def test_only_what_is_missing_or_changed_is_done_and_why(people, out, serial, tmp_path):
    here = shutil.copytree(people, tmp_path / "people")
    shutil.rmtree(out / "p0")
    shutil.copy(here / "sub0.nii.gz", here / "sub1.nii.gz")
    os.utime(here / "sub2.nii.gz", ns=(1, 1))  # another time and place, the same content
    _, why = again(here, out)
    assert why == {"p0": "new", "p1": "moving changed", "p2": "up to date"}
    assert serial.done == ["p0", "p1"]
    _, why = again(here, out, overrides={**QUICK, "deformable.iterations": [6, 4]})
    assert why["p2"].startswith("recipe changed: deformable.iterations [6, 3] -> [6, 4]")


def test_a_result_of_another_version_is_made_again(people, out, serial):
    path = out / "p1" / "result.json"
    entries = json.loads(path.read_text())
    entries["cohort"]["version"] = "0.1.9"
    path.write_text(json.dumps(entries))
    _, why = again(people, out)
    assert why["p1"] == f"version 0.1.9 -> {wf.__version__}" and serial.done == ["p1"]


def test_a_row_that_fails_is_recorded_and_the_others_go_on(people, tmp_path, serial):
    here = shutil.copytree(people, tmp_path / "people")
    damaged = (here / "sub1.nii.gz").read_bytes()
    (here / "sub1.nii.gz").write_bytes(damaged[: len(damaged) // 2])
    frame, _ = again(here, tmp_path / "out")
    assert list(frame["state"]) == ["done", "failed", "done"]
    assert "sub1.nii.gz" in frame["reason"][1]
    page = (tmp_path / "out" / "summary.html").read_text(encoding="utf-8")
    assert "<dt>p1</dt>" in page and "<b>1</b> failed" in page
    frame, why = again(here, tmp_path / "out")
    assert why["p1"].startswith("failed before") and serial.done == ["p0", "p1", "p2"]
    again(here, tmp_path / "out", retry_failed=True)
    assert serial.done[3:] == ["p1"]
    (here / "sub1.nii.gz").write_bytes(damaged)
    frame, why = again(here, tmp_path / "out")
    assert why["p1"] == "moving changed" and list(frame["state"]) == ["done"] * 3
    assert Store(tmp_path / "out").failure("p1") is None


def test_a_row_whose_labels_or_landmarks_cannot_belong_to_it_fails_with_a_sentence(people, tmp_path, serial):
    other = wf.read_labels(people / "sub0_labels.nii.gz")
    wf.write_image(wf.Image((other.data > 0).int() * 77, other.grid), tmp_path / "others.nii.gz")
    for side in ("fixed", "moving"):
        (tmp_path / f"{side}.csv").write_text("x,y,z\n900,0,0\n")
    (tmp_path / "both.csv").write_text("fixed_x,fixed_y,fixed_z,moving_x,moving_y,moving_z\n900,0,0,5,5,5\n")
    images = {"fixed": people / "template.nii.gz", "moving": people / "sub0.nii.gz"}
    labels = {"fixed_labels": people / "template_labels.nii.gz", "moving_labels": tmp_path / "others.nii.gz"}
    landmarks = {f"{side}_landmarks": tmp_path / f"{side}.csv" for side in ("fixed", "moving")}
    both = {"fixed_landmarks": tmp_path / "both.csv"}
    rows = [{"name": name, **images, **more} for name, more in (("a", labels), ("b", landmarks), ("c", both))]
    frame = wf.cohort.run(rows, tmp_path / "out", overrides=QUICK)
    assert list(frame["state"]) == ["failed"] * 3
    assert "others.nii.gz have no label in common" in frame["reason"][0]
    assert "moving.csv: 1 of 1 points lie outside the fixed image" in frame["reason"][1]
    assert "both.csv: 1 of 1 points lie outside the fixed image" in frame["reason"][2]
    guided = wf.cohort.run(
        rows[2:], tmp_path / "led", overrides=QUICK, options=wf.cohort.JobOptions(landmarks_weight=1)
    )
    assert "both.csv: landmark 1 of 1, (900, 0, 0) mm, lies outside the fixed image" in guided["reason"][0]
    assert not (tmp_path / "out" / "a" / "result.json").exists()


def test_rows_that_find_the_disk_full_are_tried_again_after_the_others(people, tmp_path, serial, monkeypatch):
    whole, tries, events = wf.Registration.save, [], []

    def save(self, folder, **options):
        tries.append(folder.name)
        if len(tries) == 1 or folder.name == "p2":
            raise wf.FileError("no room") from OSError(errno.ENOSPC, "No space left on device")
        return whole(self, folder, **options)

    with monkeypatch.context() as patched:
        patched.setattr(wf.Registration, "save", save)
        frame = wf.cohort.run(people / "table.csv", tmp_path / "out", overrides=QUICK, watch=events.append)
    assert tries == ["p0", "p1", "p2", "p0", "p2"]
    told = [(event.outcome.name, event.outcome.state, event.ended) for event in events[1:]]
    assert told[:3] == [("p0", "postponed", 0), ("p1", "done", 1), ("p2", "postponed", 1)]
    assert told[3:] == [("p0", "done", 2), ("p2", "failed", 3)]
    assert list(frame["state"]) == ["done", "done", "failed"] and frame["reason"][2] == "The disk is full. no room"
    frame, why = again(people, tmp_path / "out")
    assert why["p2"] == "new" and list(frame["state"]) == ["done"] * 3, "it is not held against the row"


def test_a_disk_that_hides_that_it_is_full_is_looked_at(people, tmp_path, serial, monkeypatch):
    """As ITK does when it writes a transform; even a lock may have no room."""

    def damaged(*_, **__):
        raise wf.FileError("the file is damaged")

    record = {"name": "a", "fixed": people / "template.nii.gz", "moving": people / "sub0.nii.gz"}
    monkeypatch.setattr(wf.Registration, "save", damaged)
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(100, 100, 0))
    frame = wf.cohort.run([record], tmp_path / "out", overrides=QUICK)
    assert frame["reason"][0] == "The disk is full. the file is damaged"
    assert Store(tmp_path / "out").failure("a") is None

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("warpfactor.cohort.store.claimed", full)
    assert "No space left" in wf.cohort.run([record], tmp_path / "out", overrides=QUICK)["reason"][0]


def test_a_row_is_done_once_however_often_it_is_sent(people, tmp_path, monkeypatch):
    """As after a restart of the scheduler; and what a killed worker has left behind is removed."""
    left = tmp_path / "out" / ".0123abcd-p0"
    left.mkdir(parents=True)
    (left / "warped.nii.gz").touch()
    jobs = []
    use_serial(monkeypatch, SerialEngine(jobs.append))
    wf.cohort.run(people / "table.csv", tmp_path / "out", overrides=QUICK)
    assert not left.exists()
    monkeypatch.setattr(job, "register", None)
    assert job.do_row(jobs[0]).state == "done"


class DyingEngine(SerialEngine):
    """Workers die over some rows; Dask then gives up all rows that were waiting with those."""

    def __init__(self, deadly):
        super().__init__()
        self.deadly, self.rounds, self.begun = deadly, 0, []

    def finished(self, function, jobs):
        self.rounds += 1
        for each in jobs:
            if each.name in self.deadly:
                self.begun.append(Store(each.output).tried(each.name))
                self.begun[-1].__enter__()  # and never left, as by a process that is killed
                yield each, Crash("died")
            elif each.name == f"p{self.rounds - 1}":
                yield each, function(each)
            else:
                yield each, Crash("died")


def test_rows_that_waited_beside_a_deadly_one_are_sent_again(people, tmp_path, monkeypatch):
    engine = use_serial(monkeypatch, DyingEngine({"p2"}))
    frame = wf.cohort.run(people / "table.csv", tmp_path / "out", overrides=QUICK)
    assert list(frame["state"]) == ["done", "done", "failed"] and "workers that tried it died" in frame["reason"][2]
    assert engine.rounds == 4, "the deadly one was tried as often as it may be"
    assert not list((tmp_path / "out" / ".cohort" / "claims").glob("p[01]*"))
    frame = wf.cohort.run(people / "table.csv", tmp_path / "out", overrides=QUICK, retry_failed=True)
    assert engine.rounds > 5, "it is counted anew"


def test_workers_that_die_before_they_begin_are_not_waited_for_for_ever(people, tmp_path, monkeypatch):
    engine = DyingEngine(set())
    engine.rounds = 7
    use_serial(monkeypatch, engine)
    frame = wf.cohort.run(people / "table.csv", tmp_path / "out", overrides=QUICK)
    assert list(frame["state"]) == ["failed"] * 3 and engine.rounds == 7 + FRUITLESS_ROUNDS


def test_a_worker_refuses_a_row_over_which_others_died(people, tmp_path, monkeypatch):
    """For a scheduler that gives up no row."""
    jobs = []
    use_serial(monkeypatch, SerialEngine(jobs.append))
    monkeypatch.setattr(job, "register", None)
    for deaths, reason in ((job.MOST_DEATHS - 1, "TypeError"), (job.MOST_DEATHS, "workers that tried it died")):
        wf.cohort.run(people / "table.csv", tmp_path / "out", overrides=QUICK, retry_failed=True)
        count = Store(tmp_path / "out")._count_file("p0")
        assert not count.exists(), "a row that failed did not kill its worker"
        count.write_text(str(deaths))
        assert reason in job.do_row(jobs[0]).reason


def test_rows_choose_recipes_and_settings(people, tmp_path, serial):
    rows = [
        {"name": name, "fixed": people / "template.nii.gz", "moving": people / "sub1.nii.gz", **more}
        for name, more in (("a", {}), ("b", {"recipe": "affine", "set": "linear.dof=rigid"}))
    ]
    wf.cohort.run(rows, tmp_path / "out", overrides={"linear.levels": [2], "linear.iterations": [2]}, recipe="fast")
    recipes = [wf.read_result(tmp_path / "out" / name).entries["recipe"] for name in "ab"]
    assert [recipe["name"] for recipe in recipes] == ["fast", "affine"]
    assert recipes[1]["linear"][0]["dof"] == "rigid" and recipes[1]["deformable"] is None


def test_bids_derivatives(people, tmp_path, serial):
    study = write_bids(tmp_path / "bids", people)
    template = wf.cohort.Template((people / "template.nii.gz",), name="MNI")
    wf.cohort.run(
        study, tmp_path / "out", template=template, overrides=QUICK, bids=wf.cohort.BidsFilter(entities=(("ses", "2"),))
    )
    place = tmp_path / "out" / "bids" / "sub-01" / "ses-2" / "anat"
    assert (
        json.loads((tmp_path / "out" / "bids" / "dataset_description.json").read_text())["DatasetType"] == "derivative"
    )
    assert sorted(path.name for path in place.iterdir()) == [
        "sub-01_ses-2_from-MNI_to-T1w_mode-image_xfm.h5",
        "sub-01_ses-2_from-MNI_to-T1w_mode-image_xfm.json",
        "sub-01_ses-2_from-T1w_to-MNI_mode-image_xfm.h5",
        "sub-01_ses-2_from-T1w_to-MNI_mode-image_xfm.json",
        "sub-01_ses-2_space-MNI_T1w.json",
        "sub-01_ses-2_space-MNI_T1w.nii.gz",
    ]
    moving = wf.read_image(study / "sub-01" / "ses-2" / "anat" / "sub-01_ses-2_T1w.nii.gz")
    warped = wf.read_image(place / "sub-01_ses-2_space-MNI_T1w.nii.gz")
    there = wf.read_transform(place / "sub-01_ses-2_from-T1w_to-MNI_mode-image_xfm.h5")
    assert (there.resample(moving, warped.grid).data - warped.data).abs().max() < 0.2
    assert volumes(tmp_path / "out" / "sub-01_ses-2_T1w")
