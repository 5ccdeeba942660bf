"""The reference displacement algebra: exact on shifts and linear fields, inverse to the identity."""

import math

import pytest
import torch

from warpfactor.kernels import reference


def random(generator, *shape):
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def linear_field(matrix, shape):
    """u(x) = matrix x on the voxel grid."""
    axes = torch.meshgrid(*[torch.arange(n, dtype=torch.float64) for n in shape], indexing="ij")
    return torch.einsum("ab,bzyx->azyx", matrix, torch.stack(axes))


def waves(shape, amplitude):
    """A smooth field, zero along axes of length one and at the border."""
    bump = torch.ones(shape, dtype=torch.float64)
    for axis, n in enumerate(shape):
        if n > 1:
            line = torch.sin(torch.linspace(0, math.pi, n, dtype=torch.float64))
            bump = bump * line.reshape([-1 if a == axis else 1 for a in range(3)])
    factors = [sign * (n > 1) for n, sign in zip(shape, (1, -1, 0.7), strict=True)]
    return torch.stack([amplitude * factor * bump for factor in factors])


def test_constant_shifts_compose_exactly():
    warp = torch.tensor([1.5, -2.25, 0.5]).reshape(3, 1, 1, 1).expand(3, 3, 4, 5).contiguous()
    step = torch.tensor([0.25, 3.0, -4.75]).reshape(3, 1, 1, 1).expand(3, 3, 4, 5).contiguous()
    assert torch.equal(reference.compose(warp, step), warp + step)


def test_compose_of_linear_fields_is_linear_inside(generator):
    outer, inner = 0.1 * random(generator, 3, 3), -0.1 * random(generator, 3, 3)
    shape = (5, 6, 7)
    composed = reference.compose(linear_field(outer, shape), linear_field(inner, shape))
    moved = linear_field(torch.eye(3, dtype=torch.float64) + inner, shape)
    last = torch.tensor(shape).reshape(3, 1, 1, 1) - 1
    inside = ((moved >= 0) & (moved <= last)).all(0)
    assert inside.sum() > 50
    expected = linear_field(inner + outer + outer @ inner, shape)
    torch.testing.assert_close(composed[:, inside], expected[:, inside])


def test_compose_may_write_into_the_step(generator):
    warp, step = random(generator, 3, 3, 4, 5), random(generator, 3, 3, 4, 5)
    expected = reference.compose(warp, step)
    assert reference.compose(warp, step, out=step) is step
    assert torch.equal(step, expected)


def test_resize_with_scale_one_is_the_identity(generator):
    field = random(generator, 2, 3, 4, 5)
    assert torch.equal(reference.resize(field, (3, 4, 5), (1, 1, 1), (0, 0, 0)), field)


def test_resize_reads_linear_fields_at_scaled_positions_and_keeps_edges():
    field = torch.arange(5.0).expand(1, 1, 2, 5)
    result = reference.resize(field, (1, 3, 6), (1, 1, 0.9), (0, -1, -0.5))
    expected = torch.tensor([0, 0.4, 1.3, 2.2, 3.1, 4.0]).expand(1, 1, 3, 6)
    torch.testing.assert_close(result, expected)


def test_resize_is_pointwise_linear_interpolation(generator):
    image = random(generator, 4, 3, 5)
    matrix = torch.tensor([[0.6, 0, 0, 0.2], [0, 0.4, 0, 0.1], [0, 0, 0.7, 0.3]], dtype=torch.float64)
    result = reference.resize(image[None], (5, 4, 5), (0.6, 0.4, 0.7), (0.2, 0.1, 0.3))
    torch.testing.assert_close(result[0], reference.sample(image, None, matrix, shape=(5, 4, 5)))


def test_jacobian_of_a_linear_field_is_its_determinant(generator):
    matrix = random(generator, 3, 3) - 0.5
    result = reference.jacobian_determinant(linear_field(matrix, (4, 3, 5)))
    expected = torch.linalg.det(torch.eye(3, dtype=torch.float64) + matrix)
    torch.testing.assert_close(result, expected.expand(4, 3, 5))


def test_jacobian_at_depth_one_is_the_planar_determinant(generator):
    matrix = random(generator, 3, 3) - 0.5
    result = reference.jacobian_determinant(linear_field(matrix, (1, 4, 5)))
    expected = torch.linalg.det(torch.eye(2, dtype=torch.float64) + matrix[1:, 1:])
    torch.testing.assert_close(result, expected.expand(1, 4, 5))


def test_jacobian_is_central_inside_and_one_sided_at_the_border():
    field = torch.zeros(3, 1, 1, 4)
    field[2, 0, 0] = torch.tensor([0.0, 1.0, 4.0, 9.0])
    assert reference.jacobian_determinant(field).flatten().tolist() == [2, 3, 5, 6]


@pytest.mark.parametrize("shape", [(11, 12, 13), (1, 15, 12)])
def test_inverse_composes_to_the_identity(shape):
    displacement = waves(shape, 1.5)
    inverse, residual = reference.invert(displacement, tolerance=1e-9, iterations=200)
    assert residual.max() < 1e-9
    assert reference.compose(displacement, inverse).abs().max() < 1e-9
    assert reference.compose(inverse, displacement).abs().max() < 0.1


def test_invert_reports_the_residual_of_what_it_returns():
    displacement = waves((7, 8, 9), 1.5)
    inverse, residual = reference.invert(displacement, iterations=2)
    expected = torch.linalg.vector_norm(reference.compose(displacement, inverse), dim=0)
    torch.testing.assert_close(residual, expected)
    assert residual.max() > 1e-3


def test_invert_keeps_a_start_that_is_good_enough():
    displacement = waves((7, 8, 9), 0.8)
    inverse, residual = reference.invert(displacement, tolerance=1e-6)
    assert residual.max() < 1e-6
    start = inverse.clone()
    again, _ = reference.invert(displacement, start=start, tolerance=1e-5)
    assert torch.equal(again, inverse)
    assert torch.equal(start, inverse)
