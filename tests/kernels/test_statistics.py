"""Tallies, percentiles, round trips and shrunken images: both backends against NumPy and other operations."""

import dataclasses

import numba
import numpy as np
import pytest
import torch

from kernel_problems import threads
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference

RANKS = (0, 1, 5, 50, 95, 99, 99.9, 100)
BOTH = pytest.mark.parametrize("ops", [cpu, reference], ids=["cpu", "reference"])


def values(generator, count=200_000):
    """More than two chunks, with ties, both zeros and both signs, over many orders of magnitude."""
    drawn = torch.randn(count, generator=generator) * 10 ** (6 * torch.rand(count, generator=generator) - 3)
    drawn[:100], drawn[100:200], drawn[200:300] = 0.0, -0.0, 1.5
    return drawn[torch.randperm(count, generator=generator)]


@BOTH
@pytest.mark.parametrize("masked", [False, True])
def test_percentiles_are_those_of_numpy(generator, ops, masked):
    data = values(generator)
    mask = (torch.rand(data.shape, generator=generator) > 0.4) if masked else None
    chosen = data if mask is None else data[mask]
    found = ops.percentiles(data, RANKS, mask=mask)
    np.testing.assert_allclose(found, np.percentile(chosen.numpy().astype(np.float64), RANKS), rtol=1e-12)
    if mask is not None:
        assert found == ops.percentiles(data, RANKS, mask=mask.to(torch.uint8))


@BOTH
def test_percentiles_of_few_values(ops):
    assert ops.percentiles(torch.tensor([3.0]), (0, 50, 100)) == [3.0, 3.0, 3.0]
    assert ops.percentiles(torch.tensor([[-1.0, 2.0]]), (25,)) == [-0.25]
    three, mask = torch.tensor([5.0, -7.0, 1.0]), torch.tensor([1, 0, 1])
    assert ops.percentiles(three, (0, 50, 100), mask=mask) == [1.0, 3.0, 5.0]


@BOTH
@pytest.mark.parametrize("log_range", [None, (1e-3, 1e3)])
@pytest.mark.parametrize("masked", [False, True])
def test_tallies_are_those_of_numpy(generator, ops, log_range, masked):
    data = values(generator)
    mask = (torch.rand(data.shape, generator=generator) > 0.4) if masked else None
    chosen = (data if mask is None else data[mask]).numpy().astype(np.float64)
    found = ops.tally(data, mask=mask, log_range=log_range)
    summed = chosen if log_range is None else np.log(chosen.clip(*log_range))
    assert (found.count, found.nonpositive) == (chosen.size, int((chosen <= 0).sum()))
    assert (found.minimum, found.maximum) == (chosen.min(), chosen.max())
    assert found.total == pytest.approx(summed.sum(), rel=1e-6)
    assert found.squares == pytest.approx((summed**2).sum(), rel=1e-6)


@BOTH
def test_nothing_is_tallied_where_the_mask_is_empty(ops):
    found = ops.tally(torch.ones(5), mask=torch.zeros(5, dtype=torch.bool))
    assert dataclasses.astuple(found) == (0, 0, float("inf"), float("-inf"), 0.0, 0.0)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
def test_threads_do_not_change_a_tally(generator):
    data = values(generator)
    found = []
    for number in (1, 2):
        with threads(number):
            found.append((cpu.tally(data), cpu.percentiles(data, RANKS)))
    assert found[0] == found[1]


@pytest.mark.parametrize("shape", [(9, 10, 11), (1, 12, 13)])
def test_round_trips_are_lengths_of_the_composed_field(generator, shape):
    first, second = (torch.randn((3, *shape), generator=generator) for _ in range(2))
    first[0], second[0] = (first[0], second[0]) if shape[0] > 1 else (0.0, 0.0)
    gram = np.array([[2.0, 0.1, 0.0], [0.1, 1.0, -0.3], [0.0, -0.3, 3.0]])
    error = reference.compose(second.double(), first.double())
    exact = torch.einsum("azyx,ab,bzyx->zyx", error, torch.from_numpy(gram), error).sqrt()
    index = torch.stack(torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij"))
    limit = torch.tensor(shape).reshape(3, 1, 1, 1) - 1
    inside = ((index + first >= 0) & (index + first <= limit)).all(0)
    for ops in (cpu, reference):
        lengths, stays = ops.round_trip(first, second, gram)
        torch.testing.assert_close(lengths.double(), exact, rtol=1e-5, atol=1e-5)
        assert torch.equal(stays, inside)
        assert 0 < int(stays.sum()) < stays.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.uint8])
@pytest.mark.parametrize(
    ("shape", "small"), [((17, 20, 23), (9, 10, 8)), ((1, 20, 23), (1, 16, 16)), ((5, 20, 6), (5, 20, 6))]
)
def test_shrinking_is_blurring_and_resizing(generator, dtype, shape, small):
    images = (50 * torch.rand((2, *shape), generator=generator) + 20).to(dtype)
    kept = images.clone()
    sigma = [0.75 * n / m if n > m else 0.0 for n, m in zip(shape, small, strict=True)]
    factors = [n / m for n, m in zip(shape, small, strict=True)]
    blurred = reference.smooth_gaussian(images.double(), sigma)
    exact = reference.resize(blurred, small, factors, [(f - 1) / 2 for f in factors])
    for ops in (cpu, reference):
        found = ops.shrink(images, small, sigma)
        assert found.dtype == torch.float32
        assert found.data_ptr() != images.data_ptr()
        torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-4)
    assert torch.equal(images, kept)
