"""Whether two images share a contrast, and that the default then warps by what fits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import warpfactor as wf
from scenes import scene_of
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference
from warpfactor.phantom import phantom
from warpfactor.stages import contrasts
from warpfactor.stages.contrasts import same_contrast

SHAPE = (40, 44, 36)
WARP = wf.recipes()["default"].deformable


def images(contrast, shape=SHAPE):
    truth = phantom(shape, contrast=contrast, displacement_vox=1.5)
    return wf.Image.from_array(truth.fixed), wf.Image.from_array(truth.moving)


@pytest.mark.parametrize("ops", [cpu, reference], ids=["cpu", "reference"])
def test_images_of_one_contrast_are_known_whatever_their_units(ops):
    fixed, moving = images("t1")
    other = replace(moving, data=300 * moving.data + 7)
    assert same_contrast(scene_of(fixed, other), np.eye(4), WARP, ops)


@pytest.mark.parametrize("shape", [SHAPE, (1, 90, 80)], ids=["3-D", "2-D"])
@pytest.mark.parametrize("contrast", ["t2", "inverted"])
def test_images_of_different_contrast_are_known(contrast, shape):
    fixed, moving = images(contrast, shape)
    assert not same_contrast(scene_of(fixed, moving), np.eye(4), WARP, cpu)


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("shape", [SHAPE, (1, 90, 80)], ids=["3-D", "2-D"])
def test_in_doubt_the_warps_there_and_back_decide(monkeypatch, generator, shape, both_ways):
    """Here everything is doubtful: the same anatomy is matched alike from both sides, noise is not."""
    monkeypatch.setattr(contrasts, "DOUBT", -1.0)
    monkeypatch.setattr(contrasts, "LIMIT", 2.0)
    fixed, moving = images("t1", shape)
    noise = 3 * cpu.smooth_gaussian(torch.randn((1, *shape), generator=generator), (2.0, 2.0, 2.0))
    other = replace(moving, data=moving.data * (1 + 4 * noise))
    assert same_contrast(scene_of(fixed, moving), np.eye(4), WARP, cpu, both_ways=both_ways)
    assert not same_contrast(scene_of(fixed, other), np.eye(4), WARP, cpu, both_ways=both_ways)


def test_masks_are_heeded():
    """Under a mask there may be anything."""
    (fixed, moving), (_, other) = images("t1"), images("t2")
    broken = moving.data.clone()
    broken[:, :, :24] = other.data[:, :, :24]
    mask = torch.ones_like(broken)
    mask[:, :, :25] = 0
    scene = scene_of(fixed, replace(moving, data=broken), moving_mask=wf.Image(mask, moving.grid))
    whole = scene_of(fixed, replace(moving, data=broken))
    assert same_contrast(scene, np.eye(4), WARP, cpu)
    assert not same_contrast(whole, np.eye(4), WARP, cpu)


@pytest.mark.parametrize(("contrast", "metric"), [("t1", "lncc"), ("t2", "mind")])
def test_the_default_records_what_it_chose(contrast, metric):
    fixed, moving = images(contrast)
    quick = {"deformable.levels": (2, 1), "deformable.iterations": (5, 2), "linear.iterations": (5, 5, 2)}
    found = wf.register(fixed, moving, overrides=quick)
    assert found.recipe.deformable.metric.name == metric
    assert found.recipe.deformable.iterations == (5, 2)
    assert found.recipe.across is None
    assert found.recipe.across_planar is None
    assert found.history[-1].metric == metric


def test_a_metric_that_is_given_is_used_for_all_contrasts():
    recipe = wf.recipes()["default"].replace({"deformable.metric.size": 5})
    assert recipe.across is None
    assert recipe.for_contrasts(same=False).deformable.metric.size == 5


def test_what_is_set_for_the_warp_holds_across_contrasts():
    recipe = wf.recipes()["default"].replace({"deformable.sigma_warp": 3.0})
    assert recipe.for_contrasts(same=False).deformable.sigma_warp == 3.0
    assert recipe.for_grid(wf.Grid.from_spacing((64, 64))).for_contrasts(same=False).deformable.metric.name == "mixed"


def test_self_similarity_finds_a_warp_across_contrasts():
    """To about half a voxel, whatever the displacement was, so that must be larger."""
    truth = phantom((56, 60, 56), contrast="t2", displacement_vox=4.0)
    fixed, moving = wf.Image.from_array(truth.fixed), wf.Image.from_array(truth.moving)
    recipe = replace(wf.recipes()["multimodal"], linear=())
    found = wf.register(fixed, moving, recipe=recipe)
    inside = truth.mask.bool()
    before = torch.linalg.vector_norm(truth.displacement, dim=0)[inside].mean()
    after = torch.linalg.vector_norm(found.warp.displacement - truth.displacement, dim=0)[inside].mean()
    assert after < 0.5 * before
