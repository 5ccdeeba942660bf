"""Some planes of an image, computed alone, have the bits that they have in the whole image."""

import numpy as np
import pytest
import torch

from kernel_problems import object_in
from warpfactor.kernels import numba as cpu
from warpfactor.kernels.numba import planes as parts

CUTS = [(0, 16), (16, 32), (32, 37), (37, 104)]  # the last two begin where no sum is taken anew
SHAPE = (104, 22, 19)
MATRIX = torch.tensor([[1.02, 0.03, -0.02, 0.4], [-0.03, 0.97, 0.05, 1.1], [0.02, 0.04, 1.01, -0.9]]).double()


def pair(generator, *, masked):
    """A fixed and a moving image with a displacement of some voxels, and their masks."""
    fixed, moving = object_in(SHAPE, generator)
    field = 1.5 * torch.randn((3, *SHAPE), generator=generator)
    masks = [(torch.rand(SHAPE, generator=generator) > 0.1).byte() if masked else None for _ in range(2)]
    return fixed, moving, field, masks


def only(tensor, planes, axis=0):
    """The tensor with NaN, or zero, in all other planes."""
    if tensor is None:
        return None
    found = torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else torch.zeros_like(tensor)
    inside = (slice(None),) * axis + (slice(*planes),)
    found[inside] = tensor[inside]
    return found


def same(found, whole):
    """Whether two tensors have the same bits, signs of zeros included."""
    return np.array_equal(found.numpy().view(np.int32), whole.numpy().view(np.int32))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("radius", [(1, 1, 1), (2, 2, 2), (4, 2, 1)])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("want", [True, False])
def test_lncc(generator, masked, radius, exact, want):
    fixed, moving, field, masks = pair(generator, masked=masked)
    floors = [0.01]
    options = {"radius": radius, "window": "box", "squared": True, "exact": exact, "symmetric": True}
    options |= {"flat": (floors[0], 0.01)}
    plan = cpu.lncc_plans(fixed[None], masks[0], radius=radius, window="box", exact=exact, floors=floors)[0]
    whole = torch.empty_like(field) if want else None
    given = {"moving_mask": masks[1], "plan": plan}
    sums = cpu.lncc(fixed, moving, field, MATRIX, **options, gradient=whole, fixed_mask=masks[0], **given)
    assert sums[1] > 100
    gathered = None
    for cut in CUTS:
        reach = parts.lncc_reach(cut, SHAPE[0], radius[0])
        gradient = torch.empty_like(field) if want else None
        images = only(fixed, reach), moving, only(field, reach, 1), MATRIX
        own = {"gradient": gradient, "fixed_mask": only(masks[0], reach)}
        found = parts.lncc(*images, cut, **options, **own, **given)
        gathered = np.zeros_like(found) if gathered is None else gathered
        gathered[..., slice(*cut)] = found[..., slice(*cut)]
        if want:
            assert same(gradient[:, slice(*cut)], whole[:, slice(*cut)])
    assert parts.lncc_total(gathered) == sums


def test_an_image_of_these_planes_has_blocks_cut_between_planes(generator):
    fixed, *_ = pair(generator, masked=False)
    fixed = fixed + torch.rand(SHAPE, generator=generator)
    plan = cpu.lncc_plans(fixed[None], None, radius=(1, 1, 1), window="box", exact=True, floors=[1e-4])[0]
    assert len(set(plan.division.blocks[:, 0])) == 2


@pytest.mark.parametrize("boundary", ["nearest", "zero"])
@pytest.mark.parametrize("tail", [(0.0, 1.0), (0.3, 4.0)])
@pytest.mark.parametrize("sparse", [False, True])
def test_smoothing(generator, boundary, tail, sparse):
    field = torch.randn((3, *SHAPE), generator=generator)
    if sparse:  # zeros of both signs, over most planes
        field[:, 5:30] *= 0.0
        field[:, 40:] *= 0.0
        field[:, :, :9] *= 0.0
    options = {"boundary": boundary, "truncate": 2.5, "tail": tail}
    sigma = (1.4, 1.1, 0.7)
    whole = cpu.smooth_gaussian(field.clone(), sigma, **options)
    reach = parts.smooth_reach(field, sigma, *options.values())
    inner = field.clone()
    parts.smooth_in_planes(inner, (0, SHAPE[0]), sigma, **options)
    for cut in CUTS:
        one = only(field, cut, 1)
        parts.smooth_in_planes(one, cut, sigma, **options)
        around = max(0, cut[0] - reach), min(SHAPE[0], cut[1] + reach)
        for beside in ((around[0], cut[0]), (cut[1], around[1])):
            one[:, slice(*beside)] = inner[:, slice(*beside)]
        parts.smooth_along_z(one, cut, sigma, **options)
        assert same(one[:, slice(*cut)], whole[:, slice(*cut)])


def test_steps_and_their_figures(generator):
    gradient = torch.randn((3, *SHAPE), generator=generator)
    weights = (0.5, 1.0, 0.9)
    options = {"form": "root", "damping": 0.3, "weights": weights, "residual": 0.7}
    whole = gradient.clone()
    norms, figures = cpu.norms(whole, weights), cpu.descend(whole, **options)
    sums = [[], []]
    for cut in CUTS:
        part = only(gradient, cut, 1)
        sums[0].append(parts.norms(part, weights, cut))
        sums[1].append(parts.descend(part, cut, **options))
        assert same(part[:, slice(*cut)], whole[:, slice(*cut)])
    assert tuple(np.concatenate(sums[0], axis=1).sum(1)) == norms
    assert parts.figures(np.concatenate(sums[1], axis=1)) == figures


def test_fields(generator):
    warp, step = (torch.randn((3, *SHAPE), generator=generator) for _ in range(2))
    composed, volume = cpu.compose(warp, step, scale=0.4), cpu.jacobian_determinant(warp)
    shape = (131, 30, 25)
    scale = [n / m for n, m in zip(SHAPE, shape, strict=True)]
    offset = [(s - 1) / 2 for s in scale]
    resized = cpu.resize(warp, shape, scale, offset)
    far = int(0.4 * step[0].abs().max()) + 2
    for cut in CUTS:
        reach, near = ((max(0, cut[0] - r), min(SHAPE[0], cut[1] + r)) for r in (far, 1))
        out = torch.empty_like(warp)
        parts.compose(only(warp, reach, 1), only(step, cut, 1), 0.4, out, cut)
        assert same(out[:, slice(*cut)], composed[:, slice(*cut)])
        assert same(parts.jacobian_determinant(only(warp, near, 1), cut)[slice(*cut)], volume[slice(*cut)])
    for cut in ((0, 40), (40, 131)):
        reach = parts.resize_reach(cut, SHAPE[0], scale[0], offset[0])
        found = parts.resize(only(warp, reach, 1), shape, scale, offset, cut)
        assert same(found[:, slice(*cut)], resized[:, slice(*cut)])


@pytest.mark.parametrize("masked", [False, True])
def test_differences(generator, masked):
    fixed, moving, field, (own, other) = pair(generator, masked=masked)
    pairs = [((0.0, 0.0, 1.0), (0.0, 1.0, 0.0)), ((1.0, 0.0, 0.0), (0.0, -1.0, 0.0))] * 6
    described = [cpu.mind_channels(image, pairs=pairs, sigma=(0.5, 0.5, 0.5)) for image in (fixed, moving)]
    squared = {"alike": (0.9, 0.1), "symmetric": True, "demons": None, "lengths": (1.0, 1.0, 1.0)}
    for kernel, part, images, options in (
        (cpu.mse, parts.mse, (fixed, moving), squared),
        (cpu.mind, parts.mind, described, {"symmetric": True}),
    ):
        whole, sums = torch.empty_like(field), 0.0
        given = {"moving_mask": other, **options}
        found = kernel(*images, field, MATRIX, gradient=whole, fixed_mask=own, **given)
        for cut in CUTS:
            reach = max(0, cut[0] - 1), min(SHAPE[0], cut[1] + 1)
            gradient = torch.empty_like(field)
            arguments = only(images[0], reach), images[1], only(field, cut, 1), MATRIX, cut
            sums = sums + part(*arguments, gradient=gradient, fixed_mask=only(own, cut), **given)
            assert same(gradient[:, slice(*cut)], whole[:, slice(*cut)])
        assert tuple(sums.sum(1)) == found
