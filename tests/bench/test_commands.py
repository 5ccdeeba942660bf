"""`warpfactor datasets` and `warpfactor bench accuracy` as commands."""

import json

import pytest
from typer.testing import CliRunner

import stand_ins
from warpfactor.bench.data.layouts import LAYOUTS
from warpfactor.bench.run import runner
from warpfactor.cli import app as cli

RUNNER = CliRunner()
QUICK = "quick=rigid+linear.levels=2+linear.iterations=1+linear.starts=identity"


def run(*arguments, code=0):
    result = RUNNER.invoke(cli.app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def test_every_benchmark_is_explained_with_its_command():
    text = run("datasets").stdout
    for layout in LAYOUTS:
        assert layout.commands[0] in text and layout.scoring in text
    assert "fixed_landmarks" in text and "SynthSeg" in text
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith(("Paper", "Ours")))


def test_one_benchmark_by_its_name_in_any_case():
    assert run("datasets", "nlst").stdout.startswith("NLST: ")
    assert "Unknown dataset 'oases'; use one of LUMIR, OASIS" in run("datasets", "oases", code=2).stderr


def test_commands_of_the_layouts_name_methods_that_exist():
    from warpfactor.bench.run.method import parse_methods

    for layout in LAYOUTS:
        assert len(parse_methods(layout.methods)) == 2


def test_the_example_is_checked_and_benchmarked(tmp_path):
    """From nothing to the tables, as a newcomer would; the second time nothing is run."""
    run("datasets", "--example", tmp_path / "ex")
    table = tmp_path / "ex" / "pairs.csv"
    assert "3 pairs; all files exist" in run("datasets", "--check", table).stdout
    command = ("bench", "accuracy", "--data", table, "--methods", QUICK, "--cases", "*0", "-o", tmp_path / "out")
    first = run(*command)
    assert "0 of 1 runs exist already" in first.stderr and "phantom 0, quick: " in first.stderr
    assert "Per pair" in first.stdout and "Written" in first.stdout
    second = run(*command)
    assert "1 of 1 runs exist already" in second.stderr and second.stdout == first.stdout
    assert json.loads((tmp_path / "out" / "accuracy.json").read_text(encoding="utf-8"))["pairs"][0]["method"] == "quick"


def test_a_wrong_path_is_reported_before_any_work(tmp_path):
    table = tmp_path / "pairs.csv"
    table.write_text("name,fixed,moving\np,a.nii.gz,b.nii.gz\n")
    for command in (("datasets", "--check", table), ("bench", "accuracy", "--data", table, "-o", tmp_path / "out")):
        error = run(*command, code=2).stderr
        assert "case 'p', column 'fixed':" in error and "a.nii.gz does not exist" in error
    assert not (tmp_path / "out").exists()


def test_landmarks_that_do_not_correspond_are_found_by_the_check(tmp_path):
    for name in ("a.nii.gz", "b.nii.gz"):
        (tmp_path / name).touch()
    (tmp_path / "a.csv").write_text("1,2,3\n4,5,6\n")
    (tmp_path / "b.csv").write_text("1,2,3\n")
    table = tmp_path / "pairs.csv"
    table.write_text("name,fixed,moving,fixed_landmarks,moving_landmarks\np,a.nii.gz,b.nii.gz,a.csv,b.csv\n")
    error = run("datasets", "--check", table, code=2).stderr
    assert "case 'p': " in error and "a.csv has 2 points" in error


def test_a_case_without_labels_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_run_once", stand_ins.run_here)
    for name in ("a.nii.gz", "b.nii.gz", "c.nii.gz"):
        (tmp_path / name).write_bytes(b"no image")
    table = tmp_path / "pairs.csv"
    table.write_text("name,fixed,moving,fixed_labels\np,a.nii.gz,b.nii.gz,\nq,a.nii.gz,c.nii.gz,b.nii.gz\n")
    command = ("bench", "accuracy", "--data", table, "--methods", QUICK, "-o", tmp_path / "out")
    assert "case 'q' has fixed_labels but no moving_labels" in run(*command, code=2).stderr
    two = f"{QUICK},again={QUICK.partition('=')[2]}"
    result = run(*command[:5], two, *command[6:], "--cases", "p", code=3)
    assert "Failed    1 of 1 runs" in result.stdout  # two labels, one run


def test_failures_end_with_a_code_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_run_once", stand_ins.run_here)
    for name in ("a", "b"):
        (tmp_path / f"{name}.nii.gz").write_bytes(b"no image")
    table = tmp_path / "pairs.csv"
    table.write_text("name,fixed,moving\np,a.nii.gz,b.nii.gz\n")
    result = run("bench", "accuracy", "--data", table, "--methods", QUICK, "-o", tmp_path / "out", code=3)
    assert "1 of 1 pairs have neither labels nor landmarks" in result.stderr
    assert "Failed    1 of 1 runs" in result.stdout and "a.nii.gz" in (tmp_path / "out" / "accuracy.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("command", [("bench",), ("bench", "accuracy", "--help"), ("datasets", "--help")])
def test_help_is_there(command):
    text = RUNNER.invoke(cli.app, list(command)).output
    assert "Usage" in text and "{" not in text
