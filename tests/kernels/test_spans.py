"""The spans that the LNCC kernel is confined to: faster where an image is empty, and never different."""

import numpy as np
import pytest
import torch

from warpfactor.kernels import cpu, reference

FLAT = 1e-3
SHAPES = [(19, 21, 33), (7, 40, 17), (1, 31, 45), (12, 5, 70)]


def block_in(shape, generator):
    """An image of one value with a textured block in it, and a moving one that is textured everywhere."""
    fixed = torch.full(shape, -0.7)
    inner = tuple(slice(n // 3, n - n // 4 if n > 1 else 1) for n in shape)
    fixed[inner] = torch.rand(shape, generator=generator)[inner]
    return fixed, fixed + 0.5 * torch.rand(shape, generator=generator)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("window", ["box", "gaussian"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_value_and_gradient_are_those_of_the_whole_image(generator, shape, window, exact, masked):
    fixed, moving = block_in(shape, generator)
    u = torch.randn((3, *shape), generator=generator)
    mask = (torch.rand(shape, generator=generator) > 0.3).to(torch.uint8) if masked else None
    radius = (1 if shape[0] > 1 else 0, 2, 1)
    spans = cpu.lncc_spans(fixed, mask, radius=radius, flat=FLAT)
    assert (spans[..., 1] - spans[..., 0]).sum() < 0.95 * cpu.spans.whole_spans(shape)[..., 1].sum()
    room = cpu.lncc_room(shape, radius, window)
    for part in room:
        part.fill(np.nan)
    options = {"radius": radius, "window": window, "exact": exact, "symmetric": True, "flat": (FLAT, FLAT)}
    call = (fixed, moving, u, torch.eye(3, 4, dtype=torch.float64))
    whole, confined = torch.full_like(u, torch.nan), torch.full_like(u, torch.nan)
    expected = cpu.lncc(*call, gradient=whole, fixed_mask=mask, **options)
    for _ in range(2):  # whatever the first call left in the room
        found = cpu.lncc(*call, gradient=confined, fixed_mask=mask, room=room, spans=spans, **options)
        assert found == pytest.approx(expected, rel=1e-9)
        torch.testing.assert_close(confined, whole, rtol=1e-4, atol=1e-5 * float(whole.abs().max()))
    value = cpu.lncc(*call, fixed_mask=mask, room=room, spans=spans, **options)
    assert value == pytest.approx(expected, rel=1e-9)
    defined = torch.empty_like(u)
    assert reference.lncc(*call, gradient=defined, fixed_mask=mask, **options) == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(confined, defined, rtol=1e-3, atol=1e-3 * float(defined.abs().max()))


def test_spans_hold_two_radii_around_what_differs_from_the_background():
    fixed = torch.zeros(20, 16, 64)
    fixed[10, 9, 30] = 1.0
    spans = cpu.lncc_spans(fixed, None, radius=(2, 1, 3), flat=FLAT)
    used = spans[..., 1] > spans[..., 0]
    assert np.flatnonzero(used.any(axis=1)).tolist() == list(range(6, 15))
    assert np.flatnonzero(used.any(axis=0)).tolist() == [3, 4, 5]  # rows 7 to 11, two rows in a chunk
    assert spans[10, 4].tolist() == [24, 40]  # 24 to 36, to the next multiple of 8


def test_differences_that_no_window_could_count_are_background(generator):
    fixed = 0.4 * FLAT**0.5 * torch.rand((9, 9, 9), generator=generator)
    assert not cpu.lncc_spans(fixed, None, radius=(1, 1, 1), flat=FLAT).any()
    whole = cpu.lncc_spans(fixed, None, radius=(1, 1, 1), flat=0.0)
    assert whole.tolist() == cpu.spans.whole_spans(fixed.shape).tolist()


def test_whole_numbers_have_the_same_spans(generator):
    fixed, _ = block_in((9, 20, 60), generator)
    numbers = (1000 * fixed).round().to(torch.int16)
    spans = cpu.lncc_spans(fixed, None, radius=(1, 1, 1), flat=FLAT)
    assert cpu.lncc_spans(numbers, None, radius=(1, 1, 1), flat=FLAT * 1e6).tolist() == spans.tolist()


@pytest.mark.parametrize("shape", [(9, 10, 12), (8, 10, 11), (9, 5, 11)])
def test_spans_of_another_image_are_refused(shape):
    image = torch.zeros(9, 10, 11)
    spans = cpu.spans.whole_spans(shape)
    with pytest.raises(ValueError, match="another image"):
        cpu.lncc(image, image, torch.zeros(3, 9, 10, 11), torch.eye(3, 4), radius=(1, 1, 1), spans=spans)
