"""`warpfactor cohort`: what it prints for people and for programs, and its exit codes."""

import json

import pytest

from commands import run
from serial import use_serial
from small import QUICK_OPTIONS

pytest.importorskip("distributed", reason="the extra `cohort` is not installed")


@pytest.fixture(autouse=True)
def serial(monkeypatch):
    monkeypatch.setattr("warpfactor.checks.examine.align", lambda *_: None)
    return use_serial(monkeypatch)


def test_images_to_a_template_with_lines_and_then_json(people, tmp_path):
    pattern = ("--template", people / "template.nii.gz", "--moving-labels", people / "{name}_labels.nii.gz")
    line = ("cohort", people / "sub?.nii.gz", "-o", tmp_path / "out", *pattern, *QUICK_OPTIONS)
    done = run(*line)
    assert "3 rows: 3 to do, 0 up to date" in done.stderr and "3 because: new" in done.stderr
    assert "[3/3] sub2: " in done.stderr
    assert "summary.html: 3 rows, " in done.stdout
    told = [json.loads(text) for text in run(*line, "--json").stdout.splitlines()]
    assert [entry["event"] for entry in told] == ["plan", "result"]
    assert told[0]["needed"] == 0 and {row["why"] for row in told[0]["plan"]} == {"up to date"}


def test_problems_are_told_one_a_line_and_failed_rows_by_the_exit_code(people, tmp_path):
    table = tmp_path / "table.csv"
    empty = tmp_path / "empty.nii.gz"
    empty.write_bytes((people / "sub0.nii.gz").read_bytes()[:9000])
    table.write_text(f"name,fixed,moving\na,{people}/template.nii.gz,gone\na,{people}/template.nii.gz,{empty}\n")
    told = run("cohort", table, "-o", tmp_path / "out", "--workers", 0, code=2).stderr.splitlines()
    assert len(told) == 3 and all(line.startswith("warpfactor: ") for line in told)
    table.write_text(f"name,fixed,moving\na,{people}/template.nii.gz,{empty}\n")
    done = run("cohort", table, "-o", tmp_path / "out", *QUICK_OPTIONS, "--json", code=3)
    told = [json.loads(text) for text in done.stdout.splitlines()]
    assert told[1]["event"] == "row" and told[1]["state"] == "failed" and "empty.nii.gz" in told[1]["reason"]
    assert "--entity x" in run("cohort", people, "-o", tmp_path / "o", "--entity", "x", code=2).stderr
