"""Checks of a verdict, one by one: from which figure on they are not green, and what they advise."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import warpfactor as wf
from pages import FLAT, registered
from warpfactor.checks import advice
from warpfactor.checks import judge as checks
from warpfactor.checks.alignment import ADVICE, GIVEN
from warpfactor.checks.case import from_registration
from warpfactor.checks.coarse import Region
from warpfactor.checks.likeness import Alignment, Likeness
from warpfactor.checks.verdict import LIMITS, Verdict, grade


def case_of(pair, *, mask=None, **entries):
    case = from_registration(pair.found, fixed=pair.fixed, moving=pair.moving, fixed_mask=mask)
    return replace(case, entries={**case.entries, **entries})


def judged(pair, **entries):
    return checks.judge(case_of(pair, **entries), None, None, object_mm=100.0)


def test_the_course_and_the_scores_count():
    pair = registered()
    stages = pair.found.to_dict()["stages"]
    left_out = [*stages[:-1], {**stages[-1], "kept": False, "cost_before": 0.3}]
    count = len(stages[-1]["history"]["cost"])
    faster = {"level": [1] * count, "cost": (1 - np.linspace(0, 1, count) ** 2).tolist(), "accepted": [True] * count}
    falling = [*stages[:-1], {**stages[-1], "history": faster}]
    for entries, name, level in (
        ({"interrupted": True}, "Course", "red"),
        ({"stages": left_out}, "Course", "amber"),
        ({"stages": falling}, "Course", "amber"),
        ({"warnings": [f"Little alike. {ADVICE}"]}, "Linear stage", "amber"),
        ({"warnings": ["Something else."]}, "Warning", "amber"),
        ({"labels": {"dice_mean_before": 0.6, "dice_mean_after": 0.3}}, "Labels", "red"),
        ({"labels": {"dice_mean_before": 0.6, "dice_mean_after": 0.58}}, "Labels", "amber"),
        ({"landmarks": distances(2.0, 5.0)}, "Landmarks", "red"),
        ({"figures": {"affine_volume_ratio_moving_to_fixed": -1.0}}, "Size", "red"),
        ({"figures": {"affine_volume_ratio_moving_to_fixed": 0.4}}, "Size", "amber"),
    ):
        verdict = judged(pair, **entries)
        (check,) = [c for c in verdict.checks if c.name == name]
        assert check.level == level == verdict.level
        assert check.reason and check.advice, "what is not green says why, and what to do"
    assert judged(pair).level == "green"


def test_a_warp_between_images_that_agree_may_be_left_out():
    check = course(registered(), kept=False, cost_before=1e-8)
    assert (check.level, "agreed before the warp" in check.value) == ("green", True)


def distances(before, after):
    return {"before_mm": {"mean": before}, "after_mm": {"mean": after}}


def overlaps(before, *after):
    per_label = {str(number): score for number, score in enumerate(after)}
    return {"dice_mean_before": before, "dice_mean_after": np.mean(after), "dice_per_label_after": per_label}


@pytest.mark.parametrize(
    ("labels", "level", "reason"),
    [
        (overlaps(0.0, 0.0, 0.0), "red", "hardly overlap (mean Dice 0.00). Only 0 of 2 labels"),
        (overlaps(0.01, 0.02, 0.04, 0.0, 0.0, 0.0), "red", "Only 2 of 5 labels overlap at all"),
        (overlaps(0.1, 0.9, 0.0, 0.0), "amber", "Only 1 of 3 labels overlap at all"),
        (overlaps(0.1, 0.15, 0.15), "amber", "hardly overlap"),
        (overlaps(0.3, 0.6, 0.5, 0.0), "green", ""),
    ],
    ids=["none", "by chance", "one in common", "little", "slices"],
)
def test_labels_that_hardly_meet_are_not_green(labels, level, reason):
    check = judged(registered(), labels=labels).checks[-1]
    assert (check.name, check.level) == ("Labels", level)
    assert reason in check.reason
    assert bool(check.reason) == bool(check.advice) == (level != "green")


@pytest.mark.parametrize(
    ("before", "after", "level"),
    [(35.0, 1.4, "green"), (35.0, 3.0, "green"), (35.0, 12.0, "amber"), (90.0, 30.0, "red"), (2.0, 2.2, "amber")],
)
def test_landmarks_that_stay_far_apart_are_not_green(before, after, level):
    check = judged(registered(), landmarks=distances(before, after)).checks[-1]
    assert (check.name, check.level) == ("Landmarks", level), "the object counts as 160 mm: 80 voxels of 2 mm"


@pytest.mark.parametrize(("further", "level"), [(2, "green"), (5, "amber"), (30, "red")])
def test_landmarks_that_get_worse_are_counted(further, level):
    """The mean may fall while some go the wrong way."""
    landmarks = {**distances(15.0, 3.0), "further": further, "count": 52}
    landmarks["after_mm"]["max"] = 40.0
    check = judged(registered(), landmarks=landmarks).checks[-1]
    assert (check.name, check.level) == ("Landmarks", level)
    assert "40.0 mm at most" in check.value
    assert (f"{further} of 52" in check.reason) == (level != "green")


@pytest.mark.parametrize(("ratio", "level"), [(1.2, "green"), (1.5, "amber"), (1 / 1.5, "amber"), (1.84, "red")])
def test_a_change_of_size_counts_more_if_the_images_are_little_alike(ratio, level):
    figures = {"affine_volume_ratio_moving_to_fixed": ratio}
    doubtful = {c.name: c for c in judged(registered(), figures=figures, warnings=[f"Little alike. {ADVICE}"]).checks}
    assert doubtful["Size"].level == level
    assert ("has a skull" in doubtful["Size"].advice) == (level != "green")
    assert judged(registered(), figures=figures).level == ("amber" if level == "red" else "green")


def test_nothing_is_advised_that_was_given():
    pair = registered()
    mask = wf.Image((pair.fixed_labels.data > 0).to(torch.uint8), pair.fixed.grid, "mask")
    stages = pair.found.to_dict()["stages"]
    given = [{**stages[0], "start": GIVEN}, *stages[1:]]
    texts = (advice.little_alike, advice.unlike, advice.apart, advice.wrong_size)
    for case, masks, initial in (
        (case_of(pair), True, "rough --initial"),
        (case_of(pair, mask=mask), False, "rough --initial"),
        (case_of(pair, inputs={"moving_mask": {}}), False, "rough --initial"),
        (case_of(pair, stages=given), True, "without --initial"),
    ):
        assert all(("mask" in text(case)) == masks for text in texts)
        assert initial in advice.wrong_affine(case)
    assert "skull" in advice.little_alike(case_of(pair))
    assert "skull" not in advice.little_alike(case_of(registered(FLAT)))
    assert "multimodal" not in advice.unlike(case_of(registered((40, 44, 40), "t2", "multimodal")))


def test_an_affine_without_linear_stages_was_given():
    pair = registered()
    case = case_of(pair, stages=pair.found.to_dict()["stages"][1:])
    assert advice.started(case)
    assert not advice.started(replace(case, affine=wf.Affine()))


def test_the_size_of_an_object_is_that_of_its_box():
    mask = np.zeros((1, 4, 5), dtype=bool)
    mask[0, 1:4, 0:4] = True
    grid = wf.Grid.from_spacing((4, 5), 2.0)
    assert Region(grid.shape, mask).size_mm(grid) == pytest.approx(10.0)


def course(pair, **changes):
    stages = pair.found.to_dict()["stages"]
    verdict = judged(pair, stages=[*stages[:-1], {**stages[-1], **changes}])
    return next(check for check in verdict.checks if check.name == "Course")


def test_settled_is_said_only_of_what_has_settled():
    pair = registered()
    assert course(pair).value == "the cost had nearly stopped falling", "it ran to its limits"
    assert course(pair, levels=[[1.0, "no step lowered the cost"]]).value == "the cost had settled"
    few = {"level": [1.0] * 3, "cost": [0.5, 0.4, 0.3], "accepted": [True] * 3}
    assert course(pair, history=few).level == "grey"
    assert "too few steps" in course(pair, history=few).value


def test_more_iterations_are_advised_for_the_stage_that_needs_them():
    falling = {"level": [1] * 20, "cost": (1 - np.linspace(0, 1, 20) ** 2).tolist(), "accepted": [True] * 20}
    assert "accurate" in course(registered(), history=falling).advice
    assert "linear.iterations" in course(registered(), name="affine", history=falling).advice


def test_problems_come_first_in_the_sentence_and_a_doubt_has_its_advice():
    verdict = judged(registered(), warnings=[f"Little alike. {ADVICE}"])
    assert verdict.sentence.startswith("the linear stage left doubts; ")
    (check,) = verdict.problems
    assert check.reason == "Little alike."
    assert "masks or an initial transform" in check.advice


def test_a_warp_makes_up_for_an_affine_only_if_it_is_sound():
    good, poor = Likeness(1.0, 0.5, 0.8), Likeness(1.0, 0.1, 0.2)
    alignment = Alignment(before=poor, affine=poor, after=good, chance=poor, fresh=replace(good, information=0.3))
    for warp, level, sentence in (("green", "amber", True), ("amber", "amber", False), ("red", "red", False)):
        check = checks._affine(case_of(registered()), alignment, poor, alignment.fresh, warp)
        assert (check.level, "made up for it" in check.reason) == (level, sentence)


def test_limits_are_ordered_and_say_where_they_come_from():
    for name, limit in LIMITS.items():
        assert limit.reason, name
        assert grade(limit.amber, name, low_is_bad=limit.red < limit.amber) == "green"
    assert grade(0.01, "folded") == "red"
    assert Verdict(()).level == "green"
