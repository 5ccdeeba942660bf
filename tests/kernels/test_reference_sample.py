"""The reference samplers against hand loops, finite differences and SimpleITK."""

import itertools
import math

import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 (the name everybody uses)
import torch

from warpfactor.kernels import reference

IDENTITY = torch.eye(3, 4, dtype=torch.float64)
OBLIQUE = torch.tensor([[0.9, 0.15, -0.1, 0.2], [-0.12, 1.1, 0.2, -0.3], [0.1, -0.25, 0.8, 0.4]], dtype=torch.float64)
PLANAR = torch.tensor([[1, 0, 0, 0], [0, 1.1, 0.2, -0.3], [0, -0.25, 0.8, 0.4]], dtype=torch.float64)
CASES = [
    pytest.param((4, 5, 3), (5, 4, 6), OBLIQUE, id="3-D"),
    pytest.param((1, 5, 7), (1, 6, 5), PLANAR, id="2-D"),
]


def random(generator, *shape):
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def naive_value(image, point, mode, outside):
    """One sample by the definition: inside test, clamp, then the weighted eight corners."""
    if any(not -0.5 <= p <= n - 0.5 for p, n in zip(point, image.shape, strict=True)):
        return outside
    clamped = [min(max(p, 0), n - 1) for p, n in zip(point, image.shape, strict=True)]
    if mode == "nearest":
        return image[tuple(math.floor(p + 0.5) for p in clamped)]
    value = 0.0
    for corner in itertools.product((0, 1), repeat=3):
        index = [math.floor(p) + bit for p, bit in zip(clamped, corner, strict=True)]
        weight = math.prod(1 - abs(p - i) for p, i in zip(clamped, index, strict=True))
        if weight > 0:
            value += weight * image[tuple(index)]
    return value


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize(("fixed_shape", "moving_shape", "matrix"), CASES)
def test_sample_is_the_hand_loop(generator, fixed_shape, moving_shape, matrix, mode):
    image = random(generator, *moving_shape)
    displacement = 2 * random(generator, 3, *fixed_shape) - 1
    displacement[0] *= fixed_shape[0] > 1
    expected = np.empty(fixed_shape)
    for index in np.ndindex(fixed_shape):
        moved = np.array(index) + displacement[(slice(None), *index)].numpy()
        point = matrix[:, :3].numpy() @ moved + matrix[:, 3].numpy()
        expected[index] = naive_value(image.numpy(), point, mode, -7.0)
    result = reference.sample(image, displacement, matrix, mode=mode, outside=-7.0)
    assert (expected == -7).any()
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_sample_agrees_with_simpleitk_on_oblique_grids(generator, mode):
    fixed = sitk.Image([9, 7, 6], sitk.sitkFloat64)
    moving = sitk.GetImageFromArray(random(generator, 7, 8, 6).numpy())
    fixed.SetSpacing([1.1, 0.8, 1.7])
    fixed.SetOrigin([1.0, -0.5, 0.3])
    fixed.SetDirection(rotation(0.3, 0.1).ravel().tolist())
    moving.SetSpacing([1.4, 0.9, 1.6])
    moving.SetOrigin([0.4, -1.2, 0.6])
    moving.SetDirection(rotation(-0.2, 0.4).ravel().tolist())
    affine = sitk.AffineTransform(3)
    affine.SetMatrix((rotation(0.1, -0.2) @ np.diag([1.1, 0.9, 1.0])).ravel().tolist())
    affine.SetTranslation([0.35, 0.2, -0.4])
    interpolator = sitk.sitkLinear if mode == "linear" else sitk.sitkNearestNeighbor
    expected = sitk.GetArrayFromImage(sitk.Resample(moving, fixed, affine, interpolator, -7.0))
    world = np.eye(4)
    world[:3, :3] = np.reshape(affine.GetMatrix(), (3, 3))
    world[:3, 3] = affine.GetTranslation()
    matrix = torch.from_numpy((np.linalg.inv(voxel_to_world(moving)) @ world @ voxel_to_world(fixed))[:3])
    result = reference.sample(
        torch.from_numpy(sitk.GetArrayFromImage(moving)),
        None,
        matrix,
        shape=(6, 7, 9),
        mode=mode,
        outside=-7.0,
    )
    assert 0.1 < (expected == -7).mean() < 0.9
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-9)


def rotation(about_z, about_x):
    c, s, k, t = math.cos(about_z), math.sin(about_z), math.cos(about_x), math.sin(about_x)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array([[1, 0, 0], [0, k, -t], [0, t, k]])


def voxel_to_world(image):
    """Array-order index (z, y, x, 1) to world (x, y, z, 1)."""
    matrix = np.eye(4)
    matrix[:3, :3] = (np.reshape(image.GetDirection(), (3, 3)) * image.GetSpacing())[:, ::-1]
    matrix[:3, 3] = image.GetOrigin()
    return matrix


def test_affine_alone_is_zero_displacement(generator):
    image = random(generator, 4, 5, 6)
    zero = torch.zeros(3, 3, 4, 5, dtype=torch.float64)
    alone = reference.sample(image, None, OBLIQUE, shape=(3, 4, 5))
    assert torch.equal(alone, reference.sample(image, zero, OBLIQUE))


def test_identity_returns_the_image_in_its_own_type(generator):
    for dtype in (torch.float16, torch.float32, torch.float64):
        image = random(generator, 3, 4, 5).to(dtype)
        result = reference.sample(image, None, IDENTITY, shape=(3, 4, 5))
        assert result.dtype == dtype
        assert torch.equal(result, image)


@pytest.mark.parametrize(("fixed_shape", "moving_shape", "matrix"), CASES)
def test_sample_gradient_is_the_finite_difference_of_sample(generator, fixed_shape, moving_shape, matrix):
    image = random(generator, *moving_shape)
    displacement = 2 * random(generator, 3, *fixed_shape) - 1
    value, gradient, inside = reference.sample_gradient(image, displacement, matrix)
    assert torch.equal(value, reference.sample(image, displacement, matrix))
    assert inside.any()
    assert not inside.all()
    for axis in range(3):
        ahead, behind = displacement.clone(), displacement.clone()
        ahead[axis] += 1e-6
        behind[axis] -= 1e-6
        rise = reference.sample(image, ahead, matrix) - reference.sample(image, behind, matrix)
        torch.testing.assert_close(gradient[axis], rise / 2e-6, atol=1e-8, rtol=1e-6)


def test_outside_has_the_outside_value_and_no_gradient(generator):
    image = random(generator, 3, 4, 5)
    far = torch.full((3, 3, 4, 5), 50.0, dtype=torch.float64)
    far[0, 0, 0, 0] = torch.nan
    value, gradient, inside = reference.sample_gradient(image, far, IDENTITY, outside=-7.0)
    assert (value == -7).all()
    assert (gradient == 0).all()
    assert not inside.any()


def test_rim_keeps_the_edge_value_with_no_gradient_across_it(generator):
    image = random(generator, 3, 4, 5)
    shift = torch.zeros(3, 3, 4, 5, dtype=torch.float64)
    shift[2] = 0.4
    value, gradient, inside = reference.sample_gradient(image, shift, IDENTITY)
    assert inside.all()
    assert torch.equal(value[..., -1], image[..., -1])
    assert (gradient[2, ..., -1] == 0).all()
    assert (gradient[2, ..., 0] != 0).all()


def test_a_point_on_the_last_voxel_takes_the_slope_of_the_last_cell(generator):
    image = random(generator, 3, 4, 5)
    zero = torch.zeros(3, 3, 4, 5, dtype=torch.float64)
    _, gradient, _ = reference.sample_gradient(image, zero, IDENTITY)
    torch.testing.assert_close(gradient[2, ..., -1], image[..., -1] - image[..., -2])


def test_depth_one_is_never_left_along_z(generator):
    image = random(generator, 1, 4, 5)
    matrix = IDENTITY.clone()
    matrix[0, 3] = 3.0
    assert torch.equal(reference.sample(image, None, matrix, shape=(1, 4, 5)), image)


def test_nearest_rounds_halves_up():
    image = torch.tensor([[[0.0, 1.0, 2.0]]])
    shift = IDENTITY.clone()
    shift[2, 3] = 0.5
    assert reference.sample(image, None, shift, shape=(1, 1, 3), mode="nearest").tolist() == [[[1, 2, 2]]]


def test_sample_without_displacement_or_shape_is_refused():
    with pytest.raises(ValueError, match="displacement or a shape"):
        reference.sample(torch.zeros(1, 2, 2), None, IDENTITY)
