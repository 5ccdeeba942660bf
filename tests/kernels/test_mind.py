"""Self-similarity channels and their cost: the definition by a naive loop, gradients, masks, the CPU form, contrast."""

import math
from itertools import combinations

import numba
import pytest
import torch

from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference

OBLIQUE = torch.tensor([[0.9, 0.15, -0.1, 0.2], [-0.12, 1.1, 0.2, -0.3], [0.1, -0.25, 0.8, 0.4]], dtype=torch.float64)
PLANAR = torch.tensor([[1, 0, 0, 0], [0, 1.1, 0.2, -0.3], [0, -0.25, 0.8, 0.4]], dtype=torch.float64)
SHAPES = [((5, 9, 7), (6, 8, 9)), ((1, 17, 13), (1, 15, 18)), ((13, 14, 33), (14, 27, 31)), ((4, 25, 4), (4, 4, 40))]


def pairs(z=1.0, y=1.0, x=1.0):
    """Twelve pairs of neighbours, at these distances."""
    places = [(0, 0, x), (0, 0, -x), (0, y, 0), (0, -y, 0), (z, 0, 0), (-z, 0, 0)]
    return [(a, b) for a, b in combinations(places, 2) if a[0] + b[0] or a[1] + b[1] or a[2] + b[2]]


def images(generator, shapes, dtype=torch.float64):
    made = [torch.rand(1, *shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [reference.smooth_gaussian(image, (0.7, 0.7, 0.7))[0].to(dtype) for image in made]


def problem(generator, shapes=SHAPES[0]):
    """Channels of two images, a displacement and a matrix; some points fall outside the moving image."""
    fixed, moving = (
        reference.mind_channels(image, pairs=pairs(), sigma=(0.5, 0.5, 0.5)) for image in images(generator, shapes)
    )
    u = 1.2 * torch.rand(3, *shapes[0], generator=generator, dtype=torch.float64) - 0.6
    planar = shapes[0][0] == 1
    if planar:
        u[0] = 0
    return fixed, moving, u, PLANAR if planar else OBLIQUE


def masks(generator, shapes):
    made = [(torch.rand(shape, generator=generator) < 0.8).to(torch.uint8) for shape in shapes]
    return {"fixed_mask": made[0], "moving_mask": made[1]}


def test_a_channel_is_the_exponential_of_a_patch_distance(generator):
    (image,) = images(generator, [(7, 8, 9)])
    channels = reference.mind_channels(image, pairs=pairs(), sigma=(0, 0, 0))
    z, y, x = 3, 4, 5
    squares = [
        float(image[z + int(a[0]), y + int(a[1]), x + int(a[2])] - image[z + int(b[0]), y + int(b[1]), x + int(b[2])])
        ** 2
        for a, b in pairs()
    ]
    mean = sum(squares) / 12
    assert channels.shape == (7, 8, 9, 12)
    assert channels[z, y, x].tolist() == [round(255 * math.exp(-d / mean)) for d in squares]


@pytest.mark.parametrize("ops", [reference, cpu], ids=["reference", "cpu"])
def test_channels_do_not_see_scale_sign_or_shift_of_intensities(generator, ops):
    (image,) = images(generator, [(7, 8, 9)], torch.float32)
    one, other = (ops.mind_channels(i, pairs=pairs(), sigma=(0.5,) * 3).int() for i in (image, 40 - 900 * image))
    assert int((one - other).abs().max()) <= 1


@pytest.mark.parametrize("distances", [(1, 1, 1), (1.3, 2.0, 0.7), (9, 30, 30)])
@pytest.mark.parametrize("shape", [(7, 8, 9), (1, 19, 33), (14, 29, 5)])
@pytest.mark.parametrize("sigma", [(0.8, 0.8, 0.8), (0.0, 0.3, 1.7)])
def test_cpu_channels_are_those_of_the_reference(generator, shape, distances, sigma):
    (image,) = images(generator, [shape], torch.float32)
    arguments = {"pairs": pairs(*distances), "sigma": sigma}
    expected = reference.mind_channels(image.double(), **arguments).int()
    found = cpu.mind_channels(image, **arguments).int()
    assert int((found - expected).abs().max()) <= 1
    assert float((found != expected).double().mean()) < 0.01


@pytest.mark.parametrize("ops", [reference, cpu], ids=["reference", "cpu"])
def test_an_empty_image_has_no_structure(ops):
    channels = ops.mind_channels(torch.zeros(4, 5, 6), pairs=pairs(), sigma=(0.5,) * 3)
    assert bool((channels == 255).all())


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("shapes", SHAPES[:2], ids=["3-D", "2-D"])
def test_gradient_is_the_finite_difference_of_the_total(generator, shapes, masked):
    fixed, moving, u, matrix = problem(generator, shapes)
    options = masks(generator, shapes) if masked else {}
    gradient = torch.full_like(u, torch.nan)
    total, count = reference.mind(fixed, moving, u, matrix, gradient=gradient, **options)
    assert reference.mind(fixed, moving, u, matrix, **options) == pytest.approx((total, count))
    assert 0 < count < u[0].numel()
    for voxel in torch.randperm(u[0].numel(), generator=generator)[:12].tolist():
        for axis in range(int(shapes[0][0] == 1), 3):
            totals = []
            for step in (1e-6, -1e-6):
                moved = u.clone()
                moved[axis].view(-1)[voxel] += step
                totals.append(reference.mind(fixed, moving, moved, matrix, **options)[0])
            slope = (totals[0] - totals[1]) / 2e-6
            assert float(gradient[axis].view(-1)[voxel]) == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_cpu_cost_and_gradient_are_those_of_the_reference(generator, shapes, masked, symmetric):
    fixed, moving, u, matrix = problem(generator, shapes)
    options = masks(generator, shapes) if masked else {}
    expected = torch.full_like(u, torch.nan)
    exact = reference.mind(fixed, moving, u.float().double(), matrix, gradient=expected, symmetric=symmetric, **options)
    gradient = torch.full_like(u, torch.nan, dtype=torch.float32)
    found = cpu.mind(fixed, moving, u.float(), matrix, gradient=gradient, symmetric=symmetric, **options)
    assert found == pytest.approx(exact, rel=1e-5)
    assert cpu.mind(fixed, moving, u.float(), matrix, **options) == pytest.approx(exact, rel=1e-5)
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-4, atol=1e-6)


def test_equal_channels_cost_nothing(generator):
    fixed, *_ = problem(generator)
    zero = torch.zeros(3, *fixed.shape[:3])
    for ops in (reference, cpu):
        total, count = ops.mind(fixed, fixed, zero, torch.eye(3, 4, dtype=torch.float64))
        assert (total, count) == (0.0, zero[0].numel())


def test_results_do_not_depend_on_the_number_of_threads(generator):
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one core only")
    shapes = ((13, 30, 17), (14, 27, 31))
    first, second = images(generator, shapes, torch.float32)
    u = torch.rand(3, *shapes[0], generator=generator)

    def run(threads):
        numba.set_num_threads(threads)
        fixed, moving = (cpu.mind_channels(i, pairs=pairs(), sigma=(0.5,) * 3) for i in (first, second))
        gradient = torch.empty_like(u)
        return fixed, moving, cpu.mind(fixed, moving, u, OBLIQUE, gradient=gradient, symmetric=True), gradient

    try:
        one, two = run(1), run(2)
    finally:
        numba.set_num_threads(1)
    assert one[2] == two[2]
    assert all(torch.equal(one[i], two[i]) for i in (0, 1, 3))
