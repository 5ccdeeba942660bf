"""The optimizer's parts as pure functions: damping rules, the stopping test, and every step against its formula."""

import math
from dataclasses import replace

import pytest
import torch

from warpfactor.errors import InputError
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference
from warpfactor.optim import STEPS, Adam, Convergence, DampingState, Demons, Paper, Tile, Trust, Units

WEIGHTS = (0.5, 1.0, 0.8)
DAMPING, RESIDUAL = 0.3, 0.7
SHAPES = [(2, 3, 4), (1, 4, 3)]
VOXELS = Units((1.0, 1.0, 1.0), 1.0, (1.0, 1.0, 1.0))


def judge_all(rule, costs, state):
    """Verdicts on the costs in order, and the last state."""
    verdicts = []
    for cost in costs:
        kept, state = rule.judge(state, cost, undo=True)
        verdicts.append(kept)
    return verdicts, state


# Paper


@pytest.mark.parametrize("rule", [Paper(), Paper(tolerance=0.0), Trust(), Trust(reject=False)])
def test_the_first_cost_is_accepted_and_changes_nothing_else(rule):
    start = DampingState(damping=200.0)
    assert rule.judge(start, 5.0, undo=True) == (True, replace(start, last=5.0))


@pytest.mark.parametrize(("cost", "factor"), [(4.5, 1.5), (3.5, 0.975), (4.0, 0.975)])
def test_paper_damping_follows_the_cost(cost, factor):
    kept, state = Paper().judge(DampingState(damping=0.01, last=4.0, before=4.2), cost, undo=True)
    assert kept
    assert state == DampingState(damping=0.01 * factor, last=cost, before=4.0)


def test_paper_damping_stays_between_floor_and_cap():
    rule = Paper(floor=0.1, cap=1.0)
    _, high = judge_all(rule, range(1, 20), DampingState(damping=0.5))
    _, low = judge_all(rule, range(100, 0, -1), DampingState(damping=0.5))
    assert (high.damping, low.damping) == (1.0, 0.1)


@pytest.mark.parametrize(
    ("tolerance", "cost", "kept"),
    [
        # The last decrease was 4.5 - 4 = 0.5.
        (1.0, 4.5, True),
        (1.0, 4.501, False),
        (1.0, 4.0, True),
        (0.0, 4.0, True),
        (0.0, 4.001, False),
        (0.0, 3.0, True),
        (2.0, 4.999, True),
        (None, 100.0, True),
    ],
)
def test_paper_rejects_by_equation_12(tolerance, cost, kept):
    before = DampingState(damping=0.01, last=4.0, before=4.5)
    verdict, state = Paper(tolerance=tolerance).judge(before, cost, undo=True)
    assert verdict is kept
    if kept:
        assert (state.last, state.before, state.retries) == (cost, 4.0, 0)
    else:
        assert state == DampingState(damping=0.015, last=4.0, before=4.5, retries=1)


def test_paper_equation_12_takes_the_size_of_the_last_change_not_its_sign():
    # 3.5 -> 4 was a rise of 0.5; the bound is its size.
    state = DampingState(damping=0.01, last=4.0, before=3.5)
    assert Paper(tolerance=1.0).judge(state, 4.5, undo=True)[0]
    assert not Paper(tolerance=1.0).judge(state, 4.51, undo=True)[0]


def test_paper_cannot_reject_before_there_are_two_costs_unless_not_finite():
    state = DampingState(damping=0.01, last=4.0)
    assert Paper(tolerance=0.0).judge(state, 9.0, undo=True)[0]
    for cost in (math.nan, math.inf):
        kept, after = Paper(tolerance=0.0).judge(state, cost, undo=True)
        assert not kept
        assert after.damping == pytest.approx(0.015)


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_paper_keeps_a_step_after_so_many_rejections_in_a_row(retries):
    rule = Paper(tolerance=0.0, retries=retries)
    verdicts, state = judge_all(rule, [9.0] * (retries + 1), DampingState(damping=0.01, last=4.0, before=4.5))
    assert verdicts == [False] * retries + [True]
    assert state.damping == pytest.approx(0.01 * 1.5 ** (retries + 1))
    assert (state.last, state.before, state.retries) == (9.0, 4.0, 0)
    assert not rule.stalled(replace(state, retries=100))


def test_paper_counts_rejections_in_a_row_only():
    rule = Paper(tolerance=0.0, retries=2)
    verdicts, _ = judge_all(rule, [9.0, 3.0, 9.0, 9.0, 9.0], DampingState(damping=0.01, last=4.0, before=4.5))
    assert verdicts == [False, True, False, False, True]


@pytest.mark.parametrize("tolerance", [None, 0.0])
def test_paper_ignores_the_prediction(tolerance):
    rule = Paper(tolerance=tolerance)
    for cost in (3.0, 9.0):
        states = [DampingState(damping=0.01, last=4.0, before=4.5, predicted=p) for p in (-1.0, 0.0, 1e-9, 50.0)]
        results = [rule.judge(state, cost, undo=True) for state in states]
        judged = {(kept, replace(state, predicted=0.0)) for kept, state in results}
        assert len(judged) == 1


# Trust

TRUST = Trust(initial=100, floor=100, cap=5000, increase=4, decrease=0.5, poor=0.1, good=0.25, retries=3)


@pytest.mark.parametrize(
    ("cost", "predicted", "damping"),
    [
        (3.95, 1.0, 1600.0),  # gain 0.05: poor
        (3.75, 2.0, 400.0),  # gain 0.125: in between
        (3.75, 1.0, 400.0),  # gain 0.25: not yet good
        (3.0, 1.0, 200.0),  # gain 1: good
        (3.0, 0.0, 1600.0),  # nothing was predicted
        (3.0, -1.0, 1600.0),
    ],
)
@pytest.mark.parametrize("undo", [True, False])
def test_trust_damping_follows_the_gain(cost, predicted, damping, undo):
    state = DampingState(damping=400.0, last=4.0, before=5.0, predicted=predicted, retries=2)
    kept, after = TRUST.judge(state, cost, undo=undo)
    assert kept
    gain = (4.0 - cost) / predicted if predicted > 0 else 0.0
    assert after == DampingState(damping=damping, last=cost, before=4.0, predicted=predicted, gain=gain, retries=0)


def test_trust_damping_stays_between_floor_and_cap():
    good = DampingState(damping=150.0, last=4.0, predicted=1.0)
    assert TRUST.judge(good, 3.0, undo=True)[1].damping == 100
    assert TRUST.judge(replace(good, damping=4000.0), 3.99, undo=True)[1].damping == 5000


@pytest.mark.parametrize("cost", [4.0, 4.1, math.inf, math.nan])
def test_trust_rejects_what_does_not_fall(cost):
    state = DampingState(damping=400.0, last=4.0, before=5.0, predicted=1.0)
    assert TRUST.judge(state, cost, undo=True) == (False, replace(state, damping=1600.0, retries=1))


def test_trust_stalls_after_so_many_rejections_in_a_row():
    state = DampingState(damping=100.0, last=4.0, predicted=1.0)
    stalled = []
    for _ in range(3):
        _, state = TRUST.judge(state, 5.0, undo=True)
        stalled.append(TRUST.stalled(state))
    assert stalled == [False, False, True]
    assert not TRUST.stalled(TRUST.judge(state, 3.0, undo=True)[1])


def test_a_rise_that_cannot_be_undone_is_kept_and_raises_the_damping_twice():
    state = DampingState(damping=400.0, last=4.0, before=5.0, predicted=1.0)
    kept, after = TRUST.judge(state, 4.5, undo=False)
    assert kept
    assert after == replace(state, damping=5000.0, last=4.5, before=4.0)  # 16 times, at most the cap


def test_trust_can_do_without_a_copy_at_the_finest_level():
    rule = replace(TRUST, copy_finest=False)
    assert rule.copies(finest=False)
    assert not rule.copies(finest=True)
    assert TRUST.copies(finest=True)
    assert not replace(TRUST, reject=False).copies(finest=False)


@pytest.mark.parametrize(("gain", "final", "looks"), [(0.0, False, True), (0.2, False, False), (0.2, True, True)])
def test_trust_looks_at_doubtful_and_last_steps(gain, final, looks):
    state = DampingState(damping=100.0, last=4.0, gain=gain)
    assert TRUST.looks(state, final=final) == looks
    assert not replace(TRUST, reject=False).looks(state, final=final)
    assert not Paper(tolerance=0.0).looks(state, final=final)


@pytest.mark.parametrize("rule", [Paper, Trust])
@pytest.mark.parametrize(
    "wrong",
    [
        {"initial": 0.0},
        {"initial": math.inf},
        {"increase": 1.0},
        {"decrease": 0.0},
        {"decrease": 1.1},
        {"floor": 0.0},
        {"floor": 2.0, "cap": 1.0},
    ],
)
def test_rules_that_make_no_sense_are_refused(rule, wrong):
    with pytest.raises(InputError):
        rule(**wrong)


def test_trust_has_no_absolute_damping():
    with pytest.raises(InputError):
        Trust(relative=False)


# Convergence


@pytest.mark.parametrize("costs", [[], [1.0], [1.0] * 50, list(range(50))])
def test_no_level_stops_early_by_default(costs):
    assert not Convergence().flat(costs)
    assert not Convergence().rising(costs)


def test_flat_compares_the_window_with_the_whole_decrease():
    # 10 -> 2 is a decrease of 8; over 4 iterations a share of 0.01 per iteration is 0.32.
    test = Convergence(tolerance=0.01, window=4)
    fall = [10.0, 6.0, 4.0, 3.0, 2.5]
    assert test.flat([*fall, 2.4, 2.3, 2.25, 2.2])
    assert not test.flat([*fall, 2.3, 2.2, 2.1, 2.0])
    assert not test.flat([2.0, 2.0, 2.0, 2.0])
    assert test.flat([2.0, 2.0, 2.0, 2.0, 2.0])
    assert test.flat([2.0, 3.0, 4.0, 5.0, 6.0])


def test_slope_is_the_least_squares_slope_of_the_last_costs():
    test = Convergence(slope=1e-6, window=5)
    assert not test.rising([1.0, 2.0, 3.0, 4.0])
    assert test.rising([9.0, 1.0, 1.0, 1.0, 1.0, 1.0 + 2e-5])  # slope 2 * 2e-5 / 10 = 4e-6
    assert not test.rising([9.0, 1.0, 1.0, 1.0, 1.0, 1.0 + 4e-6])  # slope 8e-7
    assert not test.rising([1.0] * 8)
    assert not test.rising([9.0, 1.0, 1.0, 1.0, 1.0])
    assert Convergence(slope=-0.5, window=2).rising([1.0, 0.6])
    assert not Convergence(slope=-0.5, window=2).rising([1.0, 0.4])


@pytest.mark.parametrize("wrong", [{"window": 1}, {"tolerance": -1.0}, {"tolerance": math.nan}])
def test_stop_tests_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InputError):
        Convergence(**wrong)


# Steps


def gradient(shape):
    g = torch.randn((3, *shape), generator=torch.Generator().manual_seed(3), dtype=torch.float32).double()
    if shape[0] == 1:
        g[0] = 0
    g[:, 0, 1, 1] = 0
    return g


def pooled(outer, z, y, x, size):
    """Mean of (3, 3, D, H, W) over a window of `size` voxels an axis, cut at the border."""
    around = [slice(max(0, i - size // 2), i - size // 2 + size) for i in (z, y, x)]
    return outer[:, :, around[0], around[1], around[2]].mean((2, 3, 4))


def tile_step(g, size=3):
    outer = g[:, None] * g[None]
    step = torch.zeros_like(g)
    for z, y, x in torch.ones(g.shape[1:]).nonzero().tolist():
        block = pooled(outer, z, y, x, size) + DAMPING * torch.eye(3, dtype=torch.float64)
        step[:, z, y, x] = -RESIDUAL * torch.linalg.inv(block) @ g[:, z, y, x]
    return step


FORMULAS = {
    "pointwise": lambda g: -RESIDUAL * g / (g.square().sum(0) + DAMPING),
    "tile": tile_step,
    "root": lambda g: -g / (g.norm(dim=0) + math.sqrt(DAMPING)),
    "demons": lambda g: -g,
    "sgd": lambda g: -g,
    "adam": lambda g: -g / (g.abs() + 1e-8),  # the first step, whose bias correction undoes the decay
}


@pytest.mark.parametrize("shape", SHAPES, ids=["3-D", "2-D"])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), WEIGHTS], ids=["unit", "weighted"])
@pytest.mark.parametrize("name", STEPS)
def test_step_is_its_formula(name, weights, shape):
    g = gradient(shape)
    lengths = torch.tensor(weights, dtype=torch.float64).reshape(3, 1, 1, 1)
    seen = lengths * g
    inner = FORMULAS[name](seen)
    for ops, dtype, accuracy in ((reference, torch.float64, 1e-12), (cpu, torch.float32, 1e-5)):
        step = g.to(dtype, copy=True)
        rule, units = STEPS[name](), Units(weights, 1.0, weights)
        figures = rule.step(step, rule.init(step), damping=DAMPING, residual=RESIDUAL, units=units, ops=ops)
        torch.testing.assert_close(step.double(), lengths * inner, rtol=accuracy, atol=accuracy)
        assert figures == pytest.approx((inner.norm(dim=0).max().item(), -(seen * inner).sum().item()), rel=accuracy)
        assert (step[:, 0, 1, 1] == 0).all()


@pytest.mark.parametrize("shape", [(3, 5, 4), (1, 6, 5)], ids=["3-D", "2-D"])
@pytest.mark.parametrize("size", [1, 2, 4, 5, 6, 9, 10, 11, 12])
def test_tiles_of_any_size_are_their_formula(size, shape):
    """Even sizes, which are off centre, and sizes beyond the image included."""
    g = gradient(shape)
    expected = tile_step(g, size)
    for ops, dtype, accuracy in ((reference, torch.float64, 1e-12), (cpu, torch.float32, 1e-5)):
        step = g.to(dtype, copy=True)
        Tile(size).step(step, None, damping=DAMPING, residual=RESIDUAL, units=VOXELS, ops=ops)
        torch.testing.assert_close(step.double(), expected, rtol=accuracy, atol=accuracy)


def test_every_step_has_a_formula():
    assert set(FORMULAS) == set(STEPS)


def test_adam_counts_its_steps_and_keeps_its_moments():
    g, betas, epsilon = gradient(SHAPES[0]), (0.8, 0.95), 1e-3
    rule = Adam(betas=betas, epsilon=epsilon)
    moments = rule.init(g)
    m, s = torch.zeros_like(g), torch.zeros_like(g)
    for number in (1, 2, 3):
        step = number * g
        rule.step(step, moments, damping=DAMPING, residual=RESIDUAL, units=VOXELS, ops=reference)
        m = betas[0] * m + (1 - betas[0]) * number * g
        s = betas[1] * s + (1 - betas[1]) * (number * g).square()
        expected = -(m / (1 - betas[0] ** number)) / ((s / (1 - betas[1] ** number)).sqrt() + epsilon)
        assert moments.number == number
        torch.testing.assert_close(step, expected)
    torch.testing.assert_close(moments.first, m)
    torch.testing.assert_close(moments.second, s)


def test_adam_carries_its_moments_to_a_finer_level():
    rule, g = Adam(), gradient(SHAPES[0])
    moments = rule.init(g)
    rule.step(g.clone(), moments, damping=DAMPING, residual=RESIDUAL, units=VOXELS, ops=reference)
    lifted = rule.lift(moments, lambda field: 2 * field)
    assert lifted.number == 1
    assert torch.equal(lifted.first, 2 * moments.first) and torch.equal(lifted.second, 2 * moments.second)


@pytest.mark.parametrize("name", [name for name in STEPS if name != "adam"])
def test_other_steps_have_no_state(name):
    assert STEPS[name]().init(gradient(SHAPES[0])) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tile(tile_size=0),
        lambda: Demons(alpha=0.0),
        lambda: Adam(betas=(0.9, 1.0)),
        lambda: Adam(epsilon=0.0),
    ],
)
def test_steps_that_make_no_sense_are_refused(make):
    with pytest.raises(InputError):
        make()
