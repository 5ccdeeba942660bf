"""Spans: the voxels of a row that the LNCC kernel computes."""

import numpy as np
import torch

from kernel_problems import object_in
from warpfactor.kernels import numba as cpu
from warpfactor.kernels.numba.lncc.spans import contrast_spans

FLOOR = 1e-3


def test_spans_reach_two_radii_beyond_what_differs_from_the_background():
    fixed = torch.zeros(20, 16, 64)
    fixed[10, 9, 30] = 1.0
    spans = contrast_spans(fixed, None, radius=(2, 1, 3), floor=FLOOR)
    used = spans[..., 1] > spans[..., 0]
    assert np.flatnonzero(used.any(axis=1)).tolist() == list(range(6, 15))
    assert np.flatnonzero(used.any(axis=0)).tolist() == list(range(7, 12))
    assert spans[10, 9].tolist() == [24, 40]  # voxels 24 to 36, up to the next multiple of 8


def test_a_mask_limits_spans():
    fixed = torch.zeros(5, 5, 64)
    fixed[2, 2, 30] = 1.0
    mask = torch.ones(5, 5, 64, dtype=torch.uint8)
    mask[2, 2, 30] = 0
    assert not contrast_spans(fixed, mask, radius=(1, 1, 1), floor=FLOOR).any()


def test_differences_too_small_for_any_window_are_background(generator):
    fixed = 0.4 * FLOOR**0.5 * torch.rand((9, 9, 9), generator=generator)
    assert not contrast_spans(fixed, None, radius=(1, 1, 1), floor=FLOOR).any()


def test_without_a_floor_every_voxel_is_computed(generator):
    fixed = torch.rand((9, 9, 9), generator=generator)
    assert (contrast_spans(fixed, None, radius=(1, 1, 1), floor=0.0) == (0, 9)).all()


def test_integer_images_have_the_same_spans(generator):
    fixed, _ = object_in((9, 20, 60), generator)
    spans = contrast_spans(fixed, None, radius=(1, 1, 1), floor=FLOOR)
    integers = (1000 * fixed).round().to(torch.int16)
    assert (contrast_spans(integers, None, radius=(1, 1, 1), floor=FLOOR * 1e6) == spans).all()


def test_the_gradient_is_zero_outside_the_spans_only(generator):
    shape, settings = (19, 21, 33), {"radius": (1, 2, 1), "window": "box"}
    fixed, moving = object_in(shape, generator)
    (plan,) = cpu.lncc_plans(fixed[None], None, exact=True, floors=(FLOOR,), **settings)
    inside = np.zeros(shape, bool)
    for z, y in np.ndindex(*shape[:2]):
        inside[z, y, slice(*plan.division.spans[z, y])] = True
    assert 0 < inside.mean() < 0.95
    gradient = torch.full((3, *shape), torch.nan)
    matrix, u = torch.eye(3, 4, dtype=torch.float64), torch.randn((3, *shape), generator=generator)
    cpu.lncc(fixed, moving, u, matrix, gradient=gradient, flat=(FLOOR, FLOOR), plan=plan, **settings)
    assert not gradient[:, torch.from_numpy(~inside)].any()
    assert gradient[:, torch.from_numpy(inside)].any()
