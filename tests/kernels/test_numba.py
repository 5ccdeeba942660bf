"""Every Numba kernel against the reference, and with different numbers of threads."""

import itertools

import numba
import pytest
import torch

from kernel_problems import assert_as_exact, masks, problem, single, threads
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference

SHAPES = [((7, 9, 11), (8, 7, 10)), ((1, 13, 9), (1, 11, 12)), ((5, 6, 17), (5, 6, 17)), ((3, 4, 2), (4, 3, 5))]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_sample(shapes, mode):
    _, moving, field, matrix = problem(shapes)
    image, u = single(moving, field)
    found = cpu.sample(image, u, matrix, mode=mode, outside=-3.0)
    exact = reference.sample(moving, u.double(), matrix, mode=mode, outside=-3.0)
    assert_as_exact(found, exact, reference.sample(image, u, matrix, mode=mode, outside=-3.0))
    assert (exact == -3).any()


@pytest.mark.parametrize("shapes", SHAPES)
def test_sample_without_field(shapes):
    _, moving, _, matrix = problem(shapes)
    found = cpu.sample(moving.float(), None, matrix, shape=shapes[0])
    exact = reference.sample(moving, None, matrix, shape=shapes[0])
    assert_as_exact(found, exact, exact)


@pytest.mark.parametrize("shapes", SHAPES)
def test_sample_gradient(shapes):
    _, moving, field, matrix = problem(shapes)
    image, u = single(moving, field)
    found = cpu.sample_gradient(image, u, matrix)
    exact = reference.sample_gradient(moving, u.double(), matrix)
    rough = reference.sample_gradient(image, u, matrix)
    assert_as_exact(found[0], exact[0], rough[0])
    assert_as_exact(found[1], exact[1], rough[1])
    assert torch.equal(found[2], exact[2])


@pytest.mark.parametrize("shapes", SHAPES)
def test_compose_also_in_place(shapes):
    _, _, field, _ = problem(shapes)
    warp, step = field.float(), 0.7 * field.flip(2).float()
    exact = reference.compose(warp.double(), step.double())
    assert_as_exact(cpu.compose(warp, step), exact, reference.compose(warp, step))
    assert cpu.compose(warp, step, out=step) is step
    assert_as_exact(step, exact, exact)


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("boundary", ["nearest", "zero"])
@pytest.mark.parametrize(
    ("sigma", "tail"), [((1.0, 0.6, 1.7), (0.0, 1.0)), ((0.0, 2.5, 0.0), (0.3, 4.0)), ((0.5, 0.0, 0.3), (0.3, 4.0))]
)
def test_smooth_gaussian(shapes, boundary, sigma, tail):
    _, _, field, _ = problem(shapes)
    options = {"boundary": boundary, "tail": tail}
    found = cpu.smooth_gaussian(field.float(), sigma, **options)
    exact = reference.smooth_gaussian(field.clone(), sigma, **options)
    assert_as_exact(found, exact, reference.smooth_gaussian(field.float(), sigma, **options))


@pytest.mark.parametrize("place", [(slice(4, 6), slice(7, 9), slice(2, 5)), (slice(0, 1), 11, 0), (8, 0, slice(9, 10))])
@pytest.mark.parametrize("boundary", ["nearest", "zero"])
@pytest.mark.parametrize("sigma", [(0.6, 0.6, 0.6), (1.5, 0.0, 0.8), (0.0, 2.0, 0.0)])
def test_smooth_gaussian_of_a_field_that_is_mostly_zero(generator, place, boundary, sigma):
    field = torch.zeros(3, 9, 12, 10, dtype=torch.float64)
    inner = (slice(None), *place)
    field[inner] = torch.randn(field[inner].shape, generator=generator, dtype=torch.float64)
    found = cpu.smooth_gaussian(field.float(), sigma, boundary=boundary)
    torch.testing.assert_close(
        found.double(), reference.smooth_gaussian(field, sigma, boundary=boundary), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("radius", [(1, 2, 3), (0, 9, 0), (2, 0, 1)])
def test_smooth_box(shapes, radius):
    _, _, field, _ = problem(shapes)
    found = cpu.smooth_box(field.float(), radius)
    exact = reference.smooth_box(field.clone(), radius)
    assert_as_exact(found, exact, reference.smooth_box(field.float(), radius))


@pytest.mark.parametrize("shapes", SHAPES)
def test_resize(shapes):
    _, _, field, _ = problem(shapes)
    arguments = (4, 5, 21), (0.5, 1.9, 0.45), (-0.2, 0.1, 0.3)
    found = cpu.resize(field.float(), *arguments)
    assert_as_exact(found, reference.resize(field, *arguments), reference.resize(field.float(), *arguments))


@pytest.mark.parametrize("shapes", SHAPES)
def test_jacobian_determinant(shapes):
    _, _, field, _ = problem(shapes)
    found = cpu.jacobian_determinant(field.float())
    exact = reference.jacobian_determinant(field)
    assert_as_exact(found, exact, reference.jacobian_determinant(field.float()))


@pytest.mark.parametrize("shape", [(9, 12, 11), (1, 14, 12)])
def test_invert_leaves_a_true_residual(shape):
    field = reference.smooth_gaussian(problem((shape, shape))[2] * 2, (2.0, 2.0, 2.0))
    inverse, residual = cpu.invert(field.float(), tolerance=1e-4)
    assert residual.max() < 1e-3
    again = reference.compose(field, inverse.double())
    assert torch.allclose(again.norm(dim=0), residual.double(), atol=1e-5)
    assert torch.allclose(inverse.double(), reference.invert(field, tolerance=1e-4)[0], atol=2e-4)


@pytest.mark.parametrize("ops", [cpu, reference])
def test_invert_solves_steep_fields_too(ops):
    """x + u(x) squeezes a range to a fiftieth, where the plain fixed point does not converge; nothing folds."""
    x = torch.arange(40, dtype=torch.float32)
    field = torch.zeros(3, 1, 6, 40)
    field[2] = -0.98 * torch.relu(x - 12).clamp(max=9) * torch.ones(1, 6, 40)
    assert float(ops.jacobian_determinant(field).min()) > 0
    _, residual = ops.invert(field)
    assert float(residual.max()) < 2e-3


COSTS = {
    "mse": (
        lambda ops: ops.mse,
        [{}, {"symmetric": True}, {"demons": 0.8}, {"demons": 0.8, "symmetric": True}],
    ),
    "lncc": (
        lambda ops: ops.lncc,
        [
            {"radius": r, "window": w, "squared": s, "exact": e, "symmetric": y, "flat": (1e-4, 1e-4)}
            for r, w, s, e, y in itertools.product(
                [(1, 2, 3), (2, 2, 2)], ["box", "gaussian"], [True, False], [True, False], [True, False]
            )
        ],
    ),
    "mi": (lambda ops: ops.mi, [{"bins": 16, "fixed_range": (-1.5, 1.5), "moving_range": (-2.0, 1.0)}]),
}
CASES = [(name, options) for name, (_, variants) in COSTS.items() for options in variants]


def in_turn(number, name):
    """Shapes, with and without masks: all of them, or two for a variant of LNCC, so that each option meets all."""
    if name != "lncc":
        return tuple(itertools.product(SHAPES, (False, True)))
    first = number + number // 4 + number // 16
    return (SHAPES[first % 4], number // 2 % 2 == 0), (SHAPES[(first + 2) % 4], number // 2 % 2 == 1)


@pytest.mark.parametrize(
    ("name", "options", "shapes", "masked"),
    [(*case, *chosen) for number, case in enumerate(CASES) for chosen in in_turn(number, case[0])],
)
def test_cost_and_gradient(name, options, shapes, masked):
    fixed, moving, field, matrix = problem(shapes)
    options = dict(options)
    if masked:
        options["fixed_mask"], options["moving_mask"] = masks(shapes)
    if "radius" in options and shapes[0][0] == 1:
        options["radius"] = (0, *options["radius"][1:])
    results = {}
    for key, ops, dtype in (
        ("cpu", cpu, torch.float32),
        ("exact", reference, torch.float64),
        ("single", reference, torch.float32),
    ):
        gradient = torch.full_like(field, 7.0, dtype=dtype)
        arguments = (fixed.to(dtype), moving.to(dtype), field.float().to(dtype), matrix)
        total = getattr(ops, name)(*arguments, gradient=gradient, **options)
        value_only = getattr(ops, name)(*arguments, **options)
        assert value_only == pytest.approx(total, rel=1e-6)
        results[key] = (torch.tensor(total, dtype=torch.float64), gradient)
    for i in range(2):
        assert_as_exact(results["cpu"][i], results["exact"][i], results["single"][i])


WEIGHTS = (0.5, 1.0, 0.8)
FORMS = {
    "pointwise": lambda ops, g: ops.descend(g, form="pointwise", damping=0.3, weights=WEIGHTS, residual=0.7),
    "root": lambda ops, g: ops.descend(g, form="root", damping=0.3, weights=WEIGHTS),
    "plain": lambda ops, g: ops.descend(g, form="plain", damping=0.0, weights=WEIGHTS),
    "tile": lambda ops, g: ops.tile(g, size=(3, 5, 3), damping=0.3, weights=WEIGHTS, residual=0.7),
    "even tile": lambda ops, g: ops.tile(g, size=(2, 6, 4), damping=0.3, weights=WEIGHTS, residual=0.7),
}

THREADED_COSTS = (
    ("mse", {}),
    ("mse", {"demons": 0.8}),
    ("lncc", {"radius": (2, 2, 2), "flat": (1e-4, 1e-4)}),
    ("lncc", {"radius": (2, 2, 2), "flat": (1e-4, 1e-4), "window": "gaussian"}),
    ("mi", COSTS["mi"][1][0]),
)


def everything(fixed, moving, field, matrix):
    """The results of every kernel for the same input."""
    out = []
    for name, options in THREADED_COSTS:
        gradient = torch.empty_like(field)
        out += [getattr(cpu, name)(fixed, moving, field, matrix, gradient=gradient, **options), gradient]
    for run in FORMS.values():
        step = field.clone()
        out += [run(cpu, step), step]
    step, first, second = field.clone(), torch.zeros_like(field), torch.zeros_like(field)
    figures = cpu.adam(step, first, second, number=2, betas=(0.9, 0.999), epsilon=1e-8, weights=WEIGHTS)
    out += [figures, step, first, second, cpu.norms(field, WEIGHTS)]
    out += [cpu.smooth_gaussian(field.clone(), (1, 1, 1)), cpu.smooth_box(field.clone(), (1, 2, 3))]
    out += [cpu.resize(field, (11, 30, 17), (0.8, 1.2, 1.3), (-0.1, 0.1, 0.2)), cpu.jacobian_determinant(field)]
    return [*out, cpu.compose(field, field), *cpu.invert(field)]


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one core only")
def test_results_do_not_depend_on_the_number_of_threads():
    *images, matrix = problem(((9, 37, 23), (11, 30, 25)))
    results = []
    for number in (1, 2):
        with threads(number):
            results.append(everything(*single(*images), matrix))
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two) if torch.is_tensor(one) else one == two


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_descent(form, shapes):
    _, _, field, _ = problem(shapes)
    field[:, 0, 1, 1] = 0
    found, exact, rough = field.float(), field.clone(), field.float()
    figures = FORMS[form](cpu, found)
    expected = FORMS[form](reference, exact)
    FORMS[form](reference, rough)
    assert_as_exact(found, exact, rough)
    assert figures == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shapes", SHAPES)
def test_adam_with_its_moments(shapes):
    _, _, field, _ = problem(shapes)
    states = {}
    for key, ops, dtype in (("cpu", cpu, torch.float32), ("exact", reference, torch.float64)):
        first, second = torch.zeros_like(field, dtype=dtype), torch.zeros_like(field, dtype=dtype)
        for number in (1, 2, 3):
            step = (field * number).to(dtype)
            options = {"number": number, "betas": (0.9, 0.999), "epsilon": 1e-8, "weights": WEIGHTS}
            figures = ops.adam(step, first, second, **options)
        states[key] = (step, first, second, figures)
    for found, exact in zip(states["cpu"][:3], states["exact"][:3], strict=True):
        assert torch.allclose(found.double(), exact, rtol=2e-5, atol=1e-6)
    assert states["cpu"][3] == pytest.approx(states["exact"][3], rel=1e-5)


@pytest.mark.parametrize("shapes", SHAPES)
def test_norms(shapes):
    _, _, field, _ = problem(shapes)
    field[:, 0, 1, 1] = 0
    assert cpu.norms(field.float(), WEIGHTS) == pytest.approx(reference.norms(field, WEIGHTS), rel=1e-5)


@pytest.mark.parametrize("size", [2, 3])
def test_closed_forms_are_the_damped_solve(size):
    """Sherman-Morrison (pointwise) and the adjugate (tile of one voxel) against torch.linalg.solve."""
    shape = (1, 5, 6) if size == 2 else (4, 5, 6)
    g = problem((shape, shape))[2]
    vectors = g.reshape(3, -1).T
    blocks = vectors[:, :, None] * vectors[:, None, :] + 0.2 * torch.eye(3, dtype=torch.float64)
    solved = -0.6 * torch.linalg.solve(blocks, vectors).T.reshape(g.shape)
    options = {"damping": 0.2, "weights": (1.0, 1.0, 1.0), "residual": 0.6}
    for ops in (cpu, reference):
        pointwise, tiled = g.float(), g.float()
        ops.descend(pointwise, form="pointwise", **options)
        ops.tile(tiled, size=(1, 1, 1), **options)
        assert torch.allclose(pointwise.double(), solved, atol=1e-5)
        assert torch.allclose(tiled.double(), solved, atol=1e-4)


def test_demons_is_pointwise_lm_with_a_residual_per_voxel():
    """n r / (|n|² + λ) with λ = α² r², voxel by voxel (paper eq. 9)."""
    fixed, moving, field, matrix = problem(SHAPES[0])
    alpha = 0.8
    warped, slope, inside = reference.sample_gradient(moving, field, matrix)
    for ops, dtype in ((reference, torch.float64), (cpu, torch.float32)):
        force = torch.empty_like(field, dtype=dtype)
        ops.mse(fixed.to(dtype), moving.to(dtype), field.to(dtype), matrix, gradient=force, demons=alpha)
        for index in inside.nonzero()[::17].tolist():
            z, y, x = index
            residual = float(fixed[z, y, x] - warped[z, y, x])
            g = slope[:, z, y, x].reshape(3, 1, 1, 1).clone()
            options = {"form": "pointwise", "weights": (1.0, 1.0, 1.0)}
            # The residual's Jacobian is -n, so the LM step for r with gradient n comes with the other sign.
            reference.descend(g, damping=(alpha * residual) ** 2, residual=-residual, **options)
            assert torch.allclose(-force[:, z, y, x].double(), g.reshape(3), atol=2e-4)


def permuted(shape):
    return torch.rand((*shape, 3), generator=torch.Generator().manual_seed(3)).permute(3, 0, 1, 2)


def test_fields_that_are_not_contiguous_are_read_but_not_written():
    field = permuted((5, 6, 7))
    assert torch.equal(cpu.compose(field, field), cpu.compose(field.contiguous(), field.contiguous()))
    assert torch.equal(cpu.invert(field)[0], cpu.invert(field.contiguous())[0])
    with pytest.raises(TypeError, match="contiguous"):
        cpu.tile(permuted((5, 6, 7)), size=(3, 3, 3), damping=0.1, weights=(1.0, 1.0, 1.0))
    with pytest.raises(TypeError, match="contiguous"):
        cpu.smooth_gaussian(field, (1.0, 1.0, 1.0))
    with pytest.raises(TypeError, match="contiguous"):
        cpu.compose(field, field, out=permuted((5, 6, 7)))


def test_a_nan_displacement_never_becomes_an_index():
    field = torch.zeros((3, 5, 6, 7))
    field[:, 2, 3, 4] = torch.nan
    found = cpu.compose(field, torch.full_like(field, torch.nan))
    assert bool(found.isnan().all())
    assert bool(cpu.invert(field)[0].isfinite()[:, 0].all())
