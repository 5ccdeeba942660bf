"""What a run shows: the live view on a terminal, plain lines elsewhere, JSON for programs, a summary at the end."""

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

import warpfactor as wf
from small import LINEAR, QUICK, pair
from warpfactor.cli import terminal, wording
from warpfactor.kernels.numba._compile import cache, compilation
from warpfactor.stages.stage import Event

FIRST = Event("deformable", 4.0, 0, 10, 0.8, None, 16.0, True, 0.5, 0.1, 1.0)


def events(*changes):
    return [dataclasses.replace(FIRST, **change) for change in changes]


def drawn(screen, width=100):
    """What a screen shows, as text."""
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(screen.render())
    return console.file.getvalue()


def screen(**options):
    return terminal.LiveView(Console(file=io.StringIO(), width=80, **options))


@pytest.fixture(scope="module")
def found():
    made = pair()
    return wf.register(made.fixed.numpy(), made.moving.numpy(), overrides=QUICK)


def test_a_curve_falls_from_high_to_low():
    assert terminal.curve([4.0, 3.0, 2.0, 1.0], 10) == "█▆▃▁"
    assert terminal.curve([1.0, 1.0], 10) == "▁▁"
    assert terminal.curve([], 10) == ""
    many = terminal.curve([float(i) for i in range(1000)], 8)
    assert many == terminal.BLOCKS
    assert terminal.curve([2.0, 1.0], 10, terminal.ASCII_BLOCKS) == "#_"


@pytest.mark.parametrize(("value", "text"), [(-0.001, "0.00"), (-0.0, "0.00"), (-0.26, "-0.26"), (0.125, "0.12")])
def test_a_zero_has_no_minus(value, text):
    assert wording.number(value, 2) == text


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0 s"), (8.4, "8 s"), (59.6, "1 min 0 s"), (125, "2 min 5 s")])
def test_durations_are_for_people(seconds, text):
    assert wording.duration(seconds) == text


def test_a_line_says_by_which_metric_a_linear_stage_goes(capsys):
    view = terminal.LineView()
    for event in events({"stage": "rigid", "metric": "lncc"}, {"stage": "rigid", "metric": "mi"}):
        view.update(event)
    view.close()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("cost")[0].split() for line in lines] == [["rigid", "level", "4", m] for m in ("LNCC", "MI")]


def test_the_time_left_follows_the_pace_of_the_current_level():
    pace, level = terminal.Pace(), terminal.LevelProgress()
    level.add(FIRST)
    assert pace.remaining(level) is None
    level.add(dataclasses.replace(FIRST, done=0.2, seconds=2.0))
    assert pace.remaining(level) == pytest.approx(8.0)  # 0.8 of the work at 10 s for all of it
    finer = terminal.LevelProgress()
    finer.add(dataclasses.replace(FIRST, level=2.0, done=0.4, seconds=4.0))
    assert pace.remaining(finer) == pytest.approx(6.0)  # the pace of the level before, until there is one
    finer.add(dataclasses.replace(FIRST, level=2.0, done=0.5, seconds=6.0))
    assert pace.remaining(finer) == pytest.approx(10.0)
    linear = terminal.LevelProgress()
    linear.add(dataclasses.replace(FIRST, stage="affine"))
    assert pace.remaining(linear) is None


def test_the_view_shows_stage_level_cost_damping_step_and_time_left():
    view = screen()
    assert wording.STARTING in drawn(view)
    for event in events({}, {"iteration": 1, "accepted": False}, {"iteration": 2, "cost": 0.3, "done": 0.3}):
        view.update(event)
    text = drawn(view)
    for part in ("deformable, level 4, 3 of 10", "cost 0.3000  ", "step 0.50 voxels", "damping 16"):
        assert part in text
    assert "2 accepted, 1 rejected" in text
    assert "s left" in text
    assert max(len(line) for line in drawn(view, width=40).splitlines()) <= 40
    view.update(events({"done": 1.0})[0])
    assert wording.FINISHING in drawn(view)
    view.phase("writing")
    assert "writing" in drawn(view)
    assert "deformable  level 4" in view._console.file.getvalue(), "the last level has its line before that"


def test_linear_stages_have_no_step_and_no_time_left():
    view = screen()
    view.update(events({"stage": "affine", "step_vox": None})[0])
    text = drawn(view)
    assert "affine, level 4" in text
    assert "step" not in text
    assert "left" not in text


def test_levels_that_have_ended_stay_as_lines(capsys):
    lines = terminal.LineView()
    for event in events(
        {"stage": "affine", "seconds": 0.2, "cost": 0.7},
        {},
        {"iteration": 1, "accepted": False, "cost": 0.9},
        {"iteration": 2, "cost": 0.25, "seconds": 2.5},
        {"level": 2.0, "seconds": 3.0},
    ):
        lines.callback(event)
    lines.close()
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in told] == ["affine", "deformable", "deformable"]
    assert "cost 0.8000 -> 0.2500" in told[1]
    assert "3 of 10, 1 rejected" in told[1]
    assert [line.split()[-2] for line in told] == ["0.2", "2.5", "0.5"]
    assert max(len(line) for line in told) <= 80


def test_the_live_view_follows_a_run_and_leaves_only_lines(images, monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=90)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(terminal, "Console", lambda **_: console)
    with terminal.progress(quiet=False, as_json=False) as view:
        wf.register(*images, overrides=QUICK, progress=view.callback)
    assert compilation._teller.tell is None, "later commands of this process say nothing"
    text = console.file.getvalue()
    assert "deformable  level 2" in text
    assert "deformable  level 1" in text


def test_a_compilation_is_announced_once_and_not_to_the_quiet(capsys):
    terminal.announce_compilation(quiet=False)
    compilation._teller.on_start(None)
    compilation._teller.on_start(None)
    terminal.announce_compilation(quiet=True)
    compilation._teller.on_start(None)
    assert capsys.readouterr().err.count("Compiling") == 1
    told = []
    terminal.announce_compilation(quiet=False, tell=told.append)
    compilation._teller.on_start(None)
    assert len(told) == 1


@pytest.mark.parametrize(("kept", "sentence"), [(0, "the kernels for the first run"), (3, "kernels that are used for")])
def test_a_compilation_says_whether_it_is_the_first(kept, sentence, monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "holdings", lambda: {tmp_path: kept})
    told = []
    terminal.announce_compilation(quiet=False, tell=told.append)
    compilation._teller.on_start(None)
    assert told[0].startswith(f"Compiling {sentence}")


def test_plain_characters_where_the_terminal_has_no_others():
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"), width=80)
    view = terminal.LiveView(console)
    for event in events({}, {"iteration": 1, "cost": 0.2}):
        view.update(event)
    assert all(ord(letter) < 128 for text in view._details(view.level.last) for letter in text)


def summary(found, seconds=3.0, **more):
    return wording.summary(found, {**found.to_dict(), **more}, Path("out"), seconds)


def test_the_summary_has_five_lines(found):
    lines = summary(found).splitlines()
    assert [line.split()[0] for line in lines] == ["Affine", "Cost", "Warp", "Output", "Status"]
    assert "out after 3.0 s" in lines[3]
    made = pair()
    rigid = wf.register(made.fixed.numpy(), made.moving.numpy(), recipe="rigid", overrides=LINEAR)
    text = summary(rigid, 100.0)
    assert "none; the transform is linear" in text
    assert "after 1 min 40 s" in text


def test_the_summary_says_what_its_figures_mean(found):
    text, warp = summary(found), found.figures.warp
    spread, shear = warp.jacobian_foreground.sd_log, warp.distortion_foreground.shear
    assert f"SD of log Jacobian {spread:.2f} and shear {shear:.2f} in the foreground" in text
    assert f"voxels on average, {warp.there_and_back_vox.max:.2g} at most" in text
    assert "at level 2; deformable" in text and "cannot be compared" in text
    seconds = found.run.seconds
    longer = {**seconds, "report": 100.0, "write": 100.0, "total": seconds["total"] + 200}
    bare = sum(value for name, value in seconds.items() if name != "total")
    text = wording.summary(found, {**found.to_dict(), "seconds": longer}, Path("out"), 3.0)
    assert f"after 3.0 s (registration {bare:.1f} s)" in text


def test_a_verdict_says_what_to_do_worst_first(found):
    checks = [
        {"name": "A", "level": "amber", "value": "", "reason": "It is odd.", "advice": "Look."},
        {"name": "B", "level": "grey", "value": "", "reason": "Not known.", "advice": ""},
        {"name": "C", "level": "red", "value": "", "reason": "It is bad.", "advice": "Run it again."},
    ]
    verdict = {"level": "red", "headline": "Do not use this as it is", "checks": checks}
    assert summary(found, verdict=verdict).splitlines()[-4:] == [
        "Verdict   Do not use this as it is.",
        "          - It is bad. Run it again.",
        "          - It is odd. Look.",
        "          - Not known.",
    ]


def test_no_more_iterations_are_told_than_there_may_be(capsys):
    lines = terminal.LineView()
    lines.callback(events({"iteration": 10, "accepted": False})[0])
    lines.close()
    assert "10 of 10, 1 rejected" in capsys.readouterr().err


def test_the_summary_has_no_negative_zero(found):
    stages = tuple(dataclasses.replace(stage, cost_before=-1e-9, cost_after=-1e-7) for stage in found.history)
    text = summary(dataclasses.replace(found, history=stages))
    assert "-0.0" not in text
    assert "LNCC 0.00 -> 0.00" in text
