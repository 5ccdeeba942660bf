"""The finest level on the half grid smooths as a level on the grid of the images does."""

import math

import pytest
import torch

import warpfactor as wf
from warpfactor.geometry.grid import Grid
from warpfactor.kernels import reference
from warpfactor.kernels.ops import Slab
from warpfactor.kernels.taps import gaussian_variance, sigma_of_variance
from warpfactor.scene.levels import Level
from warpfactor.scene.scene import Scene, Side
from warpfactor.stages.finest import HalfGridLevel, warp_grid

SIZE = 32
PLACES = torch.arange(SIZE, dtype=torch.float32)


@pytest.fixture
def solver(generator):
    """A level on images of 1 x 1 x 2 mm, of which only the first two axes are finer than the warp's."""
    grid = Grid.from_spacing((16, SIZE, SIZE), (2.0, 1.0, 1.0))
    sides = [Side(torch.randn((1, *grid.shape), generator=generator), None, grid, ((0.0, 1.0),)) for _ in range(2)]
    settings = wf.recipe("default").deformable
    level = Level(len(settings.levels) - 1, 1, 4, finest=True, scene=Scene(*sides))
    matrix = torch.eye(4, dtype=torch.float64)[:3]
    made = HalfGridLevel(level, matrix, settings, reference, warp_grid(grid), SIZE)
    made.tail = (0.0, 1.0)
    return made


@pytest.mark.parametrize("variance", [0.0, 0.02, 0.25, 1.7, 30.0])
def test_an_sd_has_the_variance_that_is_asked_for(variance):
    assert gaussian_variance(sigma_of_variance(variance, 2.5), 2.5) == pytest.approx(variance, rel=0.05, abs=1e-9)


def test_a_force_spreads_as_far_as_on_the_voxels_of_the_image(solver):
    settings = wf.recipe("default").deformable
    expected = gaussian_variance(settings.smoothness * settings.sigma_grad, settings.truncate)
    for axis in (1, 2):
        found = [spread(solver, axis, at) for at in (SIZE // 2, SIZE // 2 + 1)]
        assert sum(found) / 2 == pytest.approx(expected, rel=0.02)


def spread(solver, axis, at):
    """Variance along an axis of a step, in voxels of the image, that follows from a force on one of its planes."""
    cost = solver.cost
    force = torch.zeros((3, *cost.image.shape))
    force.select(axis + 1, at).fill_(1)
    everything = slice(0, cost.image.shape[0])
    coarse = torch.zeros((3, *solver.grid.shape))
    cost._restrict(force, Slab(everything, everything), coarse)
    solver._smooth_force(coarse)
    fine = cost._interpolated(coarse, everything)[0].movedim(axis, 0)[:, 8, 8]
    return float((fine * (PLACES - at) ** 2).sum() / fine.sum())


def test_the_warp_is_smoothed_as_on_the_voxels_of_the_image(solver):
    settings = wf.recipe("default").deformable
    warp = torch.zeros((3, *solver.grid.shape))
    warp[:, :, 8] = 1
    solver._smooth_warp(warp, 1.0)
    line = warp[0, 8, :, 8]
    found = 4 * float((line * (PLACES[:16] - 8) ** 2).sum() / line.sum())
    assert found == pytest.approx(
        gaussian_variance(settings.smoothness * settings.sigma_warp, settings.truncate), rel=0.02
    )
    assert math.isclose(float(line.sum()), 1, rel_tol=1e-5)
