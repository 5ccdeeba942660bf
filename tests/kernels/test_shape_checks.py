"""A tensor of the wrong shape is refused before compiled code can read or write beyond its end."""

import pytest
import torch

from warpfactor.kernels import numba as cpu
from warpfactor.kernels.ops import Slab

FIXED, MOVING = (5, 6, 7), (4, 6, 8)
WEIGHTS = (1.0, 1.0, 1.0)
ONE_TENSOR = {"mind_channels", "resize", "shrink", "smooth_box", "smooth_gaussian"}


def image(shape=FIXED):
    return torch.ones(shape)


def mask(shape=FIXED):
    return torch.ones(shape, dtype=torch.uint8)


def field():
    return torch.zeros((3, *FIXED))


def matrix():
    return torch.eye(3, 4, dtype=torch.float64)


def pair(**options):
    images = {"fixed": image(), "moving": image(MOVING), "matrix": matrix()}
    return {**images, "fixed_mask": mask(), "moving_mask": mask(MOVING), **options}


def warped(**options):
    return pair(displacement=field(), gradient=field(), **options)


def sampled(name):
    return {name: image(MOVING), "displacement": field(), "matrix": matrix()}


CALLS = {
    "adam": {
        **{"gradient": field(), "first": field(), "second": field(), "weights": WEIGHTS},
        **{"number": 1, "betas": (0.9, 0.9), "epsilon": 1e-8},
    },
    "affine_gradient": {"gradient": field()},
    "affine_moments": pair(),
    "compose": {"warp": field(), "step": field(), "out": field()},
    "distortion": {"displacement": field(), "spacing": (1.0, 1.0, 1.0)},
    "descend": {"gradient": field(), "form": "root", "damping": 1.0, "weights": WEIGHTS},
    "invert": {"displacement": field(), "start": field()},
    "jacobian_determinant": {"displacement": field()},
    "lncc": warped(radius=(1, 1, 1)),
    "lncc_plans": {
        **{"fixed": image((2, *FIXED)), "mask": mask(), "radius": (1, 1, 1)},
        **{"window": "box", "exact": True, "floors": (0.1, 0.1)},
    },
    "lncc_slabs": {
        **{"fixed": image((2, *FIXED)), "mask": mask(), "radius": (1, 1, 1), "window": "box", "exact": True},
        **{"floors": (0.1, 0.1), "slabs": (Slab(slice(0, FIXED[0]), slice(1, FIXED[0] - 1)),)},
    },
    "mi": warped(bins=8, fixed_range=(0.0, 1.0), moving_range=(0.0, 1.0)),
    "mind": warped(
        fixed=torch.zeros((*FIXED, 12), dtype=torch.uint8), moving=torch.zeros((*MOVING, 12), dtype=torch.uint8)
    ),
    "mse": warped(),
    "norms": {"gradient": field(), "weights": WEIGHTS},
    "percentiles": {"values": image(), "mask": mask(), "ranks": (50,)},
    "round_trip": {"first": field(), "second": field(), "gram": torch.eye(3).tolist()},
    "sample": sampled("image"),
    "sample_gradient": sampled("image"),
    "sample_labels": sampled("labels"),
    "tally": {"values": image(), "mask": mask()},
    "tile": {"gradient": field(), "size": (3, 3, 3), "damping": 1.0, "weights": WEIGHTS},
}
# The tensor that the others have to fit. If it is a field, it must still have three components.
LEADS = {
    **dict.fromkeys(("adam", "affine_gradient", "descend", "norms", "tile"), "gradient"),
    **dict.fromkeys(("affine_moments", "lncc", "lncc_plans", "lncc_slabs", "mi", "mind", "mse"), "fixed"),
    **dict.fromkeys(
        ("distortion", "invert", "jacobian_determinant", "sample", "sample_gradient", "sample_labels"), "displacement"
    ),
    **dict.fromkeys(("percentiles", "tally"), "values"),
    **{"compose": "warp", "round_trip": "first"},
}
FREE = {"moving", "image", "labels"}


def wrong_shapes(shape, leads):
    """Shapes with a component less, a voxel less, a voxel more, and with the axes reversed."""
    components, space = shape[:-3], shape[-3:]
    if components == (3,):
        yield (2, *space)
    if not leads:
        *others, last = shape
        yield from ((*others, last - 1), (*others, last + 1), (*components, *reversed(space)))


CASES = [
    pytest.param(name, argument, shape, id=f"{name}-{argument}-{'x'.join(map(str, shape))}")
    for name, call in CALLS.items()
    for argument, value in call.items()
    if isinstance(value, torch.Tensor) and argument not in FREE
    for shape in wrong_shapes(tuple(value.shape), leads=argument == LEADS[name])
]


def test_every_kernel_is_tested():
    assert set(CALLS) | ONE_TENSOR == set(cpu.__all__)
    assert set(CALLS) == set(LEADS)


@pytest.mark.parametrize(("name", "argument", "shape"), CASES)
def test_a_wrong_shape_is_refused_by_name(name, argument, shape):
    call = {**CALLS[name], argument: CALLS[name][argument].new_zeros(shape)}
    with pytest.raises(ValueError, match=rf"^{argument} has shape \({', '.join(map(str, shape))}\), but "):
        getattr(cpu, name)(**call)


@pytest.mark.parametrize("name", CALLS)
def test_right_shapes_are_accepted(name):
    getattr(cpu, name)(**CALLS[name])
