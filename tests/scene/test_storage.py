"""Images held as 16-bit whole numbers: what is lost is half a step, and no kernel or metric sees more than that."""

from dataclasses import replace

import pytest
import torch

import warpfactor as wf
from scenes import scene_of, warp
from warpfactor.errors import InputError
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference
from warpfactor.optim import STEPS
from warpfactor.phantom import phantom
from warpfactor.scene.levels import level_scene
from warpfactor.scene.prepare import stored

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
    return scene_of(fixed, moving, fixed_mask=wf.Image(truth.mask[None].to(torch.uint8), fixed.grid))


def linearized(metric, scene, ops):
    generator = torch.Generator().manual_seed(3)
    u = torch.randn((3, *SHAPE), generator=generator)
    gradient = torch.empty_like(u)
    through = VoxelMap(scene.fixed.grid, None, wf.Affine().matrix).matrix(scene.moving.grid)
    return metric.prepare(scene, ops, level=0, weights=None).linearize(u, through, gradient), gradient


def test_a_step_is_a_65534th_of_twice_the_largest_value(scene):
    whole = stored(scene, "int16")
    for side, numbers in zip(scene.sides, whole.sides, strict=True):
        assert numbers.data.dtype == torch.int16
        assert numbers.units[0] == pytest.approx(float(side.data.abs().max()) / 32767)
        assert float((numbers.single().data - side.data).abs().max()) <= 0.501 * numbers.units[0]


def test_storing_twice_changes_nothing(scene):
    whole = stored(scene, "int16")
    assert stored(whole, "int16") is whole
    assert stored(scene, "float32") is scene
    again = stored(whole, "float32")
    assert again.fixed.data.dtype == torch.float32
    assert torch.equal(again.fixed.data, whole.fixed.single().data)


@pytest.mark.parametrize("ops", [cpu, reference], ids=["cpu", "reference"])
@pytest.mark.parametrize("name", METRICS)
def test_costs_and_gradients_are_those_of_the_rounded_images(scene, name, ops):
    """The same numbers in single precision give the same cost and gradient up to rounding."""
    whole = stored(scene, "int16")
    (point, gradient), (expected, slope) = (
        linearized(METRICS[name], which, ops) for which in (whole, stored(whole, "float32"))
    )
    assert point.count == expected.count
    assert point.cost == pytest.approx(expected.cost, rel=1e-5)
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
    assert whole.fixed.data.dtype == torch.float32
    torch.testing.assert_close(whole.fixed.data, small.fixed.data, rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ["root", "demons"])
def test_a_warp_hardly_depends_on_the_storage(scene, name):
    metric = wf.MSE() if name == "demons" else wf.LNCC(5)
    settings = wf.Deformable(metric=metric, optimizer=STEPS[name](), levels=(2, 1), iterations=(20, 10))
    warps = [warp(scene, replace(settings, storage=storage)).displacement for storage in ("float32", "int16")]
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
    with pytest.raises(InputError, match=r"Unknown storage 'int8'; use one of float32, int16, float16"):
        wf.register(*images, overrides={"deformable.storage": "int8"})


def test_half_precision_is_read_by_backends_that_can(scene):
    half = stored(scene, "float16")
    for side, numbers in zip(scene.sides, half.sides, strict=True):
        assert numbers.data.dtype == torch.float16
        torch.testing.assert_close(numbers.single().data, side.data, rtol=2**-11, atol=1e-7)
    metric = wf.LNCC(3, symmetric=True)
    (point, gradient), (expected, slope) = (
        linearized(metric, which, reference) for which in (half, half.single())
    )  # arithmetic is in single precision
    assert point.cost == pytest.approx(expected.cost, rel=1e-6)
    torch.testing.assert_close(gradient, slope, rtol=1e-4, atol=2e-5 * float(slope.abs().max()))
    image = torch.rand(SHAPE).numpy()
    with pytest.raises(InputError, match=r"'numba' does not read images of half precision; use .*int16"):
        wf.register(image, image, overrides={"deformable.storage": "float16"})
