"""The rows of a cohort: tables, images with a template, BIDS datasets, and what is wrong with them, all at once."""

import re

import pytest

import warpfactor as wf
from people import write_bids
from warpfactor.cohort.engine import engine as dask_engine
from warpfactor.cohort.engine.settings import EngineSettings, parse_bytes
from warpfactor.cohort.job import option_problems
from warpfactor.cohort.memory import FIXED_BYTES, MOVING_BYTES, PROCESS_BYTES, row_bytes
from warpfactor.cohort.table.bidsname import parse_name
from warpfactor.cohort.table.gather import gather

pandas = pytest.importorskip("pandas", reason="the extra `cohort` is not installed")
pytest.importorskip("distributed", reason="the extra `cohort` is not installed")

DEAD = EngineSettings(scheduler="tcp://127.0.0.1:9")


@pytest.fixture(scope="module")
def bids(tmp_path_factory, people):
    return write_bids(tmp_path_factory.mktemp("study") / "bids", people)


def problems(table, output, **options):
    with pytest.raises(wf.cohort.CohortError) as caught:
        wf.cohort.run(table, output, **options)
    assert not output.exists(), "nothing is written before all is well"
    return caught.value.problems


def test_a_table_is_read_with_paths_beside_it(people):
    found = gather(people / "table.csv")
    assert not found.problems
    assert [row.name for row in found.rows] == ["p0", "p1", "p2"]
    first = found.rows[0]
    assert first.moving == (people / "sub0.nii.gz",) and first.carry == (people / "sub0.nii.gz",)
    assert (first.group, first.place) == ("a", f"{people / 'table.csv'}, line 2")


def test_a_frame_and_dictionaries_are_tables_too(people):
    record = {"fixed": people / "template.nii.gz", "moving": [people / "sub0.nii.gz", people / "sub1.nii.gz"]}
    rows = gather([{**record, "set": {"deformable.levels": [2, 1]}}]).rows
    assert len(rows[0].moving) == 2 and rows[0].changes == {"deformable.levels": [2, 1]}
    frame = pandas.DataFrame([record | {"moving": "a.nii.gz", "name": "x"}, record | {"moving": "b.nii.gz"}])
    assert [row.name for row in gather(frame).rows] == ["x", "b"], "what a frame has not is empty"


def test_images_and_patterns_with_a_template(people):
    template = wf.cohort.Template((people / "template.nii.gz",), moving_labels=str(people / "{name}_labels.nii.gz"))
    found = gather([str(people / "sub?.nii.gz"), str(people / "template.nii.gz")], template)
    assert [row.name for row in found.rows] == ["sub0", "sub1", "sub2"], "the template itself is left out"
    assert found.rows[1].moving_labels == people / "sub1_labels.nii.gz"


def test_a_bids_dataset_by_suffix_and_entities(people, bids):
    template = wf.cohort.Template((people / "template.nii.gz",), name="MNI 152")
    assert [row.name for row in gather(bids, template).rows] == [
        "sub-01_ses-1_T1w",
        "sub-01_ses-2_T1w",
        "sub-02_ses-1_run-01_T1w",
    ]
    first = gather(bids, template, wf.cohort.BidsFilter("T1w", (("ses", "1"), ("run", "1")))).rows
    assert [row.name for row in first] == ["sub-02_ses-1_run-01_T1w"]
    assert [row.name for row in gather(bids, template, wf.cohort.BidsFilter("T2w")).rows] == ["sub-01_ses-1_T2w"]
    names = first[0].bids
    assert names.image().as_posix() == "sub-02/ses-1/anat/sub-02_ses-1_run-01_space-MNI152_T1w.nii.gz"
    assert names.transform(to_template=True).name == "sub-02_ses-1_run-01_from-T1w_to-MNI152_mode-image_xfm.h5"
    assert "no image sub-*_bold" in gather(bids, template, wf.cohort.BidsFilter("bold")).problems[0]


def test_other_names_are_not_of_bids(tmp_path):
    assert [parse_name(tmp_path / n) for n in ("T1w.nii.gz", "sub-1_T1w.png", "ses-1_T1w.nii.gz")] == [None] * 3


def test_everything_wrong_is_told_at_once_before_any_work(people, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_engine, "_ANSWER_S", 0.2)
    flat = tmp_path / "flat.nii.gz"
    wf.write_image(wf.Image.from_array(wf.phantom.phantom((1, 32, 28)).fixed[0].numpy()), flat)
    lines = ["name,fixed,moving,recipe,set", *(f"s{k},template.nii.gz,sub0.nii.gz,," for k in range(60))]
    lines[3] = "s1,template.nii.gz,sub0.nii.gz,,"  # the name of another row
    lines[5] = f"s4,template.nii.gz,{flat},,"
    lines[7] = "../s6,template.nii.gz,sub0.nii.gz,,"
    lines[9] = "S1,template.nii.gz,sub0.nii.gz,brian,"
    lines[11] = "s10,template.nii.gz,table.csv,,"
    lines[12] = "s11,template.nii.gz,sub0.nii.gz,,deformable.levles=2"
    lines[57] = "s56,template.nii.gz,gone.nii.gz,,"
    table = people / "wrong.csv"
    table.write_text("\n".join(lines))
    found = problems(table, tmp_path / "out", engine=DEAD)
    table.unlink()
    wanted = (
        r"2 rows have the name 's1' and would share one result folder \(.*csv, line \d+; .*csv, line \d+\)",
        "The name '../s6' cannot be that of a folder",
        "The names s1 and S1 are one folder",
        "wrong.csv, line 58: .*gone.nii.gz does not exist",
        "line 6: .*template.nii.gz is 3-D and the moving image 2-D",
        "line 10: Unknown recipe 'brian'",
        "line 12: .*table.csv",
        "line 13: Unknown setting",
        "tcp://127.0.0.1:9 does not answer",
    )
    assert len(found) == len(wanted), found
    for text in wanted:
        assert any(re.search(text, problem) for problem in found), text


def test_what_is_wrong_with_a_template_is_told_once_for_all_rows(people, tmp_path):
    flat = tmp_path / "flat.nii.gz"
    wf.write_image(wf.Image.from_array(wf.phantom.phantom((1, 32, 28)).fixed[0].numpy()), flat)
    images = str(people / "sub?.nii.gz")
    told = problems(images, tmp_path / "out", template=flat)
    assert (
        len(told) == 1 and "sub0.nii.gz and 2 more rows: " in told[0] and "is 2-D and the moving image 3-D" in told[0]
    )
    told = problems(images, tmp_path / "out", template=tmp_path / "gone.nii.gz")
    assert len(told) == 1 and "gone.nii.gz does not exist" in told[0]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "the table is empty"),
        ("fixed,moving\n", "has no rows"),
        ("fixed,moving,extra,more\na,b,c,d", "unknown columns 'extra', 'more'; the known"),
        ("fixed,other\n", "unknown column 'other'"),
        ("moving\na", "needs a column 'fixed'"),
        ("fixed,moving\na", "line 2 has 1 cells"),
        ("fixed,moving\na,", "line 2: there is no moving image"),
        ("fixed,moving,set\na,b,c", "must be NAME=VALUE"),
    ],
)
def test_tables_that_are_none(tmp_path, lines, said):
    (tmp_path / "t.csv").write_text(lines)
    assert any(said in problem for problem in problems(tmp_path / "t.csv", tmp_path / "out"))


def test_what_else_cannot_be_a_cohort(people, tmp_path):
    out = tmp_path / "out"
    assert "need a template" in problems(people / "sub0.nii.gz", out)[0]
    assert "no file matches" in problems(str(people / "x*.nii.gz"), out, template=people / "template.nii.gz")[0]
    assert "leave out the template" in problems(people / "table.csv", out, template=people / "template.nii.gz")[0]
    assert "give one of those" in problems([1, 2], out)[0]
    labels = [{"fixed": people / "template.nii.gz", "moving": people / "sub0.nii.gz", "fixed_labels": people / "x"}]
    assert len(problems(labels, out)) == 2


def test_choices_that_no_row_could_be_run_with_are_told_before_any_row_fails(people, tmp_path):
    options = wf.cohort.JobOptions(device="gpu", landmarks_weight=-1.0)
    images, template = str(people / "x*.nii.gz"), people / "gone.nii.gz"
    told = problems(images, tmp_path / "out", template=template, recipe="brian", options=options)
    assert len(told) == 5
    for text in (
        "no file matches",
        "gone.nii.gz does not exist",
        "Unknown recipe 'brian'",
        "Device 'gpu' is unknown",
        "The weight of the landmarks must be 0 or more, not -1",
    ):
        assert any(text in problem for problem in told), text
    told = problems(people / "table.csv", tmp_path / "out", options=wf.cohort.JobOptions(backend="cud"))
    assert len(told) == 1 and "Unknown backend 'cud'" in told[0]


def test_devices_of_other_machines_are_not_looked_for_here():
    card = wf.cohort.JobOptions(device="cuda:7")
    assert not list(option_problems(card, here=False))
    assert "cannot be used here" in next(option_problems(card, here=True))


def test_engines_that_cannot_be(people, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_engine, "_ANSWER_S", 0.2)

    def said(**settings):
        return problems(people / "table.csv", tmp_path / "out", engine=EngineSettings(**settings))[0]

    assert "is not known" in said(jobqueue="cron", workers=2)
    assert "needs the number of jobs" in said(jobqueue="slurm")
    assert "at least 1" in said(workers=0)
    assert "not an amount of memory" in said(memory_per_worker="lots")
    assert "no such file" in said(jobqueue="slurm", workers=1, jobqueue_config=tmp_path / "no.yaml")
    assert "where they are started" in said(scheduler="tcp://127.0.0.1:9", workers=2)
    assert "p0 needs about" in said(memory_per_worker="100MB"), "workers would die one after the other"


def test_without_dask_it_says_what_to_install(people, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'warpfactor[cohort]'" in problems(people / "table.csv", tmp_path / "out")[0]


def test_memory_decides_how_many_work_at_once(people):
    row = gather(people / "table.csv").rows[0]
    voxels = 24 * 26 * 24
    assert row_bytes(row) == PROCESS_BYTES + (FIXED_BYTES + MOVING_BYTES) * voxels
    assert EngineSettings(workers=8).count(need_bytes=10, free_bytes=35, jobs=100) == 3
    assert EngineSettings(workers=8).count(need_bytes=10, free_bytes=5, jobs=100) == 1
    assert EngineSettings(workers=8).count(need_bytes=10, free_bytes=500, jobs=2) == 2
    assert [parse_bytes(text) for text in ("4GB", "500 MiB", "2e9", "1k")] == [4 * 10**9, 500 << 20, 2 * 10**9, 1000]
