"""Resampled labels: the Numba kernel equals the reference at every voxel, ties included, and both equal a loop."""

import itertools
import math

import pytest
import torch

from kernel_problems import threads
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference

SHAPES = [((7, 9, 11), (8, 7, 10)), ((1, 13, 9), (1, 11, 12)), ((1, 8, 9), (6, 7, 8)), ((3, 4, 2), (4, 3, 5))]
MATRIX = torch.tensor([[1.03, 0.05, -0.02, 0.31], [-0.04, 0.7, 0.03, 0.91], [0.02, -0.06, 1.1, -0.41]]).double()
HALF = torch.tensor([[1.0, 0, 0, 0.5], [0, 1.0, 0, 0.5], [0, 0, 1.0, -0.5]]).double()


def maps(shapes, dtype=torch.int32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, shapes[1], generator=generator).to(dtype)
    field = torch.randn((3, *shapes[0]), generator=generator)
    if shapes[0][0] == 1:
        field[0] = 0
    return labels, field


def winner(labels, point):
    """The label of largest weight around a point, or None outside; without a rule for ties."""
    shape = labels.shape
    if any(not -0.5 <= p <= n - 0.5 for p, n in zip(point, shape, strict=True)):
        return None
    place = [min(max(p, 0.0), n - 1.0) for p, n in zip(point, shape, strict=True)]
    support = {}
    for bits in itertools.product((0, 1), repeat=3):
        index = tuple(min(int(p) + bit, n - 1) for p, bit, n in zip(place, bits, shape, strict=True))
        share = math.prod(abs(1 - bit - (p - int(p))) for p, bit in zip(place, bits, strict=True))
        label = int(labels[index])
        support[label] = support.get(label, 0.0) + share
    return max(support, key=support.__getitem__)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.float32])
@pytest.mark.parametrize("shapes", SHAPES)
def test_the_kernel_equals_the_reference(shapes, dtype):
    labels, field = maps(shapes, dtype)
    for u, matrix in itertools.product((field, torch.zeros_like(field), None), (MATRIX, HALF)):
        found, defined = (ops.sample_labels(labels, u, matrix, shape=shapes[0], outside=9) for ops in (cpu, reference))
        assert found.dtype == dtype
        assert torch.equal(found, defined)


def test_the_reference_takes_the_label_of_largest_weight():
    shapes = SHAPES[0]
    labels, field = maps(shapes)
    found = reference.sample_labels(labels, field, MATRIX, outside=-1)
    for index in itertools.product(*(range(n) for n in shapes[0])):
        moved = torch.tensor(index, dtype=torch.float64) + field[(slice(None), *index)]
        expected = winner(labels, (MATRIX[:, :3] @ moved + MATRIX[:, 3]).tolist())
        assert int(found[index]) == (-1 if expected is None else expected)


def test_labels_do_not_depend_on_the_number_of_threads(all_threads):
    labels, field = maps(SHAPES[0])
    found = cpu.sample_labels(labels, field, MATRIX)
    with threads(1):
        assert torch.equal(cpu.sample_labels(labels, field, MATRIX), found)


@pytest.mark.parametrize("ops", [cpu, reference])
def test_a_nan_point_is_outside(ops):
    labels, field = maps(SHAPES[0])
    field[:, 2, 2, 2] = torch.nan
    assert int(ops.sample_labels(labels, field, MATRIX, outside=7)[2, 2, 2]) == 7
    with pytest.raises((TypeError, ValueError), match="shape"):
        ops.sample_labels(labels, None, MATRIX)
