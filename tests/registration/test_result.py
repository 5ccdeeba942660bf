"""A Registration in use: points of any dimension, time that adds up, and Ctrl-C at every moment of a run."""

from dataclasses import replace

import numpy as np
import pytest

import warpfactor as wf
from small import QUICK, image, pair
from warpfactor.registration import run as api
from warpfactor.stages import stage as stages
from warpfactor.stages.linear import stage as linear


@pytest.fixture(scope="module")
def images():
    made = pair()
    return image(made.fixed, name="fixed"), image(made.moving, name="moving")


@pytest.fixture(scope="module")
def flat():
    made = pair((1, 32, 36))
    return wf.register(made.fixed[0].numpy(), made.moving[0].numpy(), overrides=QUICK)


class Once:
    """A function that is interrupted when it is called for the first time."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *arguments, **options):
        self.calls += 1
        if self.calls == 1:
            raise KeyboardInterrupt
        return self.function(*arguments, **options)


def run(images, monkeypatch, module, name, *, keep=True):
    once = Once(getattr(module, name))
    monkeypatch.setattr(module, name, once)
    found = wf.register(*images, overrides=QUICK, keep_interrupted=keep)
    assert once.calls
    return found


def test_points_of_slices_have_two_columns_or_three(flat):
    points = np.array([[10.0, 12.0], [20.5, 14.0]])
    there = flat.apply_points(points, to="moving")
    assert there.shape == (2, 2)
    deep = flat.apply_points(np.c_[points, np.zeros(2)], to="moving")
    assert deep.shape == (2, 3)
    assert np.array_equal(deep[:, :2], there)
    assert np.abs(flat.apply_points(there) - points).max() < 0.1
    assert flat.apply_points([10.0, 12.0], to="moving").shape == (1, 2)


def test_points_of_volumes_have_three_columns(images):
    found = wf.register(*images, recipe="rigid", overrides={k: v for k, v in QUICK.items() if k.startswith("linear")})
    with pytest.raises(wf.InputError, match="rows of 3 numbers"):
        found.apply_points([[1.0, 2.0]])


def test_costs_are_told_without_a_negative_zero(flat):
    stage = replace(flat.history[0], cost_before=float("inf"), cost_after=-1e-9)
    assert stage.change(2) == "no overlap -> 0.00"
    assert "-0.0" not in repr(replace(flat, history=(stage,)))


def test_time_of_another_part_is_added_to_the_total(flat):
    more = flat.with_seconds("write", 2.0).with_seconds("write", 1.0)
    assert more.run.seconds["write"] == 3.0
    assert more.run.seconds["total"] == pytest.approx(flat.run.seconds["total"] + 3.0)
    assert list(more.run.seconds)[-1] == "total"
    assert "write" not in flat.run.seconds


def test_entries_of_a_part_are_added_to_it(flat, tmp_path):
    flat.save(tmp_path / "out", extra={"files": {"more": "x.txt"}, "note": {"a": 1}})
    entries = wf.read_result(tmp_path / "out").entries
    assert entries["files"]["more"] == "x.txt"
    assert entries["files"]["warped_moving_on_fixed_grid"] == "warped.nii.gz"
    assert entries["note"] == {"a": 1}
    assert entries["seconds"]["write"] > 0


@pytest.mark.parametrize(("module", "name"), [(stages, "_deformable_cost"), (api, "run_deformable")])
def test_ctrl_c_before_the_first_step_of_the_warp_keeps_the_affine(images, monkeypatch, module, name):
    found = run(images, monkeypatch, module, name)
    assert found.interrupted
    assert found.status.startswith("Interrupted")
    assert [stage.name for stage in found.history] == ["affine"]
    assert found.warp is None
    assert not np.array_equal(found.affine.matrix, np.eye(4))


def test_ctrl_c_after_the_last_step_keeps_the_warp(images, monkeypatch):
    monkeypatch.setattr(stages, "insist", lambda job, *, keep: (job(), True))
    found = wf.register(*images, overrides=QUICK, keep_interrupted=True)
    assert found.interrupted
    assert found.status == found.history[-1].status
    assert found.status.startswith("Interrupted")
    assert found.warp is not None
    assert found.history[-1].cost_after < found.history[-1].cost_before


@pytest.mark.parametrize("name", ["measure", "Warp"])
def test_ctrl_c_during_inverse_and_figures_keeps_the_whole_result(images, monkeypatch, name):
    found = run(images, monkeypatch, api, name)
    assert found.interrupted
    assert found.status.startswith("Interrupted")
    assert found.warp is not None
    assert found.inverse_warp is not None
    assert found.figures.warp is not None


def test_ctrl_c_between_the_stages_keeps_the_affine(images, monkeypatch):
    found = run(images, monkeypatch, api, "foreground")
    assert found.interrupted
    assert found.status.startswith("Interrupted")
    assert found.warp is None
    assert [stage.name for stage in found.history] == ["affine"]


def test_ctrl_c_at_the_end_of_the_linear_stage_keeps_it(images, monkeypatch):
    class Interrupted(linear.Overlap):
        left = 1

        def share(self, matrix):
            if Interrupted.left and self.ready:
                Interrupted.left = 0
                raise KeyboardInterrupt
            return super().share(matrix)

        ready = False

    descend = linear._descend

    def armed(*arguments):
        found = descend(*arguments)
        Interrupted.ready = True
        return found

    monkeypatch.setattr(linear, "Overlap", Interrupted)
    monkeypatch.setattr(linear, "_descend", armed)
    found = wf.register(*images, overrides=QUICK, keep_interrupted=True)
    assert Interrupted.left == 0
    assert found.interrupted
    assert [stage.name for stage in found.history] == ["affine"]
    assert np.isfinite(found.history[0].cost_after)


@pytest.mark.parametrize("name", ["measure", "foreground", "run_deformable"])
def test_ctrl_c_ends_the_run_if_nothing_is_to_be_kept(images, monkeypatch, name):
    with pytest.raises(KeyboardInterrupt):
        run(images, monkeypatch, api, name, keep=False)


def test_a_second_ctrl_c_ends_the_run(images, monkeypatch):
    def always(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "measure", always)
    with pytest.raises(KeyboardInterrupt):
        wf.register(*images, overrides=QUICK, keep_interrupted=True)
