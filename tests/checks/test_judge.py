"""The checks of a result one by one: their limits, their facts, and what they advise."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import warpfactor as wf
from pages import FLAT, registered, with_images
from warpfactor.checks import judge as checks
from warpfactor.checks.alignment import GIVEN, find_notices
from warpfactor.checks.coarse import ObjectMask
from warpfactor.checks.examine import examine
from warpfactor.checks.limits import LIMITS, grade
from warpfactor.checks.similarity import FARTHEST, Alignment, Similarity, align, off_optimum
from warpfactor.errors import Notice
from warpfactor.registration.case import case_of_result
from warpfactor.show.verdict import Verdict, WordedCheck
from warpfactor.show.wording import sentence

POOR = {"stage": "affine", "metric": "lncc", "cost": 0.7, "rotation_degrees": None}
NOTICES = [{"code": "poor_alignment", "facts": POOR}]


def case_of(pair, *, mask=None, **entries):
    return case_of_result(with_images(pair.found, fixed_mask=mask), entries)


def judged(pair, **entries):
    return Verdict.of(checks.judge(case_of(pair, **entries), None, None, object_mm=100.0))


def test_convergence_and_scores_count():
    pair = registered()
    stages = pair.found.to_dict()["stages"]
    left_out = [*stages[:-1], {**stages[-1], "kept": False, "cost_before": 0.3}]
    count = len(stages[-1]["history"]["cost"])
    faster = {"level": [1] * count, "cost": (1 - np.linspace(0, 1, count) ** 2).tolist(), "accepted": [True] * count}
    falling = [*stages[:-1], {**stages[-1], "history": faster}]
    for entries, name, level in (
        ({"interrupted": True}, "convergence", "red"),
        ({"stages": left_out}, "convergence", "amber"),
        ({"stages": falling}, "convergence", "amber"),
        ({"notices": NOTICES}, "linear_stage", "amber"),
        ({"notices": [{"code": "missing_part", "facts": {"side": "fixed", "share": 0.1}}]}, "notice", "amber"),
        ({"labels": {"dice_mean_before": 0.6, "dice_mean_after": 0.3}}, "labels", "red"),
        ({"labels": {"dice_mean_before": 0.6, "dice_mean_after": 0.58}}, "labels", "amber"),
        ({"landmarks": distances(2.0, 5.0)}, "landmarks", "red"),
        ({"figures": {"affine_volume_ratio_moving_to_fixed": -1.0}}, "scale", "red"),
        ({"figures": {"affine_volume_ratio_moving_to_fixed": 0.4}}, "scale", "amber"),
    ):
        verdict = judged(pair, **entries)
        (check,) = [c for c in verdict.checks if c.code == name]
        assert check.level == level == verdict.level
        assert check.reason and check.advice, "what is not green says why, and what to do"
    assert judged(pair).level == "green"


def test_a_warp_between_images_that_agree_may_be_left_out():
    check = convergence(registered(), kept=False, cost_before=1e-8)
    assert (check.level, "aligned before the warp" in check.value) == ("green", True)


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
    assert (check.code, check.level) == ("labels", level)
    assert reason in check.reason
    assert bool(check.reason) == bool(check.advice) == (level != "green")


@pytest.mark.parametrize(
    ("before", "after", "level"),
    [(35.0, 1.4, "green"), (35.0, 3.0, "green"), (35.0, 12.0, "amber"), (90.0, 30.0, "red"), (2.0, 2.2, "amber")],
)
def test_landmarks_that_stay_far_apart_are_not_green(before, after, level):
    check = judged(registered(), landmarks=distances(before, after)).checks[-1]
    assert (check.code, check.level) == ("landmarks", level), "the object counts as 160 mm: 80 voxels of 2 mm"


@pytest.mark.parametrize(("further", "level"), [(2, "green"), (5, "amber"), (30, "red")])
def test_landmarks_that_get_worse_are_counted(further, level):
    """The mean may fall while some go the wrong way."""
    landmarks = {**distances(15.0, 3.0), "further": further, "count": 52}
    landmarks["after_mm"]["max"] = 6.0
    check = judged(registered(), landmarks=landmarks).checks[-1]
    assert (check.code, check.level) == ("landmarks", level)
    assert "6.0 mm at most" in check.value
    assert (f"{further} of 52" in check.reason) == (level != "green")


@pytest.mark.parametrize(("ratio", "level"), [(1.2, "green"), (1.5, "amber"), (1 / 1.5, "amber"), (1.84, "red")])
def test_a_change_of_size_counts_more_if_the_images_are_not_similar(ratio, level):
    figures = {"affine_volume_ratio_moving_to_fixed": ratio}
    doubtful = {c.code: c for c in judged(registered(), figures=figures, notices=NOTICES).checks}
    assert doubtful["scale"].level == level
    assert ("has a skull" in doubtful["scale"].advice) == (level != "green")
    assert judged(registered(), figures=figures).level == ("amber" if level == "red" else "green")


def low(case):
    """The words of checks of a case that are not green, by code."""
    options = checks._options(case)
    scale = {"ratio": 1.5, **options}
    similarity = {"correlation_before": None, "correlation_after": 0.1, "over_chance": 1.0, "problems": ["chance"]}
    found = (
        checks.Check("linear_stage", "amber", "poor", {"notice": NOTICES[0], **options}),
        checks.Check("similarity", "red", "measured", {**similarity, **options}),
        checks.Check("overlap", "red", "measured", {"coverage": 0.1, **options}),
        checks.Check("scale", "red", "dissimilar", scale),
        checks.Check("affine", "red", "wrong", {"better": "search", "compensated": False, **options}),
    )
    return {check.code: WordedCheck.of(check).advice for check in found}


def test_nothing_is_advised_that_was_given():
    pair = registered()
    mask = wf.Image((pair.fixed_labels.data > 0).to(torch.uint8), pair.fixed.grid, "mask")
    stages = pair.found.to_dict()["stages"]
    given = [{**stages[0], "start": GIVEN}, *stages[1:]]
    for case, masks, initial in (
        (case_of(pair), True, "a rough initial transform"),
        (case_of(pair, mask=mask), False, "a rough initial transform"),
        (case_of(pair, inputs={"moving_mask": {}}), False, "a rough initial transform"),
        (case_of(pair, stages=given), True, "without an initial transform"),
    ):
        advice = low(case)
        assert initial in advice.pop("affine")
        assert all(("mask" in text) == masks for text in advice.values())
    assert "skull" in low(case_of(pair))["linear_stage"]
    assert "skull" not in low(case_of(registered(FLAT)))["linear_stage"]
    assert "multimodal" not in low(case_of(registered((40, 44, 40), "t2", "multimodal")))["similarity"]


def test_an_affine_without_linear_stages_was_given():
    pair = registered()
    case = case_of(pair, stages=pair.found.to_dict()["stages"][1:])
    assert checks.initial_given(case)
    assert not checks.initial_given(replace(case, affine=wf.Affine()))


def test_a_second_search_is_made_only_where_the_linear_stage_leaves_a_doubt():
    """The stage tried every start by itself, its affine is in place, and the images are far beyond chance."""
    pair = registered()
    case = case_of(pair)
    assert align(case, case.ops).fresh is None
    stages = pair.found.to_dict()["stages"]
    given = replace(case, entries={**case.entries, "stages": [{**stages[0], "start": GIVEN}, *stages[1:]]})
    few = replace(
        case, entries={**case.entries, "stages": [{**stages[0], "start_costs": {"identity": 1}}, *stages[1:]]}
    )
    moved = pair.found.affine.matrix.copy()
    moved[0, 3] += 1.0
    other = replace(case, affine=wf.Affine(moved, "fixed", "moving"))
    for doubtful in (given, few, other):
        assert align(doubtful, case.ops).fresh is not None


def test_the_size_of_an_object_is_that_of_its_box():
    mask = np.zeros((1, 4, 5), dtype=bool)
    mask[0, 1:4, 0:4] = True
    grid = wf.Grid.from_spacing((4, 5), 2.0)
    assert ObjectMask(grid.shape, mask).size_mm(grid) == pytest.approx(10.0)


def convergence(pair, **changes):
    stages = pair.found.to_dict()["stages"]
    verdict = judged(pair, stages=[*stages[:-1], {**stages[-1], **changes}])
    return next(check for check in verdict.checks if check.code == "convergence")


def test_settled_is_said_only_of_what_has_settled():
    pair = registered(recipe="lung")
    assert convergence(pair).value == "the cost had nearly stopped falling", "it ran to its limits"
    assert convergence(pair, levels=[[1.0, "stalled"]], ending="stalled").value == "the cost had settled"
    few = {"level": [1.0] * 3, "cost": [0.5, 0.4, 0.3], "accepted": [True] * 3}
    assert convergence(pair, history=few).level == "grey"
    assert "too few steps" in convergence(pair, history=few).value


def test_a_plain_start_that_is_used_instead_is_said_and_doubted_without_evidence():
    changes = {"name": "affine", "metric": "mi", "kept": False, "ending": "worse", "history": {}}
    weak, strong = (convergence(registered(), **changes, evidence=each) for each in (5.0, 20.0))
    assert (weak.level, strong.level) == ("amber", "green")
    assert all("nothing better than its initialisation" in check.value for check in (weak, strong))


def test_more_iterations_are_advised_for_the_stage_that_needs_them():
    falling = {"level": [1] * 20, "cost": (1 - np.linspace(0, 1, 20) ** 2).tolist(), "accepted": [True] * 20}
    assert "accurate" in convergence(registered(), history=falling).advice
    assert "linear.iterations" in convergence(registered(), name="affine", history=falling).advice


def test_problems_come_first_in_the_sentence():
    verdict = judged(registered(), notices=NOTICES)
    assert verdict.sentence.startswith("the images are not very similar after the linear stage; ")
    (check,) = verdict.problems
    assert check.reason.startswith("After the affine stage the images are not very similar (LNCC cost 0.70;")
    assert "masks or an initial transform" in check.advice


def test_a_warp_compensates_for_an_affine_only_if_it_is_sound():
    good, poor = Similarity(1.0, 0.5, 0.8), Similarity(1.0, 0.1, 0.2)
    alignment = Alignment(before=poor, affine=poor, after=good, chance=poor, fresh=replace(good, information=0.3))
    for warp, level, compensated in (("green", "amber", True), ("amber", "amber", False), ("red", "red", False)):
        check = checks._affine(case_of(registered()), alignment, poor, warp)
        assert (check.level, check.facts["compensated"]) == (level, compensated)
        assert ("compensated for it" in WordedCheck.of(check).reason) == compensated


def similarity_of(pair, **changes):
    """The check of similarity of a result that stands out, with some of its figures changed."""
    good, wrong = Similarity(1.0, 0.5, 0.8), Similarity(1.0, 0.1, 0.2)
    parts = ((0.8, 0.2),) * 8
    figures = {"before": wrong, "affine": Similarity(1.0, 0.4, 0.7), "after": good, "chance": wrong, "near": wrong}
    alignment = Alignment(**{**figures, "parts": parts, **changes})
    return checks._similarity(case_of(pair), alignment), alignment


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"off": 1.5}, "near"),
        ({"chance": Similarity(1.0, 0.4, 0.6)}, "chance"),
        ({"parts": ((0.8, 0.2), (0.2, 0.21))}, "part"),
        ({"affine": Similarity(1.0, 0.5, 0.8)}, "warp"),
        ({"affine": Similarity(1.0, 0.6, 0.9)}, "warp"),
        ({"before": Similarity(1.0, 0.6, 0.8)}, "less"),
    ],
)
def test_a_result_must_stand_out_from_wrong_ones(changes, problem):
    check, _ = similarity_of(registered(), **changes)
    assert check.level != "green"
    assert check.facts["problems"] == [problem]
    assert WordedCheck.of(check).reason


@pytest.mark.parametrize(
    ("back", "ahead", "off"),
    [
        (0.5, 0.5, 0.0),  # an optimum
        (0.5, 1.005, 0.0),  # hardly more similar
        (0.5, 1.2, 0.86),  # (ln 1.2 - ln 0.5) / 2 / (ln 2 - ln 1.2)
        (1.2, 0.5, 0.86),
        (0.8, 1.5, FARTHEST),  # more and more similar
        (1.2, 1.1, FARTHEST),  # least similar where it is
    ],
)
def test_where_the_images_are_most_similar_along_a_motion(back, ahead, off):
    assert off_optimum(back, ahead) == pytest.approx(off, abs=0.01)


@pytest.mark.parametrize(("shift_vox", "off"), [(0, 0.0), (6, 1.25)])
def test_a_result_that_is_off_has_its_optimum_elsewhere(shift_vox, off):
    """By a tenth of the object here."""
    pair = registered()
    move = np.eye(4)
    move[0, 3] = shift_vox * pair.found.fixed_grid.spacing_mm[2]
    case = replace(case_of(pair), affine=wf.Affine(move @ pair.found.affine.matrix))
    assert (align(case, case.ops).off > 1.25) == (off > 0)


def test_a_warp_that_was_lost_is_not_green():
    """The cost of the stage fell, if only a little, and the warp is zero."""
    pair = registered()
    stages = pair.found.to_dict()["stages"]
    stages[-1] = {**stages[-1], "cost_before": 0.40, "cost_after": 0.38}
    case = case_of(pair, stages=stages)
    zero = wf.Warp(0 * case.warp.displacement, case.fixed_grid)
    _, alignment = similarity_of(pair, affine=Similarity(1.0, 0.5, 0.8))
    for each, level in ((case, "green"), (replace(case, warp=zero), "amber")):
        check = checks._similarity(each, alignment)
        assert (check.level, check.facts["problems"]) == (level, [] if level == "green" else ["warp"])


def test_a_part_of_which_the_moving_image_shows_nothing_is_not_judged():
    """Half of the moving image is background: what it has is aligned."""
    pair = registered()
    whole = case_of(pair)
    data = whole.moving.data.clone()
    data[..., : data.shape[-1] // 2] = data.min()
    empty = replace(whole, moving=wf.Image(data, whole.moving.grid))
    assert 0 < len(align(empty, empty.ops).parts) < len(align(whole, whole.ops).parts)


def test_a_mirrored_image_must_fit_better_by_every_measure():
    """The cost of local correlation may prefer it across contrasts, as in this phantom, where it gains a seventh."""
    made = wf.phantom.phantom((36, 42, 36), contrast="t2", seed=4, displacement_vox=3.0, noise=0.03)
    grid = wf.Grid.from_spacing((36, 42, 36), 2.0)
    images = [wf.Image(data[None], grid) for data in (made.fixed, made.moving)]
    case = case_of_result(wf.register(*images, threads=1), {})
    levels = {check.code: check.level for check in examine(case).checks}
    assert levels["sides"] == "green"


def test_an_unusual_affine_is_green_if_the_images_say_that_it_is_right():
    pair = registered()
    check, sure = similarity_of(pair)
    _, unsure = similarity_of(pair, near=Similarity(1.0, 0.45, 0.75))
    assert check.level == "green"
    turned = replace(pair.found, affine=wf.Affine(np.diag([-1.0, -1.0, 1.0, 1.0])))
    case = case_of_result(turned, {"figures": {"affine_volume_ratio_moving_to_fixed": 2.5}})
    for alignment, level in ((sure, "green"), (unsure, "amber"), (None, "amber")):
        found = {check.code: check.level for check in checks._warp(case, None, sure=checks.unmistakable(alignment))}
        assert found == {"rotation": level, "scale": level}


def test_little_evidence_and_a_discarded_warp_do_not_count_if_the_images_say_that_the_affine_is_right():
    pair = registered()
    _, sure = similarity_of(pair)
    _, unsure = similarity_of(pair, near=Similarity(1.0, 0.45, 0.75))
    stages = pair.found.to_dict()["stages"]
    left_out = [*stages[:-1], {**stages[-1], "kept": False, "cost_before": 0.3}]
    weak = {"code": "weak_evidence", "facts": {"stage": "affine", "evidence": 7.0}}
    case = case_of(pair, stages=left_out, notices=[weak])
    for alignment, wrong in ((sure, set()), (unsure, {"convergence", "notice"}), (None, {"convergence", "notice"})):
        found = checks.judge(case, alignment, None, object_mm=100.0)
        assert {check.code for check in found if check.level != "green"} - {"similarity"} == wrong


def test_a_plain_start_may_have_been_enough_if_the_images_say_that_the_result_is_right():
    pair = registered()
    _, sure = similarity_of(pair)
    _, unsure = similarity_of(pair, near=Similarity(1.0, 0.45, 0.75))
    stages = pair.found.to_dict()["stages"]
    affine = {**stages[-1], "name": "affine", "kept": False, "evidence": 3.0, "cost_before": 0.5, "cost_after": 0.5}
    case = case_of(pair, stages=[affine, stages[-1]])
    for alignment, level in ((sure, "green"), (unsure, "amber"), (None, "amber")):
        (found,) = [c for c in checks.judge(case, alignment, None, object_mm=100.0) if c.code == "convergence"]
        assert found.level == level
        assert (found.finding == "start_used") == (level == "amber")


@pytest.mark.parametrize(
    ("most", "median", "level"),
    [
        (6.0, 1.5, "green"),  # large among small ones, and small
        (11.0, 6.0, "green"),  # large among large ones
        (13.0, 1.5, "amber"),  # 13 mm of 160 mm, nine times the median
    ],
)
def test_a_single_landmark_is_judged_by_its_size_and_by_the_others(most, median, level):
    landmarks = {**distances(15.0, 2.0), "further": 0, "count": 30}
    landmarks["after_mm"] |= {"max": most, "median": median}
    check = judged(registered(), landmarks=landmarks).checks[-1]
    assert (check.code, check.level) == ("landmarks", level)


def test_a_high_cost_of_the_affine_does_not_count_across_contrasts_if_the_images_say_that_the_result_is_right():
    """Without a metric for different contrasts it counts: one may be better."""
    pair = registered()
    _, sure = similarity_of(pair)
    _, unsure = similarity_of(pair, near=Similarity(1.0, 0.45, 0.75))
    stages = pair.found.to_dict()["stages"]
    for metric, alignment, counts in (
        ("mixed", sure, False),
        ("lncc", sure, True),
        ("mixed", unsure, True),
        ("mixed", None, True),
    ):
        case = case_of(pair, notices=NOTICES, stages=[*stages[:-1], {**stages[-1], "metric": metric}])
        found = checks.judge(case, alignment, None, object_mm=100.0)
        assert ("linear_stage" in {check.code for check in found}) == counts


def test_landmarks_that_lead_a_warp_do_not_promise_more_similar_images():
    """The cost falls by the landmarks, too; without them the same fall must be seen in the images."""
    pair = registered()
    _, alignment = similarity_of(pair, affine=Similarity(1.0, 0.5, 0.799))
    stages = pair.found.to_dict()["stages"]
    for metric, level in (("mixed", "amber"), ("mixed + landmarks", "green"), ("lncc + labels", "green")):
        warp = {**stages[-1], "metric": metric, "cost_before": 0.5, "cost_after": 0.3}
        case = case_of(pair, stages=[*stages[:-1], warp])
        assert checks._similarity(case, alignment).level == level


def test_another_recipe_is_not_advised_to_who_compares_across_contrasts_already():
    """`default` may take the metrics of `multimodal` by itself, after an affine by local correlation."""
    pair = registered()
    stages = pair.found.to_dict()["stages"]
    for metric, advised in (("lncc", True), ("mixed", False), ("mind + landmarks", False)):
        after = [*stages[:-1], {**stages[-1], "metric": metric}]
        assert ("multimodal" in low(case_of(pair, stages=after))["linear_stage"]) == advised
        poor = [{**stage, "cost_after": 0.9} for stage in after[:-1]] + after[-1:]
        (notice,) = find_notices(poor, np.eye(4), (0.0, 0.0))
        assert ("multimodal" in sentence(notice)) == advised


def test_labels_that_a_warp_does_not_improve_are_not_green():
    def level(before, after, **changes):
        case = replace(case_of(registered(), labels={"dice_mean_before": before, "dice_mean_after": after}), **changes)
        return next(check.level for check in checks._scores(case, 100.0))

    assert level(0.750, 0.749) == "amber"
    assert level(0.750, 0.800) == "green"
    assert level(0.999, 0.999) == "green", "nothing is left to gain"
    assert level(0.750, 0.749, warp=None) == "green", "an affine may be no better"


def test_an_image_that_is_not_available_is_a_check():
    notice = Notice("image_not_found", {"side": "fixed", "name": "a.nii"})
    case = replace(case_of(registered()), missing={"fixed": notice})
    verdict = Verdict.of(checks.judge(case, None, None))
    (check,) = [check for check in verdict.checks if check.code == "images"]
    assert (check.level, check.finding) == ("amber", "image_not_found")
    assert "a.nii was not found" in check.reason


def test_limits_are_ordered_and_say_where_they_come_from():
    for name, limit in LIMITS.items():
        assert limit.reason, name
        assert grade(limit.amber, name, low_is_bad=limit.red < limit.amber) == "green"
    assert grade(0.01, "folded") == "red"
    assert Verdict(()).level == "green"


def test_label_maps_are_judged_by_their_overlap():
    made = wf.phantom.phantom((30, 34, 32), displacement_vox=2.0, seed=2)
    maps = [wf.Image.from_array(part.float().numpy()) for part in (made.fixed_labels, made.moving_labels)]
    found = wf.register(*maps, recipe="fast").report().verdict.to_dict()
    checks = {check["code"]: check for check in found["checks"]}
    assert {"similarity", "affine", "linear_stage"}.isdisjoint(checks)
    assert checks["labels"]["level"] == "green"
    assert found["level"] != "red"
