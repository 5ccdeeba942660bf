"""Pairs, metrics, weights, labels and terms on the command line: how they group, and one sentence for what is wrong."""

import json

import numpy as np
import pytest

import warpfactor as wf
from commands import entries, run
from small import QUICK_OPTIONS
from warpfactor.cli.guides import parse_pairs
from warpfactor.cli.options import split_pairs
from warpfactor.errors import InputError


def names(folder):
    return list(entries(folder)["stages"][-1]["terms"])


def test_every_term_is_told_in_history_progress_and_report(images, files, tmp_path):
    second = ("--pair", *images, "--metric", "mi", "--weight", "0.5")
    labels = ("--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz")
    out = tmp_path / "out"
    done = run(
        *("register", *images, "-o", out, *QUICK_OPTIONS, *second, *labels, "--labels-weight", 1),
        *("--term", "bending=0.1", "--json"),
    )
    terms = ["lncc", "mi of fixed", "labels", "bending"]
    stage = entries(out)["stages"][-1]
    assert stage["metric"] == " + ".join(terms)
    assert names(out) == terms
    assert all(f"cost of {name}" in stage["history"] for name in terms)
    assert stage["terms"]["labels"]["cost_after"] < stage["terms"]["labels"]["cost_before"]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    told = [line["parts"] for line in lines if line["event"] == "iteration" and line["stage"] == "deformable"]
    assert all([name for name, _ in parts] == terms for parts in told)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Mi of fixed</td>" in page
    assert "Bending</td>" in page


def test_the_lines_of_levels_tell_the_terms(images, tmp_path):
    done = run("register", *images, "-o", tmp_path / "out", *QUICK_OPTIONS, "--term", "volume=0.1", "--no-report")
    assert "(lncc 0." in done.stderr
    assert ", volume change 0." in done.stderr


def test_options_group_by_their_order():
    two = ["a", "b", "c", "d"]
    found = parse_pairs(two, ["mi", "mse"], [0.5, 2.0])
    assert [(p.fixed, p.moving, p.metric, p.weight) for p in found.further] == [
        ("a", "b", "mi", 0.5),
        ("c", "d", "mse", 2.0),
    ]
    assert (found.metric, found.weight) == (None, 1.0)
    found = parse_pairs(two, ["mind", "mi", "mse"], [3.0, 0.5, 2.0])
    assert (found.metric, found.weight) == ("mind", 3.0)
    assert [(p.metric, p.weight) for p in found.further] == [("mi", 0.5), ("mse", 2.0)]
    assert parse_pairs(None, ["mi"], None).metric == "mi"
    with pytest.raises(InputError, match="--metric was given 1 times and --pair 3 times"):
        parse_pairs([*two, "e", "f"], ["mi"], None)


def test_a_pair_is_two_values():
    assert split_pairs(["x", "--pair", "a", "b", "-q"]) == ["x", "--pair", "a", "--pair", "b", "-q"]
    for wrong in (["--pair", "a"], ["--pair", "a", "-q"]):
        with pytest.raises(InputError, match="--pair needs two files"):
            split_pairs(wrong)


def wrong_cases(files, images, tmp_path):
    """Options that are refused, and what is said about them."""
    labels = ("--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz")
    other = wf.read_labels(files / "moving_labels.nii.gz")
    wf.write_image(wf.Image((other.data > 0).int() * 77, other.grid), tmp_path / "others.nii.gz")
    outside = tmp_path / "outside.csv"
    head = ",".join(f"{side}_{axis}" for side in ("fixed", "moving") for axis in "xyz")
    np.savetxt(outside, [[900, 0, 0, 10, 10, 10]], delimiter=",", header=head, comments="")
    return [
        (("--labels-weight", 1), "needs both label maps"),
        ((*labels, "--label-values", "1"), "has no effect without --labels-weight"),
        ((*labels, "--labels-weight", 1, "--label-values", "a"), "give whole numbers"),
        ((*labels, "--labels-weight", 1, "--label-values", "99"), "label 99 is not in both"),
        ((*labels[:3], tmp_path / "others.nii.gz", "--labels-weight", 1), "have no label in common"),
        (("--weight", 0), "The weights of all terms are zero"),
        (("--pair", *images, "--weight", 0, "--weight", 0), "The weights of all terms are zero"),
        (("--pair", *images, "--metric", "cc"), "Unknown metric 'cc'"),
        (("--pair", images[0], files / "none.nii.gz"), "there is no such file"),
        (("--term", "bending"), "--term bending: write NAME=WEIGHT, for instance bending=0.3 or volume=0.3"),
        (
            ("--landmarks", outside, "--landmarks-weight", 1),
            "outside.csv: landmark 1 of 1, (900, 0, 0) mm, lies outside",
        ),
    ]


def test_what_is_wrong_is_one_sentence_and_nothing_is_written(files, images, tmp_path):
    for options, message in wrong_cases(files, images, tmp_path):
        out = tmp_path / "out"
        failed = run("register", *images, "-o", out, *QUICK_OPTIONS, *options, code=2)
        assert message in failed.stderr
        assert len(failed.stderr.splitlines()) == 1
        assert not out.exists()


def test_a_term_without_overlap_is_one_sentence_and_nothing_is_written(images, tmp_path):
    grid = wf.read_image(images[0]).grid
    apart = np.array(grid.matrix)
    apart[:3, 3] += 500
    wf.write_image(wf.Image(wf.read_image(images[0]).data, wf.Grid(grid.shape, apart)), tmp_path / "apart.nii.gz")
    failed = run(
        *("register", *images, "-o", tmp_path / "out", *QUICK_OPTIONS, "--pair", tmp_path / "apart.nii.gz", images[1]),
        code=2,
    )
    assert "apart.nii.gz lies outside fixed.nii.gz in space" in failed.stderr
    assert not (tmp_path / "out").exists()
