"""The reference costs: gradients against finite differences and naive loops, masks, perfect matches."""

import itertools
import math

import numpy as np
import pytest
import torch

from warpfactor.kernels import reference

IDENTITY = torch.eye(3, 4, dtype=torch.float64)
OBLIQUE = torch.tensor([[0.9, 0.15, -0.1, 0.2], [-0.12, 1.1, 0.2, -0.3], [0.1, -0.25, 0.8, 0.4]], dtype=torch.float64)
PLANAR = torch.tensor([[1, 0, 0, 0], [0, 1.1, 0.2, -0.3], [0, -0.25, 0.8, 0.4]], dtype=torch.float64)
FLAT = (1e-6, 1e-6)

LNCC = [
    pytest.param(
        reference.lncc,
        {"radius": radius, "window": window, "squared": squared, "flat": FLAT},
        id=f"lncc-{window}-{'squared' if squared else 'signed'}-{radius}",
    )
    for window, squared, radius in itertools.product(("box", "gaussian"), (True, False), ((1, 2, 1), (0, 1, 3)))
]
MI = pytest.param(reference.mi, {"bins": 8, "fixed_range": (0.1, 0.9), "moving_range": (0.05, 0.9)}, id="mi")
COSTS = [pytest.param(reference.mse, {}, id="mse"), *LNCC, MI]


def random(generator, *shape):
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def problem(generator, planar=False):
    """Fixed, moving, displacement, matrix of odd shapes; some points fall outside the moving image."""
    fixed_shape, moving_shape = ((1, 7, 5), (1, 6, 7)) if planar else ((3, 5, 4), (4, 5, 3))
    displacement = 1.2 * random(generator, 3, *fixed_shape) - 0.6
    if planar:
        displacement[0] = 0
    images = random(generator, *fixed_shape), random(generator, *moving_shape)
    return (*images, displacement, PLANAR if planar else OBLIQUE)


def masks(generator, fixed, moving):
    return {
        "fixed_mask": (random(generator, *fixed.shape) < 0.8).to(torch.uint8),
        "moving_mask": (random(generator, *moving.shape) < 0.8).to(torch.uint8),
    }


def evaluate(cost, inputs, **options):
    gradient = torch.full_like(inputs[2], torch.nan)
    total, count = cost(*inputs, gradient=gradient, **options)
    return total, count, gradient


def finite_difference(cost, inputs, index, **options):
    """Central difference of the total with respect to one number of the displacement."""
    fixed, moving, displacement, matrix = inputs
    totals = []
    for eps in (1e-6, -1e-6):
        moved = displacement.clone()
        moved[index] += eps
        totals.append(cost(fixed, moving, moved, matrix, **options)[0])
    return (totals[0] - totals[1]) / 2e-6


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("planar", [False, True], ids=["3-D", "2-D"])
@pytest.mark.parametrize(("cost", "options"), COSTS)
def test_gradient_is_the_finite_difference_of_the_total(generator, cost, options, planar, masked):
    inputs = problem(generator, planar)
    if masked:
        options = options | masks(generator, inputs[0], inputs[1])
    total, count, gradient = evaluate(cost, inputs, **options)
    assert total > 0
    assert 10 < count < inputs[0].numel()
    for voxel in torch.randperm(inputs[0].numel(), generator=generator)[:12].tolist():
        place = np.unravel_index(voxel, inputs[0].shape)
        for axis in range(int(planar), 3):
            index = (axis, *place)
            expected = finite_difference(cost, inputs, index, **options)
            assert float(gradient[index]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("cost", "options"), COSTS)
def test_value_alone_equals_value_with_gradient(generator, cost, options):
    inputs = problem(generator)
    assert cost(*inputs, **options) == evaluate(cost, inputs, **options)[:2]


@pytest.mark.parametrize(("cost", "options"), COSTS)
def test_float32_agrees_with_float64(generator, cost, options):
    inputs = problem(generator)
    single = (*(tensor.float() for tensor in inputs[:3]), inputs[3])
    total, count, gradient = evaluate(cost, inputs, **options)
    total32, count32, gradient32 = evaluate(cost, single, **options)
    assert total32 == pytest.approx(total, rel=1e-4)
    assert count32 == count
    assert gradient32.dtype == torch.float32
    torch.testing.assert_close(gradient32.double(), gradient, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(("cost", "options"), COSTS)
def test_intensities_under_the_fixed_mask_do_not_matter(generator, cost, options):
    inputs = problem(generator)
    mask = masks(generator, inputs[0], inputs[1])["fixed_mask"]
    changed = (torch.where(mask == 0, torch.nan, inputs[0]), *inputs[1:])
    before = evaluate(cost, inputs, fixed_mask=mask, **options)
    after = evaluate(cost, changed, fixed_mask=mask, **options)
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


@pytest.mark.parametrize(("cost", "options"), COSTS)
def test_intensities_deep_under_the_moving_mask_do_not_matter(generator, cost, options):
    """One voxel in from the mask's edge: the edge itself is read when interpolating beside it."""
    inputs = problem(generator)
    mask = torch.ones(inputs[1].shape, dtype=torch.uint8)
    mask[2:] = 0
    moving = inputs[1].clone()
    moving[3:] = torch.nan
    before = evaluate(cost, inputs, moving_mask=mask, **options)
    after = evaluate(cost, (inputs[0], moving, *inputs[2:]), moving_mask=mask, **options)
    assert before[1] > 0
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


@pytest.mark.parametrize(("cost", "options"), COSTS)
def test_nothing_inside_gives_zero_total_count_and_gradient(generator, cost, options):
    fixed, moving, displacement, matrix = problem(generator)
    total, count, gradient = evaluate(cost, (fixed, moving, displacement + 99, matrix), **options)
    assert (total, count) == (0, 0)
    assert (gradient == 0).all()


@pytest.mark.parametrize(("cost", "options"), COSTS[:-1])
def test_perfect_match_costs_nothing(generator, cost, options):
    image = random(generator, 3, 5, 4)
    zero = torch.zeros(3, 3, 5, 4, dtype=torch.float64)
    total, count = cost(image, image, zero, IDENTITY, **options)
    assert total == 0
    assert count == image.numel()


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
def test_symmetric_mse_averages_both_images_slopes(generator, masked):
    fixed, moving, displacement, matrix = inputs = problem(generator)
    options = masks(generator, fixed, moving) if masked else {}
    warped, slope, weight = (t.numpy() for t in reference.sample_gradient(moving, displacement, matrix))
    if masked:
        seen = reference.sample(options["moving_mask"].double(), displacement, matrix, mode="nearest")
        weight = weight & (options["fixed_mask"].numpy() > 0) & (seen.numpy() > 0)
    residual = weight * (fixed.numpy() - warped)
    expected = -2 * residual * (slope + np.stack(np.gradient(fixed.numpy()))) / 2
    total, count, gradient = evaluate(reference.mse, inputs, symmetric=True, **options)
    assert total == pytest.approx((residual**2).sum())
    assert count == weight.sum()
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-12)


def naive_lncc(fixed, warped, weight, radius, window, squared, exact, flat):
    """Total, count, d total / dM and rho (None without contrast), one voxel and one window at a time."""
    shape = fixed.shape
    total, count = 0.0, 0
    force, rho = np.zeros(shape), np.full(shape, np.nan)
    for x in np.ndindex(shape):
        if not weight[x]:
            continue
        members = {y: tap(x, y, radius, window) for y in np.ndindex(shape) if weight[y]}
        members = {y: k for y, k in members.items() if k > 0}
        n = sum(members.values())
        mean_f = sum(k * fixed[y] for y, k in members.items()) / n
        mean_m = sum(k * warped[y] for y, k in members.items()) / n
        var_f = sum(k * (fixed[y] - mean_f) ** 2 for y, k in members.items()) / n
        var_m = sum(k * (warped[y] - mean_m) ** 2 for y, k in members.items()) / n
        cov = sum(k * (fixed[y] - mean_f) * (warped[y] - mean_m) for y, k in members.items()) / n
        if var_f <= flat[0]:
            continue
        count += 1
        total += 1
        if var_m <= flat[1]:
            continue
        root = math.sqrt(var_f * var_m)
        total -= (cov / root) ** 2 if squared else cov / root
        a = 2 * cov / root**2 if squared else 1 / root
        b = 2 * cov**2 / (root**2 * var_m) if squared else cov / (root * var_m)
        rho[x] = math.copysign(math.sqrt(var_m / var_f), cov)
        for y, k in members.items():
            if exact or y == x:
                force[y] -= k / n * (a * (fixed[y] - mean_f) - b * (warped[y] - mean_m))
    return total, count, force, rho


def tap(x, y, radius, window):
    value = 1.0
    for i, j, r in zip(x, y, radius, strict=True):
        value *= abs(i - j) <= r
        if window == "gaussian" and r > 0:
            value *= math.exp(-((i - j) ** 2) / (2 * ((2 * r + 1) / 6) ** 2))
    return value


@pytest.mark.parametrize("symmetric", [False, True], ids=["moving", "symmetric"])
@pytest.mark.parametrize("exact", [False, True], ids=["centre", "exact"])
@pytest.mark.parametrize("squared", [False, True], ids=["signed", "squared"])
@pytest.mark.parametrize("window", ["box", "gaussian"])
def test_lncc_is_the_naive_loop(generator, window, squared, exact, symmetric):
    fixed, moving, displacement, matrix = inputs = problem(generator)
    mask = masks(generator, fixed, moving)["fixed_mask"]
    warped, slope, inside = (t.numpy() for t in reference.sample_gradient(moving, displacement, matrix))
    weight = inside & (mask.numpy() > 0)
    options = {
        "radius": (1, 0, 2),
        "window": window,
        "squared": squared,
        "exact": exact,
        "flat": (0.03, 0.02),
    }
    total, count, force, rho = naive_lncc(fixed.numpy(), warped, weight, **options)
    assert 0 < count < weight.sum()
    assert np.isfinite(rho).sum() < count
    if symmetric:
        both = (slope + rho * np.stack(np.gradient(fixed.numpy()))) / 2
        slope = np.where(np.isfinite(rho), both, slope)
    result = evaluate(reference.lncc, inputs, symmetric=symmetric, fixed_mask=mask, **options)
    assert result[0] == pytest.approx(total)
    assert result[1] == count
    np.testing.assert_allclose(result[2].numpy(), force * slope, atol=1e-10)


@pytest.mark.parametrize("squared", [False, True])
def test_lncc_ignores_gain_and_offset(generator, squared):
    fixed, moving, displacement, matrix = problem(generator)
    options = {"radius": (1, 1, 1), "squared": squared, "flat": (0.0, 0.0)}
    total, _ = reference.lncc(fixed, moving, displacement, matrix, **options)
    scaled, _ = reference.lncc(3 * fixed + 5, 0.5 * moving - 2, displacement, matrix, **options)
    assert scaled == pytest.approx(total)


def test_flat_moving_windows_cost_one_each(generator):
    fixed, moving, displacement, matrix = problem(generator)
    inputs = (fixed, torch.ones_like(moving), displacement, matrix)
    total, count, gradient = evaluate(reference.lncc, inputs, radius=(1, 1, 1), flat=FLAT)
    assert total == count > 0
    assert (gradient == 0).all()


def naive_mi(fixed, warped, bins, fixed_range, moving_range):
    """Joint histogram, one voxel at a time, then MI by its definition."""
    joint = np.zeros((bins, bins))
    for f, m in zip(fixed, warped, strict=True):
        tf = min(max((f - fixed_range[0]) / (fixed_range[1] - fixed_range[0]), 0), 1) * (bins - 1)
        tm = 1 + min(max((m - moving_range[0]) / (moving_range[1] - moving_range[0]), 0), 1) * (bins - 4)
        for i, j in np.ndindex(bins, bins):
            joint[i, j] += max(0, 1 - abs(tf - i)) * cubic(abs(tm - j))
    p = joint / len(fixed)
    independent = np.outer(p.sum(1), p.sum(0))
    return sum(p[k] * math.log(p[k] / independent[k]) for k in np.ndindex(bins, bins) if p[k] > 0)


def cubic(t):
    """The cubic B-spline."""
    if t < 1:
        return 2 / 3 - t**2 + t**3 / 2
    return max(0, 2 - t) ** 3 / 6


def test_mi_is_the_naive_histogram(generator):
    fixed, moving, displacement, matrix = problem(generator)
    options = {"bins": 7, "fixed_range": (0.1, 0.8), "moving_range": (0.2, 0.7)}
    warped, _, inside = reference.sample_gradient(moving, displacement, matrix)
    information = naive_mi(fixed[inside].tolist(), warped[inside].tolist(), **options)
    total, count = reference.mi(fixed, moving, displacement, matrix, **options)
    assert count == inside.sum()
    assert total == pytest.approx(count * (math.log(7) - information))


def test_clipped_intensities_have_no_mi_gradient(generator):
    inputs = problem(generator)
    moving_range = (0.4, 0.6)
    warped, _, inside = reference.sample_gradient(*inputs[1:])
    clipped = inside & ((warped < 0.4) | (warped > 0.6))
    *_, gradient = evaluate(reference.mi, inputs, bins=8, fixed_range=(0, 1), moving_range=moving_range)
    assert (gradient[:, clipped] == 0).all()
    assert (gradient[:, inside & ~clipped] != 0).any()


def test_identical_images_share_more_information_than_shuffled_ones(generator):
    image = random(generator, 6, 7, 8)
    shuffled = image.flatten()[torch.randperm(image.numel(), generator=generator)].reshape(image.shape)
    zero = torch.zeros(3, 6, 7, 8, dtype=torch.float64)
    options = {"bins": 16, "fixed_range": (0, 1), "moving_range": (0, 1)}
    same, _ = reference.mi(image, image, zero, IDENTITY, **options)
    different, _ = reference.mi(image, shuffled, zero, IDENTITY, **options)
    assert 0 <= same < different
