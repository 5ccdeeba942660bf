"""Folds are taken out where they are, and nothing else is touched."""

import pytest
import torch

from warpfactor.kernels import reference
from warpfactor.measure.jacobian import distortion
from warpfactor.stages.repair import repair


@pytest.mark.parametrize("shape", [(20, 24, 22), (1, 24, 22)])
def test_a_fold_is_mended_and_the_rest_stays(shape):
    field = torch.zeros((3, *shape))
    field[2, shape[0] // 2, 12, 11] = 1.4
    before = field.clone()
    assert repair(field, reference) == 2
    assert distortion(field, (1, 1, 1)).folded_one_sided == 0
    assert reference.distortion(field, (1, 1, 1))[1].min() >= 0.05
    assert torch.equal(field[..., :4], before[..., :4])
    assert field[2, shape[0] // 2, 12, 11] > 0


def test_without_folds_nothing_changes(generator):
    field = reference.smooth_gaussian(torch.randn((3, 12, 12, 12), generator=generator), (2.0, 2.0, 2.0))
    before = field.clone()
    assert repair(field, reference) == 0
    assert torch.equal(field, before)


class Counting:
    """The reference, which counts how often it looks for folds."""

    def __init__(self):
        self.looks = 0

    def __getattr__(self, name):
        return getattr(reference, name)

    def distortion(self, *arguments):
        self.looks += 1
        return reference.distortion(*arguments)


def test_many_folds_are_mended_together(generator):
    field = torch.randn((3, 16, 18, 14), generator=generator)
    ops = Counting()
    assert repair(field, ops) > 1000
    assert ops.looks < 40
    assert distortion(field, (1, 1, 1)).folded_one_sided == 0
