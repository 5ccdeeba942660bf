"""The deformable driver: starts, stops, interruptions, masks, channels, own losses, paper mode, unusable input."""

import functools
import itertools
import math
from dataclasses import replace

import pytest
import torch

from scenes import OPS, Stopper, scene_of, warp
from warpfactor import kernels, measure
from warpfactor.errors import InputError
from warpfactor.geometry.image import Image
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference
from warpfactor.optim import STEPS, Adam, Convergence, Demons, Paper, Trust
from warpfactor.phantom import phantom
from warpfactor.recipebook.table import RECIPES
from warpfactor.scene.levels import Level
from warpfactor.stages import level as levels
from warpfactor.stages.level import LevelSolver
from warpfactor.stages.settings import Deformable
from warpfactor.stages.stage import Ending
from warpfactor.terms import LNCC, MI, MSE, Custom

QUICK = Deformable(levels=(2, 1), iterations=(12, 6), step=1.0, damping=Trust(initial=16, floor=16))
PAPER = replace(RECIPES["paper"].deformable, levels=(2, 1), iterations=(30, 15))


@functools.cache
def truth(shape=(1, 64, 56)):
    return phantom(shape, bias=0.0, noise=0.02)


def scene(**changes):
    pair = truth()
    data = {"fixed": pair.fixed, "moving": pair.moving, **changes}
    masks = {k: Image.from_array(data.pop(k)) for k in ("fixed_mask", "moving_mask") if k in data}
    return scene_of(Image.from_array(data["fixed"]), Image.from_array(data["moving"]), **masks)


def run(settings=QUICK, a_scene=None, **options):
    return warp(a_scene or scene(), settings, **options)


def error(result):
    return measure.displacement_error(result.displacement, truth().displacement, truth().mask).mean


def apart(one, two):
    """Mean distance of two warps inside the object, in voxels."""
    return measure.displacement_error(one, two, truth().mask).mean


def test_history_has_a_record_per_iteration_and_the_cost_falls():
    result = run()
    assert [r.iteration for r in result.records if r.level == 1 and r.accepted] == list(range(6))
    costs = [r.cost for r in result.records if r.level == 2 and r.accepted]
    assert costs[-1] < 0.8 * costs[0]
    assert all(b.seconds >= a.seconds for a, b in zip(result.records, result.records[1:], strict=False))
    assert all(0 < r.step_vox <= 1.0 for r in result.records if r.accepted)
    assert result.stage.ending is Ending.LIMIT


def test_warm_start_begins_where_the_last_run_ended():
    first = run()
    again = run(replace(QUICK, levels=(1,), iterations=(1,)), start=first.displacement)
    alone = run(replace(QUICK, levels=(1,), iterations=(1,)))
    assert again.records[0].cost < 0.7 * alone.records[0].cost
    nothing = run(replace(QUICK, levels=(4, 2, 1), iterations=(0, 0, 0)), start=first.displacement)
    assert torch.allclose(nothing.displacement, first.displacement, atol=1e-5)


def test_affine_is_part_of_the_map_and_not_of_the_warp():
    pair = truth()
    shifted = Image.from_array(torch.roll(pair.moving, 4, dims=2))
    affine = [[1, 0, 0, 4.0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    result = warp(scene_of(Image.from_array(pair.fixed), shifted), QUICK, affine=affine)
    assert apart(result.displacement, run().displacement) < 0.1


def test_level_stops_early_when_the_cost_flattens():
    settings = replace(QUICK, iterations=(400, 6), convergence=Convergence(tolerance=0.01, window=6))
    result = run(settings)
    assert len([r for r in result.records if r.level == 2]) < 200
    assert result.stage.levels[0] == (2, Ending.CONVERGED)


@pytest.mark.parametrize("damping", [Trust(initial=16, floor=16), Paper(initial=16, relative=True)])
def test_stopping_returns_the_best_warp_so_far(damping):
    stopper = Stopper(lambda event: event.level == 1 and event.iteration == 2)
    settings = replace(QUICK, damping=damping)
    result = run(settings, progress=stopper, stop=stopper.stop)
    assert result.stage.ending is Ending.INTERRUPTED
    assert max(r.iteration for r in result.records if r.level == 1) == 2
    assert error(result) < 0.8 * error(run(replace(settings, iterations=(0, 0))))


def test_masked_voxels_do_not_matter():
    pair = truth()
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones_like(pair.fixed)
    mask[:, :20, :20] = 0
    noise = 50 * torch.rand(pair.fixed.shape, generator=generator)
    spoiled = torch.where(mask > 0, pair.fixed, noise)
    spoiled_moving = torch.where(mask > 0, pair.moving, noise)
    clean = run(a_scene=scene(fixed_mask=mask, moving_mask=mask))
    dirty = run(a_scene=scene(fixed=spoiled, moving=spoiled_moving, fixed_mask=mask, moving_mask=mask))
    assert torch.equal(clean.displacement, dirty.displacement)


def test_not_a_number_is_masked_and_counted():
    pair = truth()
    spoiled = pair.fixed.clone()
    spoiled[:, 10:14, 10:14] = math.nan
    spoiled[:, 30, 30] = math.inf
    bad = scene(fixed=spoiled)
    assert (bad.fixed.nonfinite, bad.moving.nonfinite) == (17, 0)
    result = run(a_scene=bad)
    assert torch.isfinite(result.displacement).all()
    assert error(result) < 1.3 * error(run())


def test_channels_are_weighted():
    pair = truth()
    useless = torch.rand(pair.fixed.shape, generator=torch.Generator().manual_seed(2))
    grid = Image.from_array(pair.fixed).grid
    two = scene_of(
        Image.from_array(torch.stack([pair.fixed, useless]), grid=grid),
        Image.from_array(torch.stack([pair.moving, useless.flip(2)]), grid=grid),
    )
    only_first = run(replace(QUICK, channel_weights=(1.0, 0.0)), two)
    assert torch.allclose(only_first.displacement, run().displacement, atol=1e-3)
    assert error(run(replace(QUICK, channel_weights=(0.5, 0.5)), two)) > error(only_first)


def test_own_loss_gives_the_built_in_result():
    """Mean squared difference by autograd against the kernel's analytic gradient."""
    own = Custom(lambda warped, fixed: (warped - fixed).square().mean())
    settings = replace(QUICK, levels=(1,), iterations=(5,), damping=Paper(initial=16, relative=True))
    pair = truth()
    # One scale for both images, so that standardising them apart makes no difference.
    same = scene_of(Image.from_array(pair.fixed), Image.from_array(pair.fixed.flip(2)))
    found = run(replace(settings, metric=own), same).displacement
    expected = run(replace(settings, metric=MSE()), same).displacement
    assert expected.abs().max() > 0.5
    assert torch.allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("loss", [lambda w, f: w - f, lambda w, f: torch.tensor(1.0)])
def test_own_loss_that_cannot_be_minimised_is_refused(loss):
    with pytest.raises(InputError, match="custom loss"):
        run(replace(QUICK, metric=Custom(loss)))


def test_paper_mode_takes_the_papers_step():
    """One iteration against the paper's formulas in float64.

    Gradient of the sum of LNCC in coordinates from -1 to 1 without the neighbourhood term, smoothed, -r g / (|g|² + λ),
    divided by its largest vector if that is above one, times half a voxel of the longest axis times 0.75.
    """
    images = scene()
    fixed, moving = images.fixed.data[0].double(), images.moving.data[0].double()
    zero = torch.zeros(3, *fixed.shape, dtype=torch.float64)
    matrix = torch.eye(4, dtype=torch.float64)[:3]
    g = torch.empty_like(zero)
    options = {"radius": (0, 3, 3), "exact": False, "flat": (1e-5, 1e-5)}
    total, count = reference.lncc(fixed, moving, zero, matrix, gradient=g, **options)
    half = torch.tensor([(n - 1) / 2 for n in fixed.shape], dtype=torch.float64).reshape(3, 1, 1, 1)
    g = reference.smooth_gaussian(g, (0.0, 1.0, 1.0), boundary="zero", truncate=2.0) * half
    step = -(total / count) * g / (g.square().sum(0) + 0.01)
    step /= max(1.0, float(step.norm(dim=0).max()))
    expected = step * 0.75 / (max(fixed.shape) - 1) * half
    expected = reference.smooth_gaussian(expected, (0.0, 0.5, 0.5), boundary="zero", truncate=2.0)
    found = run(replace(PAPER, levels=(1,), iterations=(1,)))
    assert torch.allclose(found.displacement.double(), expected, atol=2e-4)  # rounding of float32 windows
    assert expected.abs().max() > 0.05


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_steps_without_damping_reject_nothing(name):
    records = run(replace(QUICK, optimizer=STEPS[name](), step=0.25)).records
    assert all(r.accepted for r in records)
    assert {r.damping for r in records} == {16.0}


def test_paper_mode_registers():
    result = run(PAPER)
    assert error(result) < 0.5 * error(run(replace(PAPER, iterations=(0, 0))))
    assert float(cpu.jacobian_determinant(result.displacement).min()) > 0


def test_a_rising_cost_is_called_that():
    assert run(replace(PAPER, iterations=(200, 100))).stage.ending is Ending.ROSE


def test_stopping_before_a_level_keeps_the_warp_of_the_last():
    stopper = Stopper(lambda event: event.level == 2 and event.iteration == 11)
    result = run(progress=stopper, stop=stopper.stop)
    assert result.stage.ending is Ending.INTERRUPTED
    assert {r.level for r in result.records} == {2}
    assert error(result) < 1.0


@pytest.mark.parametrize("name", ["pointwise", "root"])
def test_own_loss_may_be_negative(name):
    own = Custom(lambda warped, fixed: (warped - fixed).square().mean() - 10)
    settings = replace(QUICK, metric=own, optimizer=STEPS[name](), damping=Paper(initial=16, relative=True))
    result = run(settings)
    coarse = [r.cost for r in result.records if r.level == 2]
    assert coarse[-1] < coarse[0]


def test_own_loss_without_a_gradient_is_named():
    same = Image.from_array(truth().fixed)
    own = Custom(lambda warped, fixed: (warped - fixed).square().sum().sqrt())
    with pytest.raises(InputError, match="gradient"):
        run(replace(QUICK, metric=own), scene_of(same, same))


@pytest.mark.parametrize("value", [1e3, 1e6])
@pytest.mark.parametrize("metric", [LNCC(5), MI(), MSE()])
def test_one_bright_voxel_does_not_matter(metric, value):
    spoiled = truth().fixed.clone()
    spoiled[0, 1, 1] = value
    settings = replace(QUICK, metric=metric)
    assert error(run(settings, scene(fixed=spoiled))) < 1.1 * error(run(settings)) + 0.02


@pytest.mark.parametrize("scale", [1e25, 1e-24])
def test_extreme_units_do_not_matter(scale):
    pair = truth()
    result = run(a_scene=scene(fixed=pair.fixed * scale, moving=pair.moving * scale))
    assert apart(result.displacement, run().displacement) < 1e-2


def test_demons_step_is_the_same_in_millimetres():
    """Spacing five times as large along one axis: the force there in voxels is w² r n / (w² n² + α² r²)."""
    fixed, moving, field = torch.zeros(6, 6, 6), torch.zeros(6, 6, 6), torch.zeros(3, 6, 6, 6)
    moving += torch.arange(6.0).reshape(6, 1, 1)
    fixed += moving + 0.1
    weights = (0.2, 1.0, 1.0)
    matrix = torch.eye(4, dtype=torch.float64)[:3].contiguous()
    for ops in (cpu, reference):
        force = torch.empty_like(field)
        ops.mse(fixed, moving, field, matrix, gradient=force, demons=1.0, lengths=weights)
        ops.descend(force, form="plain", damping=0.0, weights=weights)
        assert force[0, 2, 2, 2] == pytest.approx(0.04 * 0.1 / (0.04 + 0.01), rel=1e-4)


def test_paper_rejection_restores_the_warp_and_raises_damping():
    settings = replace(PAPER, damping=Paper(increase=4.0, tolerance=0.0, cap=1.0), step=2.0, iterations=(30, 0))
    records = run(settings).records
    rejected = [i for i, r in enumerate(records[:-1]) if not r.accepted]
    assert rejected
    for i in rejected:
        after = records[i + 1]
        assert after.accepted == (after.step_vox > 0)
        if after.accepted:  # the restored warp, whose cost is the one accepted before
            kept = [r.cost for r in records[:i] if r.accepted][-1]
            assert after.cost == pytest.approx(kept, rel=1e-6)
    assert max(r.damping for r in records) <= 1.0


def test_rejection_that_rejects_nothing_changes_nothing():
    """λ goes from level to level as it does without rejection, to the bit."""
    with_it, without = (run(replace(PAPER, damping=Paper(tolerance=t))) for t in (1e9, None))
    assert torch.equal(with_it.displacement, without.displacement)
    assert with_it.records[-1].damping == without.records[-1].damping


def test_a_last_step_that_is_rejected_is_recorded():
    damping = Paper(increase=4.0, tolerance=0.0, cap=1.0)
    for limit in range(5, 25):
        records = run(replace(PAPER, damping=damping, step=2.0, levels=(1,), iterations=(limit,))).records
        if records[-1].iteration == limit:
            assert not records[-1].accepted
            return
    raise AssertionError("no run ended with a rejected step")


def test_lm_allocates_one_field_besides_the_warp_and_rejection_one_more(monkeypatch):
    made = []
    for place, name in ((torch, "empty_like"), (levels, "field_like")):
        real = getattr(place, name)
        watched = lambda t, real=real, **k: made.append(tuple(t.shape)) or real(t, **k)  # noqa: E731
        monkeypatch.setattr(place, name, watched)
    a_scene = scene()
    for damping, fields in ((Paper(), 1), (Paper(tolerance=1.0), 2)):
        made.clear()
        run(replace(PAPER, damping=damping, levels=(1,), iterations=(3,)), a_scene)
        assert made.count((3, 1, 64, 56)) == fields


def test_levels_too_coarse_for_a_small_image_are_left_out():
    result = run(replace(QUICK, levels=(16, 8, 1), iterations=(5, 5, 5)))
    assert result.stage.levels[0] == (16, Ending.SKIPPED)
    assert {r.level for r in result.records} == {8, 1}


def test_image_smaller_than_the_window_works():
    pair = phantom((1, 16, 16), bias=0.0)
    small = scene_of(Image.from_array(pair.fixed), Image.from_array(pair.moving))
    result = run(replace(QUICK, metric=LNCC(31), levels=(1,), iterations=(5,)), small)
    assert result.records[-1].cost < result.records[0].cost


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float64, torch.bool])
def test_other_number_types_are_taken(dtype):
    pair = truth()
    fixed, moving = (Image.from_array((200 * x.clamp(0, 1)).to(dtype)) for x in (pair.fixed, pair.moving))
    assert fixed.data.dtype == torch.float32
    scene_of(fixed, moving)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fixed": torch.full((1, 64, 56), 3.0)}, "constant"),
        ({"fixed_mask": torch.zeros(1, 64, 56)}, "there is no voxel"),
        ({"fixed": torch.full((1, 64, 56), math.nan)}, "there is no voxel"),
        ({"moving": torch.rand(4, 20, 20)}, "one slice"),
        ({"moving": torch.rand(1, 2, 30)}, "at least 4"),
        ({"fixed": torch.rand(9, 9, 9), "moving": torch.rand(3, 20, 20)}, "at least 4 along every axis"),
        ({"fixed": torch.rand(20, 20, 1), "moving": torch.rand(20, 20, 1)}, "a slice must lie in x and y"),
        ({"fixed_mask": torch.ones(1, 64, 50)}, "does not lie on the grid"),
    ],
)
def test_images_that_cannot_be_registered_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        scene(**changes)


def test_different_numbers_of_channels_are_refused():
    pair = truth()
    grid = Image.from_array(pair.fixed).grid
    two = Image.from_array(torch.stack([pair.fixed, pair.fixed]), grid=grid)
    with pytest.raises(InputError, match="channels"):
        scene_of(two, Image.from_array(pair.moving))


def test_images_without_overlap_are_refused():
    far = [[1, 0, 0, 1000.0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    with pytest.raises(InputError, match="do not overlap"):
        run(affine=far)


@pytest.mark.parametrize("start", [torch.zeros(3, 1, 5, 5), torch.full((3, 1, 64, 56), math.nan)])
def test_bad_start_is_refused(start):
    with pytest.raises(InputError, match="initial displacement"):
        run(start=start)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Deformable(levels=(1, 2), iterations=(5, 5)),
        lambda: Deformable(levels=(4, 2, 1), iterations=(5,)),
        lambda: Deformable(levels=(), iterations=()),
        lambda: Deformable(step=0.0),
        lambda: Deformable(units="inches"),
        lambda: Deformable(smoothing="none"),
        lambda: Deformable(tail=(2.0, 4.0)),
        lambda: Deformable(optimizer=Demons()),
        lambda: Demons(alpha=0.0),
        lambda: Adam(betas=(1.0, 0.9)),
        lambda: Deformable(boundary="wrap"),
        lambda: Deformable(sigma_grad=math.nan),
        lambda: Deformable(step=math.inf),
        lambda: Deformable(channel_weights=(0.0, 0.0)),
        lambda: Deformable(channel_weights=(-1.0, 2.0)),
        lambda: Trust(relative=False),
        lambda: Convergence(window=1),
        lambda: LNCC(4),
        lambda: LNCC(5, window="round"),
        lambda: MI(bins=2),
        lambda: Paper(increase=0.9),
        lambda: Paper(decrease=1.5),
        lambda: Trust(floor=10.0, cap=1.0),
        lambda: kernels.select("cpu", "cuda-fast"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_reference_and_cpu_kernels_find_the_same_warp():
    settings = replace(QUICK, iterations=(6, 3))
    slow = warp(scene(), settings, ops=kernels.select("cpu", "reference"))
    assert apart(slow.displacement, run(settings).displacement) < 2e-3


def test_two_dimensions_are_one_slice_and_nothing_leaves_it():
    assert not run().displacement[0].any()


def test_a_start_of_other_strides_is_the_same_start():
    """A field made by permuting axes once sent every kernel's output into a copy."""
    images, settings = scene(), replace(QUICK, levels=(1,), iterations=(4,))
    moved = 0.5 * torch.rand((*truth().fixed.shape, 3), generator=torch.Generator().manual_seed(1))
    moved[..., 0] = 0
    start = moved.permute(3, 0, 1, 2)
    one, other = (warp(images, settings, start=s) for s in (start, start.contiguous()))
    assert torch.equal(one.displacement, other.displacement)
    assert float(one.displacement.abs().max()) < 10


# Rejection without a copy of the warp

NO_COPY = replace(QUICK, levels=(1,), iterations=(20,), damping=Trust(initial=16, floor=16, copy_finest=False))


def test_without_a_copy_images_that_are_alike_stay_as_they_are():
    alike = scene(moving=truth().fixed)
    result = run(NO_COPY, alike)
    assert result.stage.ending is Ending.STALLED
    assert not result.displacement.any()
    assert [r.accepted for r in result.records].count(False) == NO_COPY.damping.retries


def test_without_a_copy_doubtful_and_last_steps_do_not_raise_the_cost():
    result = run(NO_COPY)
    costs = [r.cost for r in result.records if r.accepted and r.level == 1]
    rises = [b > a for a, b in itertools.pairwise(costs)]
    assert not any(a and b for a, b in itertools.pairwise(rises))  # after a rise the next step is looked at
    level = Level(0, 1.0, 20, True, scene())
    last = LevelSolver(level, torch.eye(3, 4, dtype=torch.float64), NO_COPY, OPS).cost
    assert last.linearize(result.displacement, torch.eye(3, 4, dtype=torch.float64)).cost <= costs[-1]


def test_without_a_copy_steps_that_are_rejected_are_tried_again_in_the_same_iteration():
    result = run(
        replace(NO_COPY, step=2.0, iterations=(60,), damping=replace(NO_COPY.damping, floor=0.01, initial=0.01))
    )
    kept = {r.iteration for r in result.records if r.accepted}
    rejected = [r.iteration for r in result.records if not r.accepted]
    assert rejected
    assert set(rejected) <= kept
