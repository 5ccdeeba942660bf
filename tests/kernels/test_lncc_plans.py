"""Plans for LNCC: made once for all channels of a level, they make the kernel faster and change nothing."""

import math

import numba
import numpy as np
import pytest
import torch

from kernel_problems import object_in, problem, single, threads
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference
from warpfactor.kernels.ops import Slab

FLAT = 1e-3
SHAPES = [(19, 21, 33), (7, 40, 17), (1, 31, 45), (12, 5, 70)]
SETTINGS = {"radius": (1, 1, 1), "window": "box"}


def plan_for(shape, **changes):
    """A plan that computes every voxel."""
    options = {**SETTINGS, "exact": True, "floors": (0.0,), **changes}
    return cpu.lncc_plans(torch.zeros((1, *shape)), None, **options)[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("window", ["box", "gaussian"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_value_and_gradient_are_those_without_a_plan(generator, shape, window, exact, masked):
    pairs = [object_in(shape, generator, lean) for lean in (0.6, -0.6, 0.0)]
    u = torch.randn((3, *shape), generator=generator)
    names = ("fixed_mask", "moving_mask") if masked else ()
    masks = {name: (torch.rand(shape, generator=generator) > 0.2).to(torch.uint8) for name in names}
    radius = (1 if shape[0] > 1 else 0, 2, 1)
    fixed = torch.stack([pair[0] for pair in pairs])
    settings = {"radius": radius, "window": window, "exact": exact}
    plans = cpu.lncc_plans(fixed, masks.get("fixed_mask"), floors=(FLAT,) * 3, **settings)
    for part in plans[0].buffers:
        part.fill(7.0)  # whatever earlier calls have left there
    options = {**settings, "squared": window == "box", "symmetric": True, "flat": (FLAT, FLAT), **masks}
    matrix = torch.eye(3, 4, dtype=torch.float64)
    for (image, moving), plan in zip([*pairs, pairs[0]], [*plans, plans[0]], strict=True):
        whole, found = torch.full_like(u, torch.nan), torch.full_like(u, torch.nan)
        expected = cpu.lncc(image, moving, u, matrix, gradient=whole, **options)
        value = cpu.lncc(image, moving, u, matrix, gradient=found, plan=plan, **options)
        alone = cpu.lncc(image, moving, u, matrix, plan=plan, **options)
        assert value == pytest.approx(expected, rel=1e-9)
        assert alone == pytest.approx(expected, rel=1e-7)  # without derivatives another loop interpolates
        torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-6 * float(whole.abs().max()))


def test_the_gradient_is_that_of_the_reference(generator):
    shape, radius = (13, 22, 35), (2, 1, 2)
    fixed, moving = object_in(shape, generator)
    u = torch.randn((3, *shape), generator=generator)
    options = {"radius": radius, "flat": (FLAT, FLAT), "symmetric": True}
    (plan,) = cpu.lncc_plans(fixed[None], None, radius=radius, window="box", exact=True, floors=(FLAT,))
    found, exact = torch.empty_like(u), torch.empty_like(u, dtype=torch.float64)
    matrix = torch.eye(3, 4, dtype=torch.float64)
    cpu.lncc(fixed, moving, u, matrix, gradient=found, plan=plan, **options)
    reference.lncc(fixed.double(), moving.double(), u.double(), matrix, gradient=exact, **options)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-5 * float(exact.abs().max()))


@pytest.mark.parametrize("window", ["box", "gaussian"])
@pytest.mark.parametrize("exact", [True, False])
def test_a_plan_can_be_used_many_times(generator, window, exact):
    shape, radius = (9, 10, 11), (2, 1, 2)
    plan = plan_for(shape, radius=radius, window=window)
    for part in plan.buffers:
        part.fill(np.nan)
    matrix = torch.eye(3, 4, dtype=torch.float64)
    options = {"radius": radius, "window": window, "exact": exact, "flat": (0.0, 0.0), "symmetric": True}
    for _ in range(3):
        fixed, moving = (torch.randn(shape, generator=generator) for _ in range(2))
        u = torch.randn((3, *shape), generator=generator)
        gradients = torch.empty_like(u), torch.empty_like(u)
        first = cpu.lncc(fixed, moving, u, matrix, gradient=gradients[0], **options)
        assert cpu.lncc(fixed, moving, u, matrix, gradient=gradients[1], plan=plan, **options) == first
        assert torch.equal(*gradients)


@pytest.mark.parametrize(("made", "used"), [(1, 2), (2, 1)])
@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one core only")
def test_a_plan_serves_fewer_and_more_threads(made, used):
    shape = (11, 60, 19)
    *images, matrix = problem((shape, shape))
    with threads(made):
        plan = plan_for(shape)
    with threads(used):
        value = cpu.lncc(*single(*images), matrix, **SETTINGS, plan=plan)
        assert value == cpu.lncc(*single(*images), matrix, **SETTINGS)


def test_a_plan_for_another_gradient_changes_nothing():
    shape = (7, 60, 19)
    *images, matrix = problem((shape, shape))
    plans = [plan_for(shape, exact=exact) for exact in (True, False)]
    assert len(plans[0].division.blocks) != len(plans[1].division.blocks)
    gradients = [torch.empty((3, *shape)) for _ in plans]
    values = [
        cpu.lncc(*single(*images), matrix, **SETTINGS, plan=plan, gradient=gradient)
        for plan, gradient in zip(plans, gradients, strict=True)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-7)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5 * float(gradients[0].abs().max()))


@pytest.mark.parametrize(
    "plan",
    [
        plan_for((9, 10, 12)),
        plan_for((9, 5, 11)),
        plan_for((9, 10, 11), radius=(1, 1, 2)),
        plan_for((9, 10, 11), window="gaussian"),
    ],
    ids=["width", "height", "radius", "window"],
)
def test_a_plan_for_another_image_or_window_is_refused(plan):
    image = torch.zeros(9, 10, 11)
    with pytest.raises(ValueError, match="another image or window"):
        cpu.lncc(image, image, torch.zeros(3, 9, 10, 11), torch.eye(3, 4), **SETTINGS, plan=plan)


def test_a_plan_of_another_backend_is_refused():
    image = torch.zeros(9, 10, 11)
    with pytest.raises(TypeError, match="same backend"):
        cpu.lncc(image, image, torch.zeros(3, 9, 10, 11), torch.eye(3, 4), **SETTINGS, plan=object())


def test_the_reference_needs_no_plans():
    fixed = torch.zeros(3, 4, 5, 6)
    assert reference.lncc_plans(fixed, None, exact=True, floors=(math.inf,) * 3, **SETTINGS) == (None, None, None)


@pytest.mark.parametrize("backend", [cpu, reference])
@pytest.mark.parametrize(("exact", "thickness"), [(True, 4), (True, 9), (False, 1)])
def test_slabs_add_up_to_the_whole(generator, backend, exact, thickness):
    shape, radius = (21, 26, 35), (2, 2, 1)
    fixed, moving = object_in(shape, generator)
    u = torch.randn((3, *shape), generator=generator)
    matrix = torch.tensor([[1.05, 0.1, 0, -0.6], [-0.1, 0.97, 0.05, 0.4], [0.02, 0, 1.0, 0.3]], dtype=torch.float64)
    options = {"radius": radius, "exact": exact, "symmetric": True, "flat": (FLAT, FLAT)}
    whole = torch.empty_like(u)
    expected = backend.lncc(fixed, moving, u, matrix, gradient=whole, **options)
    cores = [slice(z, min(z + thickness, 21)) for z in range(0, 21, thickness)]
    slabs = [Slab(slice(max(0, core.start - 5), min(21, core.stop + 5)), core) for core in cores]
    plans = backend.lncc_slabs(fixed[None], None, slabs=slabs, radius=radius, window="box", exact=exact, floors=(FLAT,))
    totals, found = np.zeros(2), torch.full_like(u, torch.nan)
    for slab, (plan,) in zip(slabs, plans, strict=True):
        there = matrix.clone()
        there[:, 3] += slab.outer.start * there[:, 0]
        part, gradient = u[:, slab.outer].contiguous(), torch.full_like(u[:, slab.outer], torch.nan)
        totals += backend.lncc(fixed[slab.outer], moving, part, there, gradient=gradient, plan=plan, **options)
        found[:, slab.core] = gradient[:, slab.inner]
    assert totals == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=2e-5 * float(whole.abs().max()))
