"""Two halves of a force: signal agrees, noise does not, and the common part has a length."""

import itertools
import math

import pytest
import torch

from warpfactor.kernels import reference
from warpfactor.stages.agreement import EDGE, FAR, Agreement, _starts, agreement, correlation_length, force_blocks

ONES = (1.0, 1.0, 1.0)


def smooth_noise(generator, sigma, shape=(40, 40, 40)):
    noise = torch.randn((3, *shape), generator=generator)
    return reference.smooth_gaussian(noise, (sigma,) * 3, truncate=5.0)


def measured(force, sigma=1.0):
    near, far = (agreement(force, ONES, [k * sigma] * 3, reference) for k in (1.0, FAR))
    return near, correlation_length(near, far, sum(n > 1 for n in force.shape[1:]))


def test_halves_of_noise_do_not_agree(generator):
    near, _ = measured(smooth_noise(generator, 0.0))
    assert abs(near.correlation) < 0.1


def test_halves_of_a_smooth_force_agree(generator):
    near, _ = measured(smooth_noise(generator, 2.0))
    assert near.correlation > 0.95


def test_the_length_of_a_smooth_force_is_about_that_of_its_gaussian(generator):
    lengths = [measured(smooth_noise(generator, sigma, (96, 96, 96)))[1] for sigma in (1.0, 1.5, 2.0)]
    assert lengths == sorted(lengths)
    assert lengths == pytest.approx([1.0, 1.5, 2.0], rel=0.5)


def test_noise_does_not_change_the_length(generator):
    force = smooth_noise(generator, 2.0, (96, 96, 96))
    noisy = force + force.std() * torch.randn(force.shape, generator=generator)
    assert measured(noisy)[1] == pytest.approx(measured(force)[1], rel=0.15)


def test_the_force_is_left_as_it_is_and_its_scale_is_no_matter(generator):
    force = smooth_noise(generator, 1.0, (1, 60, 70))
    kept = force.clone()
    (near, length), (scaled, same) = measured(force), measured(1000 * force)
    assert torch.equal(force, kept)
    assert scaled == pytest.approx(near, rel=1e-4)
    assert same == pytest.approx(length, rel=1e-4)


def test_nothing_agrees_with_nothing():
    near, length = measured(torch.zeros((3, 8, 8, 8)))
    assert near == Agreement(0.0, 0.0)
    assert length == 0


def test_a_length_has_limits():
    assert correlation_length(Agreement(0.9, 2.0), Agreement(0.9, 1.0), 3) == 0
    assert correlation_length(Agreement(0.9, 1.0), Agreement(0.9, 1e6), 3) == math.inf
    assert correlation_length(Agreement(-0.1, -1.0), Agreement(0.9, 1.0), 3) == math.inf


def test_of_eight_blocks_four_are_looked_at_that_do_not_touch():
    blocks = force_blocks((2 * EDGE, 3 * EDGE, 2 * EDGE))
    assert len(blocks) == 4
    for one, two in itertools.combinations(blocks, 2):
        assert sum(a != b for a, b in zip(one, two, strict=True)) == 2
    assert len(force_blocks((EDGE, 2 * EDGE, 2 * EDGE))) == 4
    assert len(force_blocks((1, 2 * EDGE, EDGE))) == 2


@pytest.mark.parametrize("n", [1, 8, EDGE, EDGE + 1, 2 * EDGE, 2 * EDGE + 1, 500])
def test_blocks_lie_in_the_image_and_apart(n):
    starts = _starts(n)
    assert starts[0] >= 0
    assert starts[-1] < n
    assert all(b - a >= EDGE for a, b in itertools.pairwise(starts))
