"""The kernels of a registration, compiled before it begins: the first one on a machine shares that work.

What a run needs is written down here once more, as calls on tiny images; `tests/test_ahead.py` compares it with what
registrations use. A kernel that is missing here is compiled when it is needed, as it would be without all this.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from warpfactor.cli.second import Part, second_process

if TYPE_CHECKING:
    from torch import Tensor

    from warpfactor.recipebook.recipe import Recipe
    from warpfactor.stages.settings import Deformable

EDGE = 8  # voxels of the tiny images
ONES = (1.0, 1.0, 1.0)


def compile_ahead(recipe: Recipe, *, planar: bool, masked: bool, threads: int | None = None) -> None:
    """Have the kernels of a registration ready, if none is kept yet and two processes can share the work.

    Args:
        planar: the images have one slice.
        masked: there is a mask.
        threads: how many the user allows; None for all.
    """
    choice = {"recipe": recipe.for_images(planar=planar).to_dict(), "planar": planar, "masked": masked}
    with second_process("warpfactor.cli.ahead:parts", choice, threads=threads) as helped:
        if helped:
            for _, part in parts(choice):
                part()


def parts(choice: dict[str, Any]) -> list[Part]:
    """The calls in the order of their use, but for the metric of the warp: it takes longest and comes last."""
    import torch

    from warpfactor.recipebook.recipe import Recipe

    recipe = Recipe.from_dict(choice["recipe"])
    warp, metrics = recipe.deformable, {stage.metric for stage in recipe.linear}
    image = torch.zeros((1 if choice["planar"] else EDGE, EDGE, EDGE))
    held = image.short() if warp is not None and warp.storage == "int16" else image
    shrunk = {each.dtype: each for each in (image, held, *([image.byte()] if choice["masked"] else []))}
    levels = [*(level for stage in recipe.linear for level in stage.levels), *(warp.levels if warp else ())]
    smooth = warp is not None or choice["masked"] or any(stage.levels[-1] == 1 for stage in recipe.linear)
    return [
        *_preparation(image, list(shrunk.values()) if max(levels) > 1 else []),
        *_linear(image, metrics),
        *(_smoothing(image) if smooth else []),
        *(_warp(image, warp) if warp else []),
        *_resampling(image),
        *(_figures(image) if warp else []),
        *(_metric(image, held, warp.metric.name) if warp else []),
    ]


def _preparation(image: Tensor, shrunk: list[Tensor]) -> list[Part]:
    from warpfactor.kernels import numba as cpu

    half = [max(1, n // 2) for n in image.shape]
    return [
        ("sums", partial(cpu.tally, image)),
        ("percentiles", partial(cpu.percentiles, image.flatten(), (50.0,))),
        *((f"shrinking {each.dtype}", partial(cpu.shrink, each[None], half, ONES)) for each in shrunk),
    ]


def _linear(image: Tensor, metrics: set[str]) -> list[Part]:
    """Of the linear stages; mutual information is the same kernel in all. The report has windows for any metric."""
    from warpfactor.kernels import numba as cpu

    found: list[Part] = [("windows", partial(cpu.smooth_box, image[None], (1, 1, 1)))]
    if metrics - {"mi"}:
        found.append(("moments", partial(cpu.affine_moments, image, image, _still())))
    if "mi" in metrics:
        found += [*_metric(image, image, "mi"), ("its slopes", partial(cpu.affine_gradient, _field(image)))]
    return found


def _smoothing(image: Tensor) -> list[Part]:
    from warpfactor.kernels import numba as cpu

    return [("smoothing", partial(cpu.smooth_gaussian, _field(image), ONES))]


def _warp(image: Tensor, warp: Deformable) -> list[Part]:
    """Of the steps of the deformable stage."""
    from warpfactor.kernels import numba as cpu
    from warpfactor.optim.steps import Moments, take

    field = _field(image)
    step = partial(take, warp.descent, field, damping=1.0, residual=1.0, weights=ONES, ops=cpu)
    return [
        *([("norms", partial(cpu.norms, field, ONES))] if warp.damping.relative else []),
        (warp.descent.name, partial(step, moments=Moments.zeros_like(field))),
        ("composition", partial(cpu.compose, field, field)),
        *([("resizing", partial(cpu.resize, field, image.shape, ONES, ONES))] if len(warp.levels) > 1 else []),
    ]


def _resampling(image: Tensor) -> list[Part]:
    from warpfactor.kernels import numba as cpu

    return [("resampling", partial(cpu.sample, image, _field(image), _still()))]


def _figures(image: Tensor) -> list[Part]:
    """Of the inverse, and of what is told of a warp."""
    import numpy as np

    from warpfactor.kernels import numba as cpu

    field = _field(image)
    return [
        ("round trip", partial(cpu.round_trip, field, field, np.eye(3).tolist())),
        ("Jacobian", partial(cpu.jacobian_determinant, field)),
        ("inverse", partial(cpu.invert, field)),
    ]


def _metric(image: Tensor, held: Tensor, name: str) -> list[Part]:
    """Of one metric, for images as they are at coarse levels and as they are held."""
    from warpfactor.kernels import numba as cpu

    span = (0.0, 1.0)
    calls = {
        "mse": cpu.mse,
        "mi": partial(cpu.mi, bins=8, fixed_range=span, moving_range=span),
        "lncc": partial(cpu.lncc, radius=(0, 1, 1)),
    }
    images = [image] if held.dtype == image.dtype else [image, held]
    call: Any = calls.get(name)
    return [(name, partial(call, i, i, _field(i), _still(), gradient=_field(i))) for i in images] if call else []


def _field(image: Tensor) -> Tensor:
    return image.new_zeros((3, *image.shape)).float()


def _still() -> Tensor:
    import torch

    return torch.eye(3, 4, dtype=torch.float64)
