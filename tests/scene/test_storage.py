"""Images held as 16-bit whole numbers: what is lost is half a step, and no kernel or metric sees more than that."""

from dataclasses import replace

import pytest
import torch

import warpfactor as wf
from warpfactor.errors import InputError
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference
from warpfactor.optim import Descent
from warpfactor.phantom import phantom
from warpfactor.scene.scene import level_scene, make_scene, stored
from warpfactor.stages.pyramid import register_deformable
from warpfactor.terms import in_single

SHAPE = (20, 24, 22)
METRICS = {
    "lncc": wf.LNCC(5),
    "lncc-symmetric": wf.LNCC(3, symmetric=True, squared=False),
    "lncc-gaussian": wf.LNCC(5, window="gaussian"),
    "mse": wf.MSE(),
    "mse-symmetric": wf.MSE(symmetric=True),
    "demons": wf.MSE(demons=1.0),
    "mi": wf.MI(),
    "custom": wf.Custom(lambda warped, fixed: (warped - fixed).square().mean()),
}


@pytest.fixture(scope="module")
def scene():
    truth = phantom(SHAPE, displacement_vox=1.5)
    fixed, moving = wf.Image.from_array(300 * truth.fixed + 40), wf.Image.from_array(200 * truth.moving - 70)
    return make_scene(fixed, moving, fixed_mask=wf.Image(truth.mask[None].to(torch.uint8), fixed.grid))


def linearized(metric, scene, ops):
    generator = torch.Generator().manual_seed(3)
    u = torch.randn((3, *SHAPE), generator=generator)
    gradient = torch.empty_like(u)
    through = VoxelMap(scene.fixed_grid, None, wf.Affine().matrix).matrix(scene.moving_grid)
    return metric.prepare(scene.pair, ops, level=0, weights=None).linearize(u, through, gradient), gradient


def test_a_step_is_a_65534th_of_twice_the_largest_value(scene):
    whole = stored(scene, "int16")
    for images, numbers, units in (
        (scene.pair.fixed, whole.pair.fixed, whole.pair.fixed_units),
        (scene.pair.moving, whole.pair.moving, whole.pair.moving_units),
    ):
        assert numbers.dtype == torch.int16
        assert units[0] == pytest.approx(float(images.abs().max()) / 32767)
        assert float((in_single(numbers, units) - images).abs().max()) <= 0.501 * units[0]


def test_storing_twice_changes_nothing(scene):
    whole = stored(scene, "int16")
    assert stored(whole, "int16") is whole
    assert stored(scene, "float32") is scene
    again = stored(whole, "float32")
    assert again.pair.fixed.dtype == torch.float32
    assert torch.equal(again.pair.fixed, in_single(whole.pair.fixed, whole.pair.fixed_units))


@pytest.mark.parametrize("ops", [cpu, reference], ids=["cpu", "reference"])
@pytest.mark.parametrize("name", METRICS)
def test_costs_and_gradients_are_those_of_the_rounded_images(scene, name, ops):
    """The same numbers in single precision give the same cost and gradient up to rounding."""
    whole = stored(scene, "int16")
    (point, gradient), (expected, slope) = (
        linearized(METRICS[name], which, ops) for which in (whole, stored(whole, "float32"))
    )
    assert point.count == expected.count
    assert point.total == pytest.approx(expected.total, rel=1e-5)
    torch.testing.assert_close(gradient, slope, rtol=1e-4, atol=2e-5 * float(slope.abs().max()))


@pytest.mark.parametrize("name", METRICS)
def test_costs_are_those_of_the_images_to_a_thousandth(scene, name):
    (point, gradient), (expected, slope) = (
        linearized(METRICS[name], which, cpu) for which in (stored(scene, "int16"), scene)
    )
    assert point.cost == pytest.approx(expected.cost, rel=1e-3)
    away = torch.linalg.vector_norm(gradient - slope) / torch.linalg.vector_norm(slope)
    assert away < (0.02 if name.startswith("lncc") else 2e-3)


def test_coarser_levels_are_standardised_intensities_in_single_precision(scene):
    small, whole = level_scene(scene, 1.2, cpu), level_scene(stored(scene, "int16"), 1.2, cpu)
    assert whole.pair.fixed.dtype == torch.float32
    torch.testing.assert_close(whole.pair.fixed, small.pair.fixed, rtol=0, atol=1e-3)


@pytest.mark.parametrize("descent", ["root", "demons"])
def test_a_warp_hardly_depends_on_the_storage(scene, descent):
    metric = wf.MSE() if descent == "demons" else wf.LNCC(5)
    settings = wf.Deformable(metric=metric, descent=Descent(descent), levels=(2, 1), iterations=(20, 10))
    warps = [
        register_deformable(scene, replace(settings, storage=storage), ops=cpu).displacement
        for storage in ("float32", "int16")
    ]
    apart = torch.linalg.vector_norm(warps[1] - warps[0], dim=0)
    assert float(warps[0].abs().max()) > 0.5
    assert float(apart.mean()) < 0.01
    assert float(apart.max()) < 0.2


def test_a_recipe_can_ask_for_it(scene):
    truth = phantom(SHAPE, displacement_vox=1.5)
    short = {"linear.levels": [1], "linear.iterations": [3], "deformable.iterations": [3, 3, 3]}
    images = truth.fixed.numpy(), truth.moving.numpy()
    found = wf.register(*images, overrides={**short, "deformable.storage": "int16"})
    plain = wf.register(*images, overrides=short)
    assert found.recipe.deformable.storage == "int16"
    assert found.history[-1].cost_after == pytest.approx(plain.history[-1].cost_after, rel=0.02)
    with pytest.raises(InputError, match=r"Unknown storage 'float16'; use one of float32, int16"):
        wf.register(*images, overrides={"deformable.storage": "float16"})
