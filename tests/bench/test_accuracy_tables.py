"""Tables and figures of runs: what is in them, and that every file appears."""

import csv
import io
import json
import math

import pytest

from warpfactor.bench.run.method import OURS
from warpfactor.bench.run.record import DONE, FAILED, Run
from warpfactor.bench.run.runner import code_hash
from warpfactor.bench.score import accuracy
from warpfactor.bench.score.measures import DICE, TRE
from warpfactor.bench.score.plots import COLOURS, MARKERS, add_legend, style
from warpfactor.bench.score.tables import Table, TableColumn, to_csv, to_markdown


def runs():
    """Two methods on two brains and a lung, one of them failed."""
    common = {"sd_log_jacobian": 0.4, "folded_fraction": 0.0, "cpu_s": 9.0, "peak_memory_mb": 800.0}
    made = []
    for method, gain in (("default", 0.0), ("other", 0.1)):
        for number, case in enumerate(("b1", "b2")):
            dice = 0.6 + 0.05 * number + gain
            scores = {"dice": dice, "dice_before": 0.3, "wall_s": 5.0 - 10 * gain, **common}
            made.append(Run(case, "brain", method, DONE, scores=scores))
    scores = {"tre_mean_mm": 1.5, "tre_median_mm": 1.0, "wall_s": 3.0, **common}
    made.append(Run("l1", "lung", "default", DONE, scores=scores))
    made.append(Run("l1", "lung", "other", FAILED, reason="The memory is full."))
    return made


def test_means_differences_and_failures():
    pairs, means, differences, failures = accuracy.tables(runs())
    assert [row["case"] for row in pairs.rows] == ["b1", "b1", "b2", "b2", "l1"]
    brain, other, lung = means.rows
    assert (brain["count"], brain["method"], lung["group"]) == (2, "default", "lung")
    assert brain["dice"] == pytest.approx(0.625) and brain["dice_worst"] == pytest.approx(0.6)
    assert other["dice"] == pytest.approx(0.725) and math.isnan(other["tre_mean_mm"])
    assert lung["tre_mean_mm"] == 1.5
    first = differences.rows[0]
    assert (first["method"], first["measure"], first["won"]) == ("other", "Dice", "2 / 2")
    assert first["mean"] == pytest.approx(0.1) and first["low"] == pytest.approx(0.1)
    assert {row["clear"] for row in differences.rows} == {"too few"}
    assert {row["measure"] for row in differences.rows} == {"Dice", "SD log J", "folded", "wall s"}
    assert failures.rows == ({"group": "lung", "case": "l1", "method": "other", "reason": "The memory is full."},)


def test_columns_without_values_are_left_out():
    table = accuracy.pair_table([run for run in runs() if run.group == "brain"])
    keys = [column.key for column in table.columns]
    assert "dice" in keys and "tre_mean_mm" not in keys and "hd95_mm" not in keys


def test_spreads_stand_right_of_what_they_are_of():
    """Also where there are landmarks only, or labels and landmarks."""
    titles = [column.title for column in accuracy.mean_table(runs()).columns]
    assert titles[3:6] == ["Dice", "Dice SD", "Dice worst"] and titles[6:8] == ["TRE mm", "TRE mm worst"]
    lung = [column.key for column in accuracy.mean_table(runs()[4:]).columns]
    assert lung[2:5] == ["count", "tre_mean_mm", "tre_mean_mm_worst"]


def test_six_pairs_are_enough_for_a_clear_difference():
    made = [
        Run(f"p{n}", "g", method, DONE, scores={"dice": 0.5 + gain + 0.001 * n * gain})
        for n in range(6)
        for method, gain in (("a", 0.0), ("b", 0.1))
    ]
    (row,) = accuracy.difference_table(made).rows
    assert row["clear"] == "yes"


def test_no_two_columns_have_the_same_title():
    both = {"dice": 0.5, "dice_before": 0.3, "tre_mean_mm": 1.5, "tre_mean_before_mm": 5.0}
    titles = [column.title for column in accuracy.pair_table([Run("x", "g", "m", DONE, scores=both)]).columns]
    assert len(set(titles)) == len(titles) and "TRE mm before" in titles


def test_labels_and_landmarks_are_both_drawn():
    both = Run("x", "g", "m", DONE, scores={"dice": 0.5, "tre_mean_mm": 1.5, "wall_s": 1.0})
    assert [row[0].y for row in accuracy.scatters([both])] == [DICE, TRE]


def test_missing_times_do_not_stop_the_picture(tmp_path):
    written = accuracy.write([Run("x", "g", "m", DONE, scores={"dice": 0.5})], tmp_path)
    assert tmp_path / "accuracy.png" in written


def test_a_legend_is_never_wider_than_its_figure():
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    names = ("LM", "LM-transfer", "LM-tuned", "default", "a much longer name of a method")
    add_legend(figure, {name: axes.plot([0, 1])[0] for name in names})
    figure.draw_without_rendering()
    extent = figure.legends[0].get_window_extent()
    assert len(figure.legends) == 1 and extent.x0 >= 0 and extent.x1 <= figure.bbox.width


def test_a_group_is_judged_by_what_it_has():
    made = runs()
    assert accuracy.accuracy_of(made[:4]) is DICE
    assert accuracy.accuracy_of(made[4:]) is TRE
    assert accuracy.accuracy_of([]) is None


def test_every_file_is_written(tmp_path):
    written = accuracy.write(runs(), tmp_path, title="Accuracy on x")
    assert {path.name for path in written} == {
        "accuracy.csv",
        "accuracy_means.csv",
        "accuracy_differences.csv",
        "accuracy_failures.csv",
        "accuracy.json",
        "accuracy.md",
        "accuracy.png",
    }
    rows = list(csv.DictReader(io.StringIO((tmp_path / "accuracy.csv").read_text(encoding="utf-8"))))
    assert float(rows[1]["dice"]) == 0.7 and rows[4]["dice"] == ""
    entries = json.loads((tmp_path / "accuracy.json").read_text(encoding="utf-8"))
    assert entries["means"][0]["dice"] == pytest.approx(0.625) and "processor" in entries["machine"]
    text = (tmp_path / "accuracy.md").read_text(encoding="utf-8")
    assert "| brain | other | 2 | 0.7250 |" in text and "The memory is full." in text
    assert (tmp_path / "accuracy.png").read_bytes()[:4] == b"\x89PNG"


def test_runs_of_other_code_are_named_in_the_page(tmp_path):
    for code, said in ((code_hash(), False), ("another", True)):
        run = Run("x", "g", "default", DONE, scores={"dice": 0.5, "wall_s": 1.0}, entries={"tool": OURS, "code": code})
        accuracy.write([run], tmp_path / code)
        assert (
            "1 runs were made by another state of the code"
            in (tmp_path / code / "accuracy.md").read_text(encoding="utf-8")
        ) == said


def test_a_warp_that_was_left_out_is_named_in_the_page(tmp_path):
    stages = {"details": {"stages": [{"name": "affine", "kept": True}, {"name": "deformable", "kept": False}]}}
    run = Run("x", "g", "adam", DONE, scores={"dice": 0.5, "wall_s": 1.0}, entries=stages)
    accuracy.write([run], tmp_path)
    assert "initial transform is scored: adam on x." in (tmp_path / "accuracy.md").read_text(encoding="utf-8")


def test_one_run_and_no_score_at_all_still_make_tables(tmp_path):
    bare = [Run("x", "g", "default", DONE, scores={"wall_s": 1.0})]
    assert {path.suffix for path in accuracy.write(bare, tmp_path)} == {".csv", ".json", ".md"}


def test_csv_keeps_all_digits_and_markdown_rounds():
    table = Table(
        "t",
        "T",
        (TableColumn("a", "A | B"), TableColumn("b", "B", 2)),
        ({"a": "x", "b": 1 / 3}, {"a": None, "b": math.nan}),
    )
    assert to_csv(table) == "a,b\nx,0.3333333333333333\n,\n"
    assert to_markdown(table) == "### T\n\n| A / B | B |\n| --- | --- |\n| x | 0.33 |\n| - | - |\n"


def test_methods_can_be_told_apart():
    count = len(COLOURS) * len(MARKERS)
    assert len({style(number) for number in range(count)}) == count
