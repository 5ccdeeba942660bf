"""Blocks of the LNCC kernel: every row is in exactly one of them, and where the image is cut changes nothing."""

import numba
import numpy as np
import pytest
import torch

from kernel_problems import assert_as_exact, object_in, problem, single, threads
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference
from warpfactor.kernels.numba.lncc.blocks import CACHE_BYTES, CACHE_BYTES_SLICE, make_blocks, make_seams
from warpfactor.kernels.numba.lncc.plan import Division, make_plans, whole_plan
from warpfactor.kernels.numba.lncc.spans import contrast_spans, whole_spans

SHAPES = [(1, 1, 1), (1, 300, 40), (7, 9, 11), (60, 70, 64), (192, 192, 192), (512, 512, 512), (2, 1000, 5)]
CUTS = {"one": ([], []), "planes": ([1, 2, 7], []), "rows": ([], [1, 5, 6]), "both": ([4, 5], [3, 9])}


def plan_with_cuts(spans, shape, radius, planes, rows, *, window="box", reach=3):
    """A plan with blocks that are cut before these planes and rows, and rows of seams up to `reach` from a cut."""
    z, y = [0, *planes, shape[0]], [0, *rows, shape[1]]
    pairs = [(z[i], z[i + 1], y[j], y[j + 1]) for i in range(len(z) - 1) for j in range(len(y) - 1)]
    blocks = np.array(pairs, np.int64)
    (plan,) = make_plans([Division(spans, blocks, make_seams(blocks, shape[1], reach))], shape, radius, window)
    return plan


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("radius", [(0, 1, 1), (1, 1, 1), (3, 3, 3), (7, 2, 7)])
def test_every_row_is_in_one_block(shape, radius):
    for seed in range(3):
        random = np.random.default_rng(seed)
        work = random.integers(0, 50, shape[:2]) * (random.random() > 0.3)
        count = np.zeros(shape[:2], int)
        for z0, z1, y0, y1 in make_blocks(work, shape, radius):
            count[z0:z1, y0:y1] += 1
        assert (count == 1).all()


def test_blocks_cost_about_the_same():
    work = np.zeros((200, 260), int)
    work[20:140, 90:180] = 100  # the object is on one side of the image
    blocks = make_blocks(work, (200, 260, 120), (1, 1, 1))
    shares = [work[z0:z1, y0:y1].sum() / work.sum() for z0, z1, y0, y1 in blocks]
    assert len(blocks) == 8
    assert shares == pytest.approx([0.125] * 8, abs=0.02)


def test_images_of_few_rows_are_cut_between_planes():
    assert make_blocks(np.ones((200, 5), int), (200, 5, 90), (2, 2, 2)).tolist() == [[0, 100, 0, 5], [100, 200, 0, 5]]


@pytest.mark.parametrize(
    ("shape", "radius", "limit"),
    [((512, 512, 512), (3, 3, 3), CACHE_BYTES), ((1, 6000, 6000), (0, 2, 2), CACHE_BYTES_SLICE)],
)
def test_what_a_thread_keeps_of_a_large_image_is_bounded(shape, radius, limit, all_threads):
    plan = whole_plan(shape, radius, "box")
    workers = min(numba.get_num_threads(), len(plan.division.blocks))
    *rings, seams = plan.buffers
    assert sum(part.nbytes for part in rings) / workers < 1.2 * limit  # windows reach beyond a block
    assert seams.nbytes / np.prod(shape) < 0.8  # bytes per voxel


def test_seams_are_the_rows_on_both_sides_of_every_cut():
    blocks = np.array([(0, 5, 0, 6), (0, 5, 6, 9), (0, 5, 9, 30)])
    numbers = make_seams(blocks, 30, 2)
    assert np.flatnonzero(numbers >= 0).tolist() == [4, 5, 6, 7, 8, 9, 10]
    assert numbers[numbers >= 0].tolist() == list(range(7))
    assert (make_seams(blocks[:1], 30, 2) == -1).all()
    assert make_seams(blocks, 30, 50).tolist() == list(range(30))


@pytest.mark.parametrize("reach", [1, 4, 12])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_seams_change_nothing(reach, exact, masked, generator):
    shape, radius = (5, 23, 17), (1, 2, 1)
    *images, matrix = problem((shape, shape))
    masks = {name: torch.rand(shape, generator=generator) > 0.2 for name in ("fixed_mask", "moving_mask") if masked}
    results = []
    for width in (0, reach):
        plan = plan_with_cuts(whole_spans(shape), shape, radius, [], [6, 7, 15], reach=width)
        gradient = torch.full((3, *shape), torch.nan)
        options = {"radius": radius, "exact": exact, "symmetric": True, "plan": plan, **masks}
        results.append((cpu.lncc(*single(*images), matrix, gradient=gradient, **options), gradient))
    (value, gradient), (other, found) = results
    assert value == pytest.approx(other, rel=1e-7)
    torch.testing.assert_close(found, gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("window", ["box", "gaussian"])
@pytest.mark.parametrize("radius", [(1, 2, 1), (3, 1, 4), (5, 6, 2)])
@pytest.mark.parametrize(("exact", "symmetric"), [(True, True), (True, False), (False, True)])
def test_cuts_change_nothing(cuts, window, radius, exact, symmetric):
    shape = (11, 12, 19)
    fixed, moving, field, matrix = problem((shape, shape))
    images = single(fixed, moving, field)
    options = {"radius": radius, "window": window, "exact": exact, "symmetric": symmetric, "flat": (0.05, 0.05)}
    plan = plan_with_cuts(whole_spans(shape), shape, radius, *CUTS[cuts], window=window)
    found, rough, true = (torch.empty_like(field, dtype=d) for d in (torch.float32, torch.float32, torch.float64))
    value = cpu.lncc(*images, matrix, gradient=found, plan=plan, **options)
    assert cpu.lncc(*images, matrix, plan=plan, **options) == pytest.approx(value, rel=1e-7)
    reference.lncc(*images, matrix, gradient=rough, **options)
    assert value == pytest.approx(reference.lncc(fixed, moving, field, matrix, gradient=true, **options), rel=1e-5)
    assert_as_exact(found, true, rough)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_cuts_through_slanted_spans_change_nothing(seed, exact):
    shape, radius, window = (13, 22, 35), (2, 1, 3), "gaussian" if seed == 5 else "box"
    generator = torch.Generator().manual_seed(seed)
    fixed, moving = object_in(shape, generator, lean=0.3 * seed - 0.8)
    u = torch.randn((3, *shape), generator=generator)
    options = {"radius": radius, "flat": (1e-3, 1e-3), "symmetric": seed % 2 == 0, "exact": exact, "window": window}
    spans = contrast_spans(fixed, None, radius=radius, floor=1e-3)
    matrix = torch.eye(3, 4, dtype=torch.float64)
    results = []
    for cuts in (([], []), ([3, 4, 9], [5, 6, 15]) if seed % 3 else ([1], [2, 11, 20])):
        gradient = torch.full_like(u, torch.nan)
        plan = plan_with_cuts(spans, shape, radius, *cuts, window=window)
        results.append((cpu.lncc(fixed, moving, u, matrix, gradient=gradient, plan=plan, **options), gradient))
    (expected, whole), (value, found) = results
    assert value == pytest.approx(expected, rel=1e-7)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5 * float(whole.abs().max()))


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one core only")
def test_the_result_is_bit_identical_for_any_number_of_threads():
    shape, radius = (11, 12, 19), (2, 1, 3)
    *images, matrix = problem((shape, shape))
    plan = plan_with_cuts(whole_spans(shape), shape, radius, *CUTS["both"])
    found = []
    for number in range(1, numba.config.NUMBA_NUM_THREADS + 1):
        gradient = torch.empty((3, *shape))
        with threads(number):
            value = cpu.lncc(*single(*images), matrix, radius=radius, plan=plan, gradient=gradient)
        found.append((value, gradient))
    assert all(value == found[0][0] and torch.equal(gradient, found[0][1]) for value, gradient in found)


LONG_FLAT_WIDE = [(37, 20, 21), (9, 130, 131), (10, 60, 20), (1, 40, 50)]
GRADIENTS = [(True, False), (True, True), (False, False), (False, True)]
RADII = [(1, 1, 1), (2, 3, 2), (4, 1, 5)]


@pytest.mark.parametrize(
    ("shape", "radius", "exact", "symmetric"),
    [(shape, RADII[(i + j) % 3], *kind) for i, shape in enumerate(LONG_FLAT_WIDE) for j, kind in enumerate(GRADIENTS)],
)
def test_long_flat_and_wide_images(shape, radius, exact, symmetric):
    fixed, moving, field, matrix = problem((shape, shape))
    radius = radius if shape[0] > 1 else (0, *radius[1:])
    options = {"radius": radius, "exact": exact, "symmetric": symmetric, "flat": (0.05, 0.05)}
    images = single(fixed, moving, field)
    found, rough, true = (torch.empty_like(field, dtype=d) for d in (torch.float32, torch.float32, torch.float64))
    total = cpu.lncc(*images, matrix, gradient=found, **options)
    reference.lncc(*images, matrix, gradient=rough, **options)
    assert total == pytest.approx(reference.lncc(fixed, moving, field, matrix, gradient=true, **options), rel=1e-5)
    assert_as_exact(found, true, rough)
