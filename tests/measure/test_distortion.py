"""Shear and folds that the central Jacobian does not see."""

import pytest
import torch

from warpfactor.measure.jacobian import distortion


def linear(matrix, shape):
    """Displacement of x -> matrix x."""
    index = torch.stack(torch.meshgrid(*(torch.arange(float(n)) for n in shape), indexing="ij"))
    return torch.einsum("ab,bzyx->azyx", torch.tensor(matrix) - torch.eye(3), index)


def test_nothing_and_a_change_of_scale_have_no_shear():
    for factor in (1.0, 1.5):
        found = distortion(linear([[factor, 0, 0], [0, factor, 0], [0, 0, factor]], (6, 7, 8)), (1, 1, 1))
        assert found.shear == pytest.approx(0, abs=1e-5)
        assert found.folded_one_sided == 0


def test_shear_is_that_of_the_formula_whatever_the_spacing():
    sheared = [[1.0, 0.4, 0], [0, 1.0, 0], [0, 0, 1.0]]
    assert distortion(linear(sheared, (5, 5, 5)), (1, 1, 1)).shear == pytest.approx(0.16 / 3, rel=1e-4)
    assert distortion(linear(sheared, (5, 5, 5)), (2, 1, 1)).shear == pytest.approx(0.64 / 3, rel=1e-4)


def test_a_slice_has_two_dimensions():
    sheared = [[1.0, 0, 0], [0, 1.0, 0.4], [0, 0, 1.0]]
    assert distortion(linear(sheared, (1, 6, 6)), (1, 1, 1)).shear == pytest.approx(0.08, rel=1e-4)


def test_a_voxel_that_jumps_over_its_neighbour_is_a_fold_though_central_differences_see_none():
    field = torch.zeros((3, 7, 7, 7))
    field[2, 3, 3, 3] = 1.2
    found = distortion(field, (1, 1, 1))
    assert found.folded_one_sided == 2
    elsewhere = torch.ones((7, 7, 7))
    elsewhere[3, 3] = 0
    assert distortion(field, (1, 1, 1), elsewhere).folded_one_sided == 0
