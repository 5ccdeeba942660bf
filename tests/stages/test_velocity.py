"""The velocity stage: one field whose flow leads to both images, saved with the result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.helpers.scenes import OPS, scene_of

import warpfactor as wf
from warpfactor.optim import STEPS
from warpfactor.stages.settings import Deformable
from warpfactor.stages.velocity import divergence, run_velocity

BRIEF = Deformable(method="velocity", levels=(2, 1), iterations=(8, 4), step=1.0, volume=0.5)


@pytest.fixture(scope="module")
def pair() -> tuple[wf.Image, wf.Image]:
    made = wf.phantom.phantom((24, 26, 24))
    return wf.Image.from_array(made.fixed), wf.Image.from_array(made.moving)


@pytest.mark.parametrize("name", ["root", "adam"])
def test_exchanged_images_have_the_negative_velocity(pair, name):
    settings = replace(BRIEF, optimizer=STEPS[name]())
    there = run_velocity(scene_of(*pair), settings, ops=OPS)
    back = run_velocity(scene_of(*reversed(pair)), settings, ops=OPS)
    assert there.stage.cost_after < there.stage.cost_before
    torch.testing.assert_close(there.velocity, -back.velocity, atol=1e-4, rtol=0)  # both grids are the same here
    torch.testing.assert_close(there.displacement, back.inverse, atol=1e-4, rtol=0)


def test_divergence_is_odd_and_that_of_a_growing_flow():
    line = torch.arange(9, dtype=torch.float32)
    field = torch.stack(torch.meshgrid(line, line, line, indexing="ij"))
    torch.testing.assert_close(divergence(field)[1:-1, 1:-1, 1:-1], torch.full((7, 7, 7), 3.0))
    assert torch.equal(divergence(-field), -divergence(field))


def test_a_result_has_its_velocity_and_saves_it(pair, tmp_path):
    short = {"deformable.levels": (2, 1), "deformable.iterations": (8, 4), "linear": "none"}
    result = wf.register(*pair, recipe="velocity", overrides=short)
    torch.testing.assert_close(result.velocity.warp().displacement, result.warp.displacement, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        result.velocity.warp(-1.0).displacement, result.inverse_warp.displacement, atol=1e-5, rtol=0
    )
    trip = result.figures.warp.there_and_back_vox
    assert trip.mean < 0.02
    assert trip.max < 0.5
    folder = result.save(tmp_path / "out", report=False)
    saved = wf.read_result(folder)
    torch.testing.assert_close(saved.velocity.field, result.velocity.field, atol=1e-5, rtol=0)
    assert saved.entries["files"]["velocity_lps_mm"] == "velocity.nii.gz"
    points = pair[0].grid.index_to_world([[12, 13, 12]])
    there = wf.read_transform(folder / "1Warp.nii.gz").map_points(points)
    np.testing.assert_allclose(there, saved.velocity.warp().map_points(points), atol=1e-4)
    plain = wf.register(*pair, recipe="affine").save(tmp_path / "plain", report=False)
    assert wf.read_result(plain).velocity is None


def test_slices():
    image = torch.randn((1, 1, 30, 32), generator=torch.Generator().manual_seed(0))
    OPS.smooth_gaussian(image, (0.0, 2.0, 2.0))
    grid = wf.Grid.from_spacing((30, 32))
    moved = wf.Image(image.roll(2, -1), grid)
    found = run_velocity(scene_of(wf.Image(image, grid), moved), replace(BRIEF, iterations=(20, 10)), ops=OPS)
    assert found.stage.kept
    assert not found.velocity[0].any()
    assert 1.2 < float(found.displacement[2, 0, 8:-8, 8:-8].mean()) < 2.2
