"""The reference smoothers against naive loops, and what they keep at the border."""

import math

import numpy as np
import pytest
import torch

from warpfactor.kernels import reference


def random(generator, *shape):
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def test_nearest_boundary_keeps_constants():
    field = torch.full((2, 3, 5, 4), 3.0)
    reference.smooth_gaussian(field, (1.0, 4.0, 0.3), boundary="nearest")
    torch.testing.assert_close(field, torch.full_like(field, 3.0))


def test_zero_boundary_decays_at_the_border_only():
    field = torch.ones(1, 1, 1, 21)
    reference.smooth_gaussian(field, (0.0, 0.0, 1.0), boundary="zero")
    line = field[0, 0, 0]
    torch.testing.assert_close(line[4:17], torch.ones(13))
    assert (line[:3].diff() > 0).all()
    assert 0.5 < line[0] < 0.75


def test_gaussian_is_the_normalised_integral_over_voxels():
    field = torch.zeros(1, 1, 1, 15, dtype=torch.float64)
    field[..., 7] = 1
    reference.smooth_gaussian(field, (0, 0, 1.2), truncate=3.0)
    radius = math.ceil(3 * 1.2 - 0.5)
    taps = [
        math.erf((k + 0.5) / 1.2 / math.sqrt(2)) - math.erf((k - 0.5) / 1.2 / math.sqrt(2))
        for k in range(-radius, radius + 1)
    ]
    expected = np.zeros(15)
    expected[7 - radius : 8 + radius] = np.array(taps) / sum(taps)
    np.testing.assert_allclose(field[0, 0, 0].numpy(), expected, atol=1e-15)


@pytest.mark.parametrize("boundary", ["nearest", "zero"])
def test_gaussian_wider_than_the_image_is_the_naive_loop(generator, boundary):
    field = random(generator, 1, 1, 3, 1)
    line = field[0, 0, :, 0].tolist()
    radius = math.ceil(3 * 2.0 - 0.5)
    taps = {
        k: math.erf((k + 0.5) / 2 / math.sqrt(2)) - math.erf((k - 0.5) / 2 / math.sqrt(2))
        for k in range(-radius, radius + 1)
    }
    expected = []
    for i in range(3):
        reach = {k: i + k for k in taps if boundary == "nearest" or 0 <= i + k < 3}
        expected.append(sum(taps[k] * line[min(max(j, 0), 2)] for k, j in reach.items()) / sum(taps.values()))
    reference.smooth_gaussian(field, (2.0, 2.0, 2.0), boundary=boundary)
    np.testing.assert_allclose(field[0, 0, :, 0].numpy(), expected)


def test_zero_sigma_changes_nothing(generator):
    field = random(generator, 3, 4, 3, 5)
    before = field.clone()
    assert torch.equal(reference.smooth_gaussian(field, (0, 0, 0)), before)


@pytest.mark.parametrize("boundary", ["nearest", "zero"])
def test_axes_of_length_one_are_skipped(generator, boundary):
    field = random(generator, 3, 1, 4, 5)
    expected = reference.smooth_gaussian(field.clone(), (0, 1, 1), boundary=boundary)
    assert torch.equal(reference.smooth_gaussian(field, (2, 1, 1), boundary=boundary), expected)


def test_smoothing_is_in_place(generator):
    field = random(generator, 3, 4, 3, 5)
    assert reference.smooth_gaussian(field, (1, 1, 1)) is field
    assert reference.smooth_box(field, (1, 1, 1)) is field


@pytest.mark.parametrize("radius", [(1, 2, 0), (5, 1, 2)])
def test_box_is_the_mean_over_the_window_cut_at_the_border(generator, radius):
    field = random(generator, 2, 3, 5, 4)
    expected = np.empty(field.shape)
    for index in np.ndindex(3, 5, 4):
        window = tuple(slice(max(i - r, 0), i + r + 1) for i, r in zip(index, radius, strict=True))
        expected[(slice(None), *index)] = field.numpy()[(slice(None), *window)].mean(axis=(1, 2, 3))
    np.testing.assert_allclose(reference.smooth_box(field, radius).numpy(), expected)
