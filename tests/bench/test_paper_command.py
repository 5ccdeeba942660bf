"""`warpfactor bench paper` as a command: found from the help, checked before work, resumed after a stop."""

import json
import shlex

import pytest
from typer.testing import CliRunner

import stand_ins
from warpfactor.bench.data.example import write_example
from warpfactor.bench.data.layouts import LAYOUTS
from warpfactor.bench.paper import EXPERIMENTS
from warpfactor.bench.run import runner
from warpfactor.cli import app as cli
from warpfactor.cli import bench_paper

RUNNER = CliRunner()


def run(*arguments, code=0):
    result = RUNNER.invoke(cli.app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_example(tmp_path_factory.mktemp("data") / "ex", pairs=2, shape=(1, 32, 32))


def test_experiments_are_explained_with_commands():
    text = run("bench", "paper").stdout
    for name, experiment in EXPERIMENTS.items():
        assert f"warpfactor bench paper {name} " in text and experiment.question in text
    assert ", ".join(EXPERIMENTS) == bench_paper.NAMES


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_the_commands_that_datasets_prints_exist(layout, tmp_path, monkeypatch):
    """Only the data is missing."""
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(layout.commands[0])
    assert program == "warpfactor" and "there is no such dataset" in run(*arguments, code=2).stderr


def test_from_a_table_to_pages_with_a_broken_pair_and_again_from_what_is_there(table, tmp_path, monkeypatch):
    """The affine of one pair fails, the other is registered by all; labels then need no new run."""
    monkeypatch.setattr(runner, "_run_once", stand_ins.run_here)  # tests/bench/test_runner.py has real processes
    (table.parent / "broken.nii.gz").write_bytes(b"no image")
    mine = table.with_name("mine.csv")
    mine.write_text(table.read_text(encoding="utf-8").replace("pair1_moving.nii.gz", "broken.nii.gz"), encoding="utf-8")
    options = ("--data", mine, "--iterations", "2,1,1", "--jobs", "2", "-o", tmp_path / "out")
    first = run("bench", "paper", "main", *options, code=3)
    assert "0 of 2 runs exist already" in first.stderr and "phantom 1, affine: failed" in first.stderr
    found = json.loads((tmp_path / "out" / "main" / "main.json").read_text(encoding="utf-8"))
    assert [row["method"] for row in found["summary"]] == ["Adam", "LM", "default"]
    assert found["failures"][0]["reason"].startswith(str(table.parent / "broken.nii.gz"))
    second = run("bench", "paper", "labels", *options, code=3)
    assert "3 of 3 runs exist already" in second.stderr and "Dice per label" in second.stdout + (
        tmp_path / "out" / "labels" / "labels.md"
    ).read_text(encoding="utf-8")


def test_wrong_paths_are_reported_before_any_work(table, tmp_path):
    mine = table.with_name("wrong.csv")
    mine.write_text(
        table.read_text(encoding="utf-8").replace("pair1_moving.nii.gz", "nowhere.nii.gz"), encoding="utf-8"
    )
    error = run("bench", "paper", "main", "--data", mine, "-o", tmp_path / "out", code=2).stderr
    assert "case 'phantom 1', column 'moving':" in error and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mian",), "Unknown experiment 'mian'; did you mean 'main'"),
        (("main",), "-o FOLDER"),
        (("main", "-o", "out"), "--data PATH"),
        (
            ("main", "-o", "out", "--trials", "3"),
            "--trials has no effect on the experiment main; it is an option of tune, transfer",
        ),
        (("main", "-o", "out", "--data", "TABLE", "--iterations", "a,b"), "whole numbers"),
        (("main", "-o", "out", "--data", "TABLE", "--iterations", "5"), "3 levels"),
        (("main", "-o", "out", "--data", "TABLE", "--start", "affin"), "Unknown recipe 'affin'"),
        (("main", "-o", "out", "--data", "TABLE", "--cases", "x*"), "No case matches"),
        (("sensitivity", "-o", "out", "--data", "TABLE", "--points", "1"), "--points 1"),
        (("efficiency", "-o", "out", "--data", "TABLE"), "makes its own images"),
        (("efficiency", "-o", "out", "--sizes", "8"), "Size 8 is too small"),
    ],
)
def test_what_cannot_work_is_said_at_once(arguments, message, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [table if argument == "TABLE" else argument for argument in arguments]
    assert message in run("bench", "paper", *given, code=2).stderr
    assert not (tmp_path / "out").exists()
