"""The search of linear stages: levels follow from the image, starts all round, a judge that ignores contrast."""

import itertools
import math

import numpy as np
import pytest

from scenes import OPS, Stopper, align, scene_of
from warpfactor.bench.data.hard import HardPair, make_pair
from warpfactor.geometry.grid import Grid
from warpfactor.scene.levels import level_shape
from warpfactor.show.wording import ending_sentence
from warpfactor.stages.linear.depth import levels_for, limits_for
from warpfactor.stages.linear.judge import Judge
from warpfactor.stages.linear.stage import Levels, LinearSettings
from warpfactor.stages.linear.starts import Overlap
from warpfactor.stages.linear.wide import led_astray, wide_starts, wrong_transforms
from warpfactor.stages.stage import Ending


@pytest.mark.parametrize("width", [200, 512, 1024, 2000, 8000])
def test_the_coarsest_level_is_about_32_wide_and_the_finest_bounded(width):
    grid = Grid.from_spacing((width, width), 0.5)
    levels = levels_for(grid)
    assert all(a == 2 * b for a, b in itertools.pairwise(levels))
    assert 22 <= width / levels[0] <= 46
    assert math.prod(level_shape(grid, 0.5 * levels[-1])) <= 1 << 21
    assert levels_for(Grid.from_spacing((160, 200, 165), 1.0)) == (8, 4, 2)
    assert limits_for((16, 8, 4, 2), (50, 40, 20)) == (50, 50, 40, 20)
    assert limits_for((4, 2), (50, 40, 20)) == (40, 20)


def pair_of(case):
    fixed, moving, truth = make_pair(case)
    return scene_of(fixed, moving), truth


def test_the_judge_does_not_care_about_contrast():
    scene, truth = pair_of(HardPair("", "slice 200", 45, contrast="inverted"))
    levels = Levels.of(scene, LinearSettings().on(scene.fixed.grid), OPS)
    judge = levels.judge(OPS)
    assert judge.evidence(truth, led_astray(judge.overlap, truth, 32)) > 5
    assert all(judge.cost(truth) < judge.cost(wrong) for wrong in judge.wrong)


def test_starts_all_round_leave_no_gap():
    scene, _ = pair_of(HardPair("", "volume"))
    overlap = Overlap.of(scene)
    turns = np.stack([start.matrix[:3, :3] for start in wide_starts(overlap, sized=False)[0]])
    generator = np.random.default_rng(0)
    for _ in range(200):
        q, r = np.linalg.qr(generator.standard_normal((3, 3)))
        q = q * np.sign(np.diag(r))
        q = q * np.sign(np.linalg.det(q))
        cosine = (np.einsum("kab,ab->k", turns, q).max() - 1) / 2
        assert np.degrees(np.arccos(np.clip(cosine, -1, 1))) < 40
    assert len(wrong_transforms(overlap, 32)) >= 32


def test_a_result_no_better_than_a_plain_start_is_not_used(monkeypatch):
    scene, _ = pair_of(HardPair("", "slice 200"))

    def cost(self, matrix):
        return 0.1 if np.array_equal(matrix, np.eye(4)) else 0.5

    monkeypatch.setattr(Judge, "cost", cost)
    found = align(scene, LinearSettings(metric="auto"))
    assert not found.stage.kept
    assert np.array_equal(found.matrix, np.eye(4))
    assert (found.stage.ending, found.stage.start) == (Ending.WORSE, "identity")
    assert "no more similar than its initialisation" in ending_sentence(found.stage.ending, found.stage.name)


def runs(scene):
    """How often the search came back from a fine level to a coarse one, and the stage."""
    levels = []
    found = align(scene, LinearSettings(metric="auto"), progress=lambda event: levels.append(event.level))
    return 1 + sum(b > a for a, b in itertools.pairwise(levels)), found


def test_images_that_are_alike_without_doubt_need_one_metric():
    scene, truth = pair_of(HardPair("", "slice 200", 45))
    count, found = runs(scene)
    assert (count, found.stage.metric, found.stage.kept) == (1, "lncc", True)
    assert found.matrix == pytest.approx(truth, abs=0.5)
    assert found.stage.evidence > 11


def test_images_that_local_correlation_does_not_bring_together_need_both():
    scene, truth = pair_of(HardPair("", "slice 200", 45, contrast="inverted"))
    count, found = runs(scene)
    assert (count, found.stage.metric) == (3, "mi")  # local correlation from the near start, then both from another one
    assert found.matrix == pytest.approx(truth, abs=0.5)


def test_a_wrong_transform_never_leaves_no_doubt():
    scene, truth = pair_of(HardPair("", "volume", scale=0.6))
    levels = Levels.of(scene, LinearSettings().on(scene.fixed.grid), OPS)
    judge = levels.judge(OPS)
    assert judge.sure(truth)
    assert not any(judge.sure(wrong) for wrong in (*judge.wrong, *led_astray(judge.overlap, truth, 32)))


def test_stopping_between_two_metrics_leaves_the_first(monkeypatch):
    monkeypatch.setattr(Judge, "sure", lambda self, matrix: False)
    scene, _ = pair_of(HardPair("", "slice 200"))
    levels = []

    def second(event):
        levels.append(event.level)
        return len(levels) > 1 and levels[-1] > levels[-2]

    stopper = Stopper(second)
    found = align(scene, LinearSettings(metric="auto"), progress=stopper, stop=stopper.stop)
    assert (found.stage.ending, found.stage.metric) == (Ending.INTERRUPTED, "lncc")
    assert len(found.stage.history) < len(levels)
    assert found.stage.history[-1].level == min(levels)
