"""Kernels that process several rows at once: shapes that batches do not divide, rows of zeros, short axes, slices."""

import pytest
import torch

from kernel_problems import assert_as_exact
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference

# Batches hold 14 rows of 41 voxels with their padding along x, 21 along y, and 256 voxels of a plane along z.
SHAPES = [(5, 31, 41), (40, 9, 33), (1, 90, 37), (2, 3, 50), (3, 47, 8), (1, 5, 1100), (2, 2, 1021), (33, 2, 1)]
TAILED = {"tail": (0.3, 4.0)}  # 29 taps for a sigma of 1.2
STEPS = [(7, 60, 41), (1, 70, 33), (3, 2, 9), (4, 1, 30), (3, 5, 2), (2, 9, 1), (2, 3, 1500), (40, 3, 17)]


def random(shape, generator):
    return torch.randn((3, *shape), generator=generator).double()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("boundary", ["nearest", "zero"])
@pytest.mark.parametrize(
    ("sigma", "options"),
    [((1.2, 1.2, 1.2), TAILED), ((0.6, 0.6, 0.6), {}), ((0.0, 1.2, 0.0), TAILED), ((0.9, 0.0, 1.2), TAILED)],
)
def test_smoothing(shape, boundary, sigma, options, generator):
    field = random(shape, generator)
    found = cpu.smooth_gaussian(field.float(), sigma, boundary=boundary, **options)
    rough = reference.smooth_gaussian(field.float(), sigma, boundary=boundary, **options)
    assert_as_exact(found, reference.smooth_gaussian(field, sigma, boundary=boundary, **options), rough)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("boundary", "sigma"),
    [("nearest", (0.6, 0.6, 0.6)), ("zero", (1.2, 1.2, 1.2)), ("nearest", (0.6, 0.0, 0.6))],
)
def test_smoothing_skips_rows_of_zeros(shape, boundary, sigma, generator):
    field = random(shape, generator)
    empty = torch.rand((3, *shape[:2]), generator=generator) < 0.6
    field[empty] = 0
    field[1] = 0
    options = {"boundary": boundary, **TAILED}
    found = cpu.smooth_gaussian(field.float(), sigma, **options)
    rough = reference.smooth_gaussian(field.float(), sigma, **options)
    assert_as_exact(found, reference.smooth_gaussian(field, sigma, **options), rough)
    assert not found[1].any()


@pytest.mark.parametrize("at", [(3, 20, 17), (0, 0, 0), (4, 30, 40)])
def test_a_single_voxel_spreads_as_far_as_the_taps(at):
    field = torch.zeros(3, 5, 31, 41)
    field[(2, *at)] = 1
    found = cpu.smooth_gaussian(field.clone(), (0.7, 0.7, 0.7), boundary="zero")
    expected = reference.smooth_gaussian(field.double(), (0.7, 0.7, 0.7), boundary="zero")
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-9)
    assert torch.equal(found != 0, expected != 0)


@pytest.mark.parametrize("shape", STEPS)
@pytest.mark.parametrize("longest", [0.4, 1.0, 2.5])
def test_composing_steps_of_up_to_a_voxel_and_longer_ones(shape, longest, generator):
    warp = random(shape, generator)
    step = longest * (2 * torch.rand((3, *shape), generator=generator) - 1).double()
    step.view(-1)[:: max(1, step.numel() // 7)] = longest
    if shape[0] == 1:
        step[0] = 0
    exact = reference.compose(warp, step.float().double())
    found = cpu.compose(warp.float(), step.float())
    assert_as_exact(found, exact, reference.compose(warp.float(), step.float()))


def test_composing_a_few_long_steps_among_short_ones(generator):
    shape = (5, 90, 41)
    warp = random(shape, generator).float()
    step = (torch.rand((3, *shape), generator=generator) - 0.5).float()
    step[:, 2, 44, 20] = 3.0  # one batch of plane 2 is composed voxel by voxel
    exact = reference.compose(warp.double(), step.double())
    assert_as_exact(cpu.compose(warp, step), exact, reference.compose(warp, step))


@pytest.mark.parametrize("step", [0.0, 1.0, -1.0])
def test_composing_steps_of_whole_voxels_only_moves_values(step, generator):
    warp = random((4, 40, 35), generator).float()
    found = cpu.compose(warp, torch.full_like(warp, step))
    assert torch.equal(found, reference.compose(warp, torch.full_like(warp, step)))


def test_a_nan_step_changes_no_other_voxel(generator):
    warp = random((3, 30, 41), generator).float()
    step = 0.3 * random((3, 30, 41), generator).float().clamp(-3, 3)
    expected = cpu.compose(warp, step)
    step[1, 1, 15, 20] = torch.nan
    found = cpu.compose(warp, step)
    assert found[1, 1, 15, 20].isnan()
    found[:, 1, 15, 20] = expected[:, 1, 15, 20]
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("form", ["pointwise", "root", "plain"])
@pytest.mark.parametrize("width", [1, 7, 16, 33])
def test_the_largest_step_is_found_wherever_it_is(form, width, generator):
    for at in range(width):
        gradient = 0.1 * random((2, 3, width), generator).float()
        gradient[:, 1, 2, at] = 5.0
        exact = gradient.double()
        options = {"form": form, "damping": 0.5, "weights": (1.0, 0.5, 2.0)}
        found, expected = cpu.descend(gradient, **options), reference.descend(exact, **options)
        assert found == pytest.approx(expected, rel=1e-5)
        torch.testing.assert_close(gradient.double(), exact, rtol=1e-5, atol=1e-6)
