"""Costs as the solver sees them: gradients against finite differences, channels, masks, own losses, helpers."""

import math

import pytest
import torch

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.kernels import reference
from warpfactor.scene.scene import Scene, Side
from warpfactor.terms import LNCC, MI, MSE, Custom
from warpfactor.terms.base import at_level
from warpfactor.terms.channels import normalized_weights
from warpfactor.terms.mi import robust_range

OBLIQUE = torch.tensor([[0.9, 0.15, -0.1, 0.2], [-0.12, 1.1, 0.2, -0.3], [0.1, -0.25, 0.8, 0.4]], dtype=torch.float64)
PLANAR = torch.tensor([[1, 0, 0, 0], [0, 1.1, 0.2, -0.3], [0, -0.25, 0.8, 0.4]], dtype=torch.float64)
SCALES = ((2.0, 3.0), (1.0, 0.5)), ((1.5, 2.5), (1.1, 0.6))
WEIGHTS = (3.0, 1.0)


def scene_of(fixed, moving, fixed_mask, moving_mask, fixed_scale, moving_scale):
    """A scene of tensors as they are, on grids of unit spacing."""
    sides = ((fixed, fixed_mask, fixed_scale), (moving, moving_mask, moving_scale))
    return Scene(*(Side(d, m, Grid.from_spacing(d.shape[1:], 1.0), s) for d, m, s in sides))


def difference(warped, fixed):
    """Not a mean over voxels, not bounded below by 0, and the channels meet in it."""
    return (warped - fixed).square().sum().sqrt() - 0.1 * (warped[0] * fixed[-1]).mean()


# The images here are noise all over, and every window of it is to count.
EVERY = {"flat": 1e-5, "noise": 0.0}
METRICS = {
    "mse": MSE(),
    "lncc": LNCC(3, **EVERY),
    "lncc-gaussian-signed": LNCC(5, window="gaussian", squared=False, **EVERY),
    "mi": MI(bins=8),
    "custom": Custom(difference),
}


def problem(generator, planar, masked, channels=2):
    """A pair of images in float64, a displacement and a matrix; some points fall outside the moving image."""
    shapes = ((1, 7, 5), (1, 6, 7)) if planar else ((3, 5, 4), (4, 5, 3))

    def rand(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    fixed, moving = (rand(channels, *shape) for shape in shapes)
    masks = [(rand(*shape) < 0.8).to(torch.uint8) if masked else None for shape in shapes]
    u = 1.2 * rand(3, *shapes[0]) - 0.6
    if planar:
        u[0] = 0
    pair = scene_of(fixed, moving, masks[0], masks[1], SCALES[0][:channels], SCALES[1][:channels])
    return pair, u, PLANAR if planar else OBLIQUE


def total(point):
    return point.cost * point.count


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("planar", [False, True], ids=["3-D", "2-D"])
@pytest.mark.parametrize("name", METRICS)
def test_gradient_is_the_finite_difference_of_the_total(generator, name, planar, masked):
    pair, u, matrix = problem(generator, planar, masked)
    cost = METRICS[name].prepare(pair, reference, level=0, weights=WEIGHTS)
    gradient = torch.full_like(u, torch.nan)
    point = cost.linearize(u, matrix, gradient)
    assert point == cost.linearize(u, matrix)
    assert 5 < point.count < u[0].numel()
    assert gradient.abs().max() > 0
    chosen = torch.randperm(u[0].numel(), generator=generator)[:12]
    for place in torch.ones(u.shape[1:]).nonzero()[chosen].tolist():
        for axis in range(int(planar), 3):
            totals = []
            for step in (1e-6, -1e-6):
                moved = u.clone()
                moved[(axis, *place)] += step
                found = cost.linearize(moved, matrix)
                totals.append(found.cost * found.count)
            slope = (totals[0] - totals[1]) / 2e-6
            assert gradient[(axis, *place)].item() == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", ["mse", "lncc", "mi"])
def test_channels_add_up_with_weights_that_sum_to_one(generator, name):
    pair, u, matrix = problem(generator, planar=False, masked=True)
    both, parts = torch.empty_like(u), [torch.empty_like(u) for _ in range(2)]
    point = METRICS[name].prepare(pair, reference, level=0, weights=WEIGHTS).linearize(u, matrix, both)
    points = []
    for c in range(2):
        single = scene_of(
            pair.fixed.data[c : c + 1],
            pair.moving.data[c : c + 1],
            pair.fixed.mask,
            pair.moving.mask,
            pair.fixed.scale[c : c + 1],
            pair.moving.scale[c : c + 1],
        )
        cost = METRICS[name].prepare(single, reference, level=0, weights=None)
        points.append(cost.linearize(u, matrix, parts[c]))
    assert total(point) == pytest.approx(0.75 * total(points[0]) + 0.25 * total(points[1]))
    torch.testing.assert_close(both, 0.75 * parts[0] + 0.25 * parts[1])
    equal = METRICS[name].prepare(pair, reference, level=0, weights=None).linearize(u, matrix)
    assert total(equal) == pytest.approx(0.5 * total(points[0]) + 0.5 * total(points[1]))


def test_mse_is_in_the_fixed_images_units(generator):
    """Images standardised differently are alike again if their raw intensities are."""
    raw = torch.rand(1, 4, 5, 6, generator=generator, dtype=torch.float64)
    scales = (2.0, 3.0), (0.5, 0.25)
    fixed, moving = ((raw - mean) / sd for mean, sd in scales)
    pair = scene_of(fixed, moving, None, None, (scales[0],), (scales[1],))
    zero = torch.zeros(3, 4, 5, 6, dtype=torch.float64)
    eye = torch.eye(3, 4, dtype=torch.float64)
    assert MSE().prepare(pair, reference).linearize(zero, eye).cost == pytest.approx(0, abs=1e-20)
    other = scene_of(fixed, moving, None, None, (scales[0],), ((0.5 + 0.3, 0.25),))
    assert MSE().prepare(other, reference).linearize(zero, eye).cost == pytest.approx((0.3 / 3.0) ** 2)


@pytest.mark.parametrize("name", METRICS)
def test_residual_is_the_cost_or_one_for_an_own_loss(generator, name):
    pair, u, matrix = problem(generator, planar=True, masked=False)
    point = METRICS[name].prepare(pair, reference, level=0, weights=None).linearize(u, matrix)
    assert point.residual == (1.0 if name == "custom" else point.cost)


def test_own_loss_sees_the_fixed_image_where_nothing_counts(generator):
    pair, u, matrix = problem(generator, planar=False, masked=True)
    seen = []

    def loss(warped, fixed):
        seen.append(warped.detach() == fixed)
        return (warped - fixed).square().mean()

    gradient = torch.empty_like(u)
    point = Custom(loss).prepare(pair, reference).linearize(u, matrix, gradient)
    same = seen[0].all(0)
    assert int((~same).sum()) == point.count
    assert (same | (pair.fixed.mask > 0)).all()
    assert (gradient[:, same] == 0).all()


def test_own_mean_squared_difference_has_the_gradient_of_mse(generator):
    pair, u, matrix = problem(generator, planar=False, masked=True, channels=1)
    pair = scene_of(pair.fixed.data, pair.moving.data, pair.fixed.mask, pair.moving.mask, ((0.0, 1.0),), ((0.0, 1.0),))
    own, built_in = torch.empty_like(u), torch.empty_like(u)
    mean = Custom(lambda warped, fixed: (warped - fixed).square().mean())
    point = mean.prepare(pair, reference).linearize(u, matrix, own)
    same = MSE().prepare(pair, reference).linearize(u, matrix, built_in)
    assert point.cost * u[0].numel() == pytest.approx(total(same))
    torch.testing.assert_close(own * u[0].numel(), built_in * same.count)


@pytest.mark.parametrize(
    "loss", [lambda w, f: (w - f).square(), lambda w, f: 1.0, lambda w, f: (w - f).detach().square().mean()]
)
def test_own_losses_that_cannot_be_used_are_refused(generator, loss):
    pair, u, matrix = problem(generator, planar=True, masked=False)
    cost = Custom(loss).prepare(pair, reference)
    with pytest.raises(InputError, match="custom loss"):
        cost.linearize(u, matrix, torch.empty_like(u))


def test_a_loss_that_is_not_finite_is_named(generator):
    pair, u, matrix = problem(generator, planar=True, masked=False)

    def logs(warped, fixed):
        return (warped - fixed).sum() * torch.nan

    with pytest.raises(InputError, match=r"loss logs returned nan; add a small number"):
        Custom(logs).prepare(pair, reference).linearize(u, matrix)


def test_a_loss_without_slope_is_warned_of(generator):
    pair, u, matrix = problem(generator, planar=True, masked=False)

    def steps(warped, fixed):
        return (warped - fixed).round().square().mean()

    cost = Custom(steps).prepare(pair, reference)
    with pytest.warns(UserWarning, match="gradient of the custom loss steps is zero everywhere"):
        cost.linearize(u, matrix, torch.empty_like(u))
    same = scene_of(pair.fixed.data, pair.fixed.data, None, None, SCALES[0], SCALES[0])
    smooth = Custom(lambda warped, fixed: (warped - fixed).square().mean())
    still = torch.zeros_like(u)  # the same images: no slope, and no warning
    smooth.prepare(same, reference).linearize(still, torch.eye(4, dtype=u.dtype)[:3], torch.empty_like(u))


def test_only_functions_are_losses():
    with pytest.raises(InputError, match=r"Custom\('mse'\): give a function loss\(warped, fixed\)"):
        Custom("mse")


def test_lncc_window_is_that_of_the_level(generator):
    pair, u, matrix = problem(generator, planar=False, masked=False)
    by_level = [LNCC((3, 5)).prepare(pair, reference, level=i).linearize(u, matrix).cost for i in range(3)]
    fixed = [LNCC(size).prepare(pair, reference).linearize(u, matrix).cost for size in (3, 5, 5)]
    assert by_level == fixed
    assert by_level[0] != by_level[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: LNCC(4),
        lambda: LNCC(0),
        lambda: LNCC(()),
        lambda: LNCC(window="hann"),
        lambda: MI(bins=4),
        lambda: MI(tails=0.5),
    ],
)
def test_settings_that_make_no_sense_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_robust_range_leaves_out_the_tails():
    values = torch.arange(1001.0).reshape(7, 11, 13)
    assert robust_range(values, None, 0.0, reference) == (0.0, 1000.0)
    assert robust_range(values, None, 0.01, reference) == pytest.approx((10.0, 990.0))
    mask = ((values >= 100) & (values <= 200)).to(torch.uint8)
    assert robust_range(values, mask, 0.0, reference) == (100.0, 200.0)
    assert robust_range(values, mask, 0.1, reference) == pytest.approx((110.0, 190.0))


def test_robust_range_has_always_a_width():
    values = torch.zeros(10, 10, 10)
    assert robust_range(values, None, 0.01, reference) == (-0.5, 0.5)
    values[0, 0, 0] = 8.0  # less than the tails, and all there is
    assert robust_range(values, None, 0.01, reference) == (0.0, 8.0)


def test_settings_per_level():
    assert [at_level(7, level) for level in range(3)] == [7, 7, 7]
    assert [at_level((3, 5), level) for level in range(4)] == [3, 5, 5, 5]


def test_weights_are_scaled_to_sum_one():
    assert normalized_weights(None, 4) == (0.25,) * 4
    assert normalized_weights((3.0, 1.0), 2) == (0.75, 0.25)
    assert math.fsum(normalized_weights((0.1, 0.2, 0.4), 3)) == pytest.approx(1)
    with pytest.raises(InputError, match="the number of channels is 3"):
        normalized_weights((1.0, 1.0), 3)
