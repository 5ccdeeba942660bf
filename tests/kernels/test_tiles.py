"""Tiles of the LNCC kernel: every row is in one of them, and where they are cut changes nothing."""

import numba
import numpy as np
import pytest
import torch
from test_cpu import assert_as_exact, problem, single
from test_spans import object_in

from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference
from warpfactor.kernels.numba.lncc import tiles as module
from warpfactor.kernels.numba.lncc.spans import Spans, whole_spans
from warpfactor.kernels.numba.lncc.tiles import make_seams, make_tiles


def rows_in(tiles, shape):
    """(D, H): how many tiles hold each row."""
    count = np.zeros(shape[:2], int)
    for z0, z1, y0, y1 in tiles:
        count[z0:z1, y0:y1] += 1
    return count


SHAPES = [(1, 1, 1), (1, 300, 40), (7, 9, 11), (60, 70, 64), (192, 192, 192), (512, 512, 512), (2, 1000, 5)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("radius", [(0, 1, 1), (1, 1, 1), (3, 3, 3), (7, 2, 7)])
def test_every_row_is_in_one_tile(shape, radius):
    for seed in range(3):
        work = np.random.default_rng(seed).integers(0, 50, shape[:2]) * (np.random.default_rng(seed).random() > 0.3)
        assert (rows_in(make_tiles(work, shape, radius), shape) == 1).all()


def test_tiles_cost_about_the_same():
    work = np.zeros((200, 260), int)
    work[20:140, 90:180] = 100  # all of the object is on one side
    tiles = make_tiles(work, (200, 260, 120), (1, 1, 1))
    shares = [work[z0:z1, y0:y1].sum() / work.sum() for z0, z1, y0, y1 in tiles]
    assert len(tiles) == 8
    assert shares == pytest.approx([0.125] * 8, abs=0.02)


def test_images_of_few_rows_are_cut_between_planes():
    assert make_tiles(np.ones((200, 5), int), (200, 5, 90), (2, 2, 2)).tolist() == [[0, 100, 0, 5], [100, 200, 0, 5]]


def test_what_a_thread_keeps_of_a_tile_fits_into_the_cache():
    """For a cube of 512 voxels and a window of 7, in which the rings of whole planes would take 52 MB."""
    shape, radius = (512, 512, 512), (3, 3, 3)
    spans = whole_spans(shape, radius)
    threads = min(numba.get_num_threads(), len(spans.tiles))
    *rings, seam = cpu.lncc_room(shape, radius, "box", [spans])
    assert sum(part.nbytes for part in rings) / threads < 1.2 * module.KEPT  # windows reach beyond a tile
    assert seam.nbytes / np.prod(shape) < 0.7  # 4 bytes a voxel of the rows on both sides of 7 cuts


def test_seams_are_the_rows_on_both_sides_of_every_cut():
    tiles = np.array([(0, 5, 0, 6), (0, 5, 6, 9), (0, 5, 9, 30)])
    numbers = make_seams(tiles, 30, 2)
    assert np.flatnonzero(numbers >= 0).tolist() == [4, 5, 6, 7, 8, 9, 10]
    assert numbers[numbers >= 0].tolist() == list(range(7))
    assert (make_seams(tiles[:1], 30, 2) == -1).all()
    assert make_seams(tiles, 30, 50).tolist() == list(range(30))


@pytest.mark.parametrize("reach", [1, 4, 12])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_seams_change_nothing(reach, exact, masked, generator):
    shape, radius = (5, 23, 17), (1, 2, 1)
    *images, matrix = problem((shape, shape))
    images = single(*images)
    spans = cut(whole_spans(shape, radius), shape, [], [6, 7, 15])
    masks = {name: torch.rand(shape, generator=generator) > 0.2 for name in ("fixed_mask", "moving_mask") if masked}
    options = {"radius": radius, "exact": exact, "symmetric": True, **masks}
    results = []
    for seams in (np.full(shape[1], -1, np.int64), make_seams(spans.tiles, shape[1], reach)):
        gradient = torch.full((3, *shape), torch.nan)
        value = cpu.lncc(*images, matrix, gradient=gradient, spans=spans._replace(seams=seams), **options)
        results.append((value, gradient))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-7)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-4, atol=1e-5 * float(results[0][1].abs().max()))


CUTS = {"one": ([], []), "planes": ([1, 2, 7], []), "rows": ([], [1, 5, 6]), "both": ([4, 5], [3, 9])}


def cut(spans, shape, planes, rows):
    """The same spans with tiles cut before those planes and rows."""
    z, y = [0, *planes, shape[0]], [0, *rows, shape[1]]
    tiles = [(z[i], z[i + 1], y[j], y[j + 1]) for i in range(len(z) - 1) for j in range(len(y) - 1)]
    tiles = np.array(tiles, np.int64)
    return Spans(spans.rows, tiles, make_seams(tiles, shape[1], 3))


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("window", ["box", "gaussian"])
@pytest.mark.parametrize("radius", [(1, 2, 1), (3, 1, 4), (5, 6, 2)])
@pytest.mark.parametrize(("exact", "symmetric"), [(True, True), (True, False), (False, True)])
def test_cuts_change_nothing(cuts, window, radius, exact, symmetric):
    shape = (11, 12, 19)
    fixed, moving, field, matrix = problem((shape, shape))
    images = single(fixed, moving, field)
    options = {"radius": radius, "window": window, "exact": exact, "symmetric": symmetric, "flat": (0.05, 0.05)}
    spans = cut(whole_spans(shape, radius), shape, *CUTS[cuts])
    found, rough, true = (torch.empty_like(field, dtype=d) for d in (torch.float32, torch.float32, torch.float64))
    value = cpu.lncc(*images, matrix, gradient=found, spans=spans, **options)
    assert cpu.lncc(*images, matrix, spans=spans, **options) == pytest.approx(value, rel=1e-7)
    reference.lncc(*images, matrix, gradient=rough, **options)
    assert value == pytest.approx(reference.lncc(fixed, moving, field, matrix, gradient=true, **options), rel=1e-5)
    assert_as_exact(found, true, rough)


@pytest.mark.skipif(numba.get_num_threads() < 2, reason="one core only")
def test_the_same_bits_for_any_number_of_threads():
    shape, radius = (11, 12, 19), (2, 1, 3)
    *images, matrix = problem((shape, shape))
    images = single(*images)
    spans = cut(whole_spans(shape, radius), shape, *CUTS["both"])
    found = []
    before = numba.get_num_threads()
    try:
        for threads in range(1, before + 1):
            numba.set_num_threads(threads)
            gradient = torch.empty((3, *shape))
            found.append((cpu.lncc(*images, matrix, radius=radius, spans=spans, gradient=gradient), gradient))
    finally:
        numba.set_num_threads(before)
    assert all(value == found[0][0] and torch.equal(gradient, found[0][1]) for value, gradient in found)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_cuts_through_slanted_spans_change_nothing(seed, exact):
    shape, radius = (13, 22, 35), (2, 1, 3)
    generator = torch.Generator().manual_seed(seed)
    fixed, moving = object_in(shape, generator, lean=0.3 * seed - 0.8)
    u = torch.randn((3, *shape), generator=generator)
    options = {"radius": radius, "flat": (1e-3, 1e-3), "symmetric": seed % 2 == 0, "exact": exact}
    options["window"] = "gaussian" if seed == 5 else "box"
    spans = cpu.lncc_spans(fixed, None, radius=radius, flat=1e-3)
    planes, rows = ([3, 4, 9], [5, 6, 15]) if seed % 3 else ([1], [2, 11, 20])
    matrix = torch.eye(3, 4, dtype=torch.float64)
    whole, found = torch.empty_like(u), torch.full_like(u, torch.nan)
    expected = cpu.lncc(fixed, moving, u, matrix, gradient=whole, spans=cut(spans, shape, [], []), **options)
    value = cpu.lncc(fixed, moving, u, matrix, gradient=found, spans=cut(spans, shape, planes, rows), **options)
    assert value == pytest.approx(expected, rel=1e-7)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5 * float(whole.abs().max()))


@pytest.mark.parametrize("threads", [(1, 2), (2, 1)])
@pytest.mark.skipif(numba.get_num_threads() < 2, reason="one core only")
def test_a_room_serves_fewer_and_more_threads(threads):
    shape, radius = (11, 60, 19), (1, 1, 1)
    *images, matrix = problem((shape, shape))
    images = single(*images)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(threads[0])
        room = cpu.lncc_room(shape, radius)
        numba.set_num_threads(threads[1])
        assert cpu.lncc(*images, matrix, radius=radius, room=room) == cpu.lncc(*images, matrix, radius=radius)
    finally:
        numba.set_num_threads(before)


def test_what_is_kept_of_a_large_slice_is_bounded():
    shape, radius = (1, 6000, 6000), (0, 2, 2)
    spans = whole_spans(shape, radius)
    threads = min(numba.get_num_threads(), len(spans.tiles))
    *rings, seam = cpu.lncc_room(shape, radius, "box", [spans])
    assert sum(part.nbytes for part in rings) / threads < 1.2 * module.ONCE
    assert seam.nbytes / np.prod(shape) < 0.8


@pytest.mark.parametrize("tiles", [[[0, 9, 0, 20]], [[0, 9, 0, 20], [0, 9, 21, 40]]])
def test_tiles_that_leave_rows_out_are_refused(tiles):
    shape, radius = (9, 40, 11), (1, 1, 1)
    image = torch.rand(shape)
    spans = whole_spans(shape, radius)._replace(tiles=np.array(tiles))
    with pytest.raises(ValueError, match="another image"):
        cpu.lncc(image, image, torch.zeros(3, *shape), torch.eye(3, 4), radius=radius, spans=spans)


@pytest.mark.parametrize("exact", [True, False])
def test_spans_for_another_gradient_are_slower_not_different(exact, generator):
    shape, radius = (7, 60, 19), (1, 1, 1)
    *images, matrix = problem((shape, shape))
    images = single(*images)
    results = []
    for made_for in (exact, not exact):
        spans = cpu.lncc_spans(images[0], None, radius=radius, flat=0.0, exact=made_for)
        gradient = torch.empty((3, *shape))
        value = cpu.lncc(*images, matrix, radius=radius, spans=spans, exact=exact, gradient=gradient)
        results.append((value, gradient, len(spans.tiles)))
    (value, gradient, tiles), (other, found, others) = results
    assert tiles != others
    assert value == pytest.approx(other, rel=1e-7)
    torch.testing.assert_close(found, gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))


def test_seams_that_share_a_place_are_refused():
    shape, radius = (9, 40, 11), (1, 1, 1)
    image = torch.rand(shape)
    spans = whole_spans(shape, radius)._replace(seams=np.zeros(40, np.int64))
    with pytest.raises(ValueError, match="another image"):
        cpu.lncc(image, image, torch.zeros(3, *shape), torch.eye(3, 4), radius=radius, spans=spans)


def test_a_room_for_other_seams_is_refused():
    shape, radius = (9, 40, 11), (1, 1, 1)
    image = torch.rand(shape)
    spans = whole_spans(shape, radius)
    room = cpu.lncc_room(shape, radius, "box", [spans])
    wide = spans._replace(seams=np.arange(40))
    with pytest.raises(ValueError, match="another image"):
        cpu.lncc(image, image, torch.zeros(3, *shape), torch.eye(3, 4), radius=radius, spans=wide, room=room)


def test_a_room_for_smaller_tiles_is_refused():
    shape, radius = (9, 40, 11), (1, 1, 1)
    image = torch.rand(shape)
    spans = whole_spans(shape, radius)
    room = cpu.lncc_room(shape, radius, "box", [cut(spans, shape, [], [10, 20, 30])])
    with pytest.raises(ValueError, match="another image"):
        cpu.lncc(image, image, torch.zeros(3, *shape), torch.eye(3, 4), radius=radius, spans=spans, room=room)
