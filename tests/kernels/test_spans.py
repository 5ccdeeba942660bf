"""The spans that the LNCC kernel is confined to: faster where an image is empty, and never different."""

import numpy as np
import pytest
import torch
from test_cpu import assert_as_exact

from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference
from warpfactor.kernels.numba.lncc.spans import whole_spans

FLAT = 1e-3
ALONE = 1e-7  # a value without slopes is interpolated by another loop, which may round otherwise in single precision
SHAPES = [(19, 21, 33), (7, 40, 17), (1, 31, 45), (12, 5, 70)]


def object_in(shape, generator, lean=0.6):
    """An image of one value with a slanted, textured ellipsoid in it, and a moving one that is textured everywhere."""
    axes = [torch.linspace(-1, 1, n) if n > 1 else torch.zeros(1) for n in shape]
    z, y, x = torch.meshgrid(*axes, indexing="ij")
    inside = z**2 + (y + lean * z) ** 2 + (x - lean * (y + z)) ** 2 < 0.3
    fixed = torch.where(inside, torch.rand(shape, generator=generator), -0.7)
    return fixed, fixed + 0.5 * torch.rand(shape, generator=generator)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("window", ["box", "gaussian"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_value_and_gradient_are_those_of_the_whole_image(generator, shape, window, exact, masked):
    fixed, moving = object_in(shape, generator)
    u = torch.randn((3, *shape), generator=generator)
    masks = {}
    if masked:
        names = ("fixed_mask", "moving_mask")
        masks = {name: (torch.rand(shape, generator=generator) > 0.2).to(torch.uint8) for name in names}
    radius = (1 if shape[0] > 1 else 0, 2, 1)
    spans = cpu.lncc_spans(fixed, masks.get("fixed_mask"), radius=radius, flat=FLAT)
    assert 0 < voxels_of(spans, shape).mean() < 0.95
    channels = [object_in(shape, generator, lean)[0] for lean in (-0.6, 0.0)]
    every = [cpu.lncc_spans(other, masks.get("fixed_mask"), radius=radius, flat=FLAT) for other in channels]
    room = cpu.lncc_room(shape, radius, window, [spans, *every])
    for part in room:
        part.fill(7.0)  # a NaN would stand for a voxel that does not count
    options = {"radius": radius, "window": window, "squared": window == "box", "exact": exact, "symmetric": True}
    options |= {"flat": (FLAT, FLAT), **masks}
    matrix = torch.eye(3, 4, dtype=torch.float64)
    whole, found = torch.full_like(u, torch.nan), torch.full_like(u, torch.nan)
    expected = cpu.lncc(fixed, moving, u, matrix, gradient=whole, **options)
    for other, others in zip(channels, every, strict=True):  # the room has served another channel in between
        value = cpu.lncc(fixed, moving, u, matrix, gradient=found, room=room, spans=spans, **options)
        assert value == pytest.approx(expected, rel=1e-9)
        torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-6 * float(whole.abs().max()))
        alone = cpu.lncc(fixed, moving, u, matrix, room=room, spans=spans, **options)
        assert alone == pytest.approx(expected, rel=ALONE)
        cpu.lncc(other, moving, u, matrix, gradient=torch.empty_like(u), room=room, spans=others, **options)
    beyond = torch.from_numpy(~voxels_of(spans, shape))
    assert not found[:, beyond].any()
    assert found[:, ~beyond].any()


def voxels_of(spans, shape):
    """(D, H, W) bool: what spans hold."""
    inside = np.zeros(shape, bool)
    for z, y in np.ndindex(*shape[:2]):
        inside[z, y, slice(*spans.rows[z, y])] = True
    return inside


def test_the_gradient_is_that_of_the_reference(generator):
    shape = (13, 22, 35)
    fixed, moving = object_in(shape, generator)
    u = torch.randn((3, *shape), generator=generator)
    options = {"radius": (2, 1, 2), "flat": (FLAT, FLAT), "symmetric": True}
    spans = cpu.lncc_spans(fixed, None, radius=(2, 1, 2), flat=FLAT)
    matrix = torch.eye(3, 4, dtype=torch.float64)
    found, rough, exact = torch.empty_like(u), torch.empty_like(u), torch.empty_like(u, dtype=torch.float64)
    cpu.lncc(fixed, moving, u, matrix, gradient=found, spans=spans, **options)
    reference.lncc(fixed, moving, u, matrix, gradient=rough, **options)
    reference.lncc(fixed.double(), moving.double(), u.double(), matrix, gradient=exact, **options)
    assert_as_exact(found, exact, rough)


def test_spans_hold_two_radii_around_what_differs_from_the_background():
    fixed = torch.zeros(20, 16, 64)
    fixed[10, 9, 30] = 1.0
    spans = cpu.lncc_spans(fixed, None, radius=(2, 1, 3), flat=FLAT)
    used = spans.rows[..., 1] > spans.rows[..., 0]
    assert np.flatnonzero(used.any(axis=1)).tolist() == list(range(6, 15))
    assert np.flatnonzero(used.any(axis=0)).tolist() == list(range(7, 12))
    assert spans.rows[10, 9].tolist() == [24, 40]  # 24 to 36, to the next multiple of 8


def test_differences_that_no_window_could_count_are_background(generator):
    fixed = 0.4 * FLAT**0.5 * torch.rand((9, 9, 9), generator=generator)
    assert not cpu.lncc_spans(fixed, None, radius=(1, 1, 1), flat=FLAT).rows.any()
    whole = cpu.lncc_spans(fixed, None, radius=(1, 1, 1), flat=0.0)
    assert (whole.rows == (0, 9)).all()


def test_whole_numbers_have_the_same_spans(generator):
    fixed, _ = object_in((9, 20, 60), generator)
    numbers = (1000 * fixed).round().to(torch.int16)
    spans = cpu.lncc_spans(fixed, None, radius=(1, 1, 1), flat=FLAT)
    assert cpu.lncc_spans(numbers, None, radius=(1, 1, 1), flat=FLAT * 1e6).rows.tolist() == spans.rows.tolist()


@pytest.mark.parametrize("shape", [(9, 10, 12), (8, 10, 11), (9, 5, 11)])
def test_spans_of_another_image_are_refused(shape):
    image = torch.zeros(9, 10, 11)
    spans = whole_spans(shape, (1, 1, 1))
    with pytest.raises(ValueError, match="another image"):
        cpu.lncc(image, image, torch.zeros(3, 9, 10, 11), torch.eye(3, 4), radius=(1, 1, 1), spans=spans)
