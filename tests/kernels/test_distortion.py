"""Shear and one-sided determinants: the CPU form against the reference, and both against matrices."""

import pytest
import torch

from warpfactor.kernels import numba, reference

SHAPES = [(5, 6, 7), (1, 9, 8), (4, 4, 13)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (2.5, 1.0, 0.7)])
def test_the_cpu_form_agrees_with_the_reference(shape, spacing, generator):
    field = 0.6 * torch.randn((3, *shape), generator=generator)
    if shape[0] == 1:
        field[0] = 0
    shear, least = numba.distortion(field, spacing)
    exact_shear, exact_least = reference.distortion(field.double(), spacing)
    torch.testing.assert_close(least.double(), exact_least, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shear.double(), exact_shear, rtol=1e-3, atol=1e-4)
    assert (least <= 0).any()


@pytest.mark.parametrize("ops", [numba, reference], ids=["numba", "reference"])
def test_a_linear_map_has_the_determinant_and_shear_of_its_matrix(ops):
    matrix = torch.tensor([[1.2, 0.3, 0.0], [0.1, 0.9, 0.2], [0.0, -0.1, 1.1]])
    index = torch.stack(torch.meshgrid(*(torch.arange(float(n)) for n in (5, 6, 4)), indexing="ij"))
    field = torch.einsum("ab,bzyx->azyx", matrix - torch.eye(3), index).contiguous()
    shear, least = ops.distortion(field, (1.0, 1.0, 1.0))
    determinant = float(torch.linalg.det(matrix))
    assert least == pytest.approx(torch.full_like(least, determinant), rel=1e-4)
    expected = float(matrix.square().sum()) / (3 * determinant ** (2 / 3)) - 1
    assert shear == pytest.approx(torch.full_like(shear, expected), rel=1e-3)
