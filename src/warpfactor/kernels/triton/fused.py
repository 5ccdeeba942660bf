"""Operations that go through slabs together, so that what the first finds never goes to memory.

The step of a gradient is made where the last pass of the Gaussian ends; the next warp is smoothed where it is composed,
and a determinant where it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.pairs import paired
from warpfactor.kernels.triton import descent
from warpfactor.kernels.triton.descent import ADAM, FORMS, adam_from, adam_of, damping_of, finish, finished, step_from
from warpfactor.kernels.triton.field import launch_compose, launch_determinant, load_vector
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import Partials, block, numbers, plain, takes, takes_pairs
from warpfactor.kernels.triton.passes import AxisPass, apart, chain_of, copying, neighbour, passes_of, run_passes
from warpfactor.kernels.triton.points import voxel
from warpfactor.kernels.triton.slabs import Reach, Turn
from warpfactor.kernels.triton.smooth import filtered, gaussian_taps, share_of_taps, together


@declared(
    "7 *fp32 *fp64 3 fp32 10 i32",
    {form: {"AXIS": 2, "BOUNDARY": "nearest", "FORM": form, "BLOCK": 256} for form in (*FORMS, ADAM)},
    reads={"slab gradient": 12, "moments": 24},
    writes={"step": 12, "moments": 24},
)
def filter_and_step(
    source,
    g,
    taps,
    numbers,
    moment1,
    moment2,
    rule,
    partials,
    wz,
    wy,
    wx,
    radius,
    apart,
    start,
    stop,
    first,
    programs,
    planes,
    nz,
    ny,
    nx,
    AXIS: tl.constexpr,
    BOUNDARY: tl.constexpr,
    FORM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`filter_axis` of all three components, from a ring, and then `step_by_voxel` or `adam_step`.

    Moments and rule are read for Adam only, and `numbers` are its rates.
    """
    pair = tl.program_id(1)
    taps += pair * apart
    far, plane = pair.to(tl.int64), ny * nx
    voxels, size = nz.to(tl.int64) * plane, planes.to(tl.int64) * plane
    source, g, partials = source + 3 * far * size, g + 3 * far * voxels, partials + 2 * far * programs
    i = start * plane + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    use = i < stop * plane
    z, y, x = voxel(i, ny, nx)
    slot = z % planes
    zero = tl.zeros((BLOCK,), tl.float32)
    gz, gy, gx = zero, zero, zero
    for k in range(-radius, radius + 1):
        tap = tl.load(taps + k + radius)
        index, exists = neighbour(k, z, y, x, slot, planes, nz, ny, nx, AXIS)
        there = use if BOUNDARY == "nearest" else use & exists
        fz, fy, fx = load_vector(source, size, index, there)
        gz, gy, gx = gz + tap * fz, gy + tap * fy, gx + tap * fx
    gz, gy, gx = wz * gz, wy * gy, wx * gx
    if FORM == "adam":
        moment1, moment2 = moment1 + 3 * far * voxels, moment2 + 3 * far * voxels
        vz, vy, vx = adam_from(gz, gy, gx, moment1, moment2, voxels, i, use, numbers + 3 * pair, rule)
    else:
        damping, residual = tl.load(numbers + 2 * pair), tl.load(numbers + 2 * pair + 1)
        vz, vy, vx = step_from(gz, gy, gx, damping, residual, FORM)
    slot = first + tl.program_id(0)
    finish(g, voxels, i, wz, wy, wx, gz, gy, gx, vz, vy, vx, use, partials, programs, slot)


class _Rule(NamedTuple):
    """How a gradient becomes a step: a form with its numbers, or Adam with its rates, moments and rule."""

    form: str
    weights: Sequence[float]
    numbers: Tensor
    moments: tuple[Tensor, ...] = ()


@dataclass
class _StepPass:
    """The last filter, along one axis, and the step.

    Attributes:
        done: programs of the turns so far.
    """

    last: AxisPass
    rule: _Rule
    partials: Partials
    done: int = 0

    @property
    def reach(self) -> Reach:
        return self.last.reach

    def launch(self, source: Tensor, target: Tensor, turn: Turn, depth: int) -> None:
        pairs, _, planes, height, width = source.shape
        span = (turn.stop - turn.start) * height * width
        size = block(source.device, span)
        programs = triton.cdiv(span, size)
        filter_and_step.launch(
            (programs, pairs),
            source,
            target,
            self.last.taps,
            self.rule.numbers,
            *(self.rule.moments or (target, target, target)),
            self.partials.table,
            *self.rule.weights,
            self.last.taps.shape[1] // 2,
            apart(self.last.taps),
            turn.start,
            turn.stop,
            self.done,
            self.partials.table.shape[2],
            planes,
            depth,
            height,
            width,
            AXIS=self.last.axis,
            BOUNDARY=self.last.boundary,
            FORM=self.rule.form,
            BLOCK=size,
        )
        self.done += programs


def _stepped(gradient: Tensor, axes: Sequence[AxisPass], rule: _Rule) -> Tensor:
    """The filters and the step, in one go."""
    plane = gradient.shape[-2:].numel()
    chain = chain_of(gradient.shape[1:], [each.reach for each in axes])
    last = [(turn.stop - turn.start) * plane for turn in chain.turns() if turn.number == len(axes) - 1]
    programs = sum(triton.cdiv(span, block(gradient.device, span)) for span in last)
    partials = Partials(gradient.device, 2, programs, len(gradient))
    run_passes(gradient, [*axes[:-1], _StepPass(axes[-1], rule, partials)])
    return finished(partials)


def _axis_passes(gradient: Tensor, taps: dict[int, Tensor], boundary: str) -> list[AxisPass]:
    """The filters along the axes, if step and filters can go together; otherwise none."""
    axes = [AxisPass(axis, line, boundary) for axis, line in taps.items()]
    axes = [copying(gradient.device), *axes] if len(axes) == 1 else axes
    return axes if axes and in_one(gradient.shape[1:], [each.reach for each in axes]) else []


def _steps(gradient: Tensor, *_: Any, form: str, **__: Any) -> bool:
    return takes_pairs(gradient) and form in FORMS


@paired(reference.smooth_descend, _steps)
def smooth_descend(
    gradient: Tensor,
    sigma: Sequence[Any],
    *,
    boundary: Any,
    truncate: float,
    tail: Any,
    form: str,
    damping: Any,
    weights: Sequence[float],
    residual: Any = 1.0,
) -> Tensor:
    """See DeviceOps."""
    taps = gaussian_taps(gradient, sigma, truncate, tail)
    if axes := _axis_passes(gradient, taps, boundary):
        return _stepped(gradient, axes, _Rule(form, weights, damping_of(gradient, form, damping, residual)))
    step = descent.descend.pairs  # type: ignore[attr-defined]
    filtered(gradient, taps, boundary)
    found: Tensor = step(gradient, form=form, damping=damping, weights=weights, residual=residual)
    return found


def _steps_by_adam(gradient: Tensor, first: Tensor, second: Tensor, *_: Any, **__: Any) -> bool:
    return takes_pairs(gradient, first, second)


@paired(reference.smooth_adam, _steps_by_adam)
def smooth_adam(
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    sigma: Sequence[Any],
    *,
    boundary: Any,
    truncate: float,
    tail: Any,
    number: Any,
    betas: tuple[float, float],
    epsilon: float,
    weights: Sequence[float],
) -> Tensor:
    """See DeviceOps."""
    taps = gaussian_taps(gradient, sigma, truncate, tail)
    if axes := _axis_passes(gradient, taps, boundary):
        rates, rule = adam_of(gradient, number, betas, epsilon)
        return _stepped(gradient, axes, _Rule(ADAM, weights, rates, (first, second, rule)))
    step = descent.adam.pairs  # type: ignore[attr-defined]
    filtered(gradient, taps, boundary)
    found: Tensor = step(gradient, first, second, number=number, betas=betas, epsilon=epsilon, weights=weights)
    return found


def in_one(shape: Sequence[int], reaches: Sequence[Reach]) -> bool:
    """Whether a gradient (3, D, H, W) goes through all passes with the step.

    It does not if one component at a time, but not all three, lie in rings that the cache can hold.
    """
    return together(shape, reaches) or not together((1, *shape[1:]), reaches)


@dataclass(frozen=True)
class _ComposePass:
    """The step in a field with a warp, and with what evens out its volume.

    Attributes:
        given: (B, 2) numbers, the scale of the step and the rate of what is added to it.
        log_volume: (B, D, H, W), or None.
        squares: of the weights of the axes.
    """

    warp: Tensor
    given: Tensor
    log_volume: Tensor | None
    squares: Sequence[float]

    @property
    def reach(self) -> Reach:
        return Reach()

    def launch(self, source: Tensor, target: Tensor, turn: Turn, depth: int) -> None:
        launch_compose(self.warp, source, target, self.given, turn, log_volume=self.log_volume, squares=self.squares)


def _advances(warp: Tensor, step: Tensor, *, log_volume: Tensor | None = None, **_: Any) -> bool:
    return takes(warp[0], None if log_volume is None else log_volume) and takes_pairs(step)


@paired(reference.advance, _advances)
def advance(
    warp: Tensor,
    step: Tensor,
    *,
    scale: Any,
    sigma: Sequence[Any],
    share: Any = 1.0,
    boundary: Any = "nearest",
    truncate: float = 3.0,
    log_volume: Tensor | None = None,
    rate: Any = 0.0,
    weights: Sequence[float] = (0.0, 0.0, 0.0),
) -> Tensor:
    """See DeviceOps."""
    if isinstance(share, Tensor):
        taps = share_of_taps(step, sigma, share, truncate)
    else:
        taps = gaussian_taps(step, [share**0.5 * each for each in sigma], truncate)
    given = numbers(step.device, len(step), scale, rate)
    volume = None if log_volume is None else plain(log_volume)
    first = _ComposePass(plain(warp), given, volume, [weight * weight for weight in weights])
    run_passes(step, [first, *passes_of(taps, boundary)])
    return step


@dataclass(frozen=True)
class _VolumePass:
    """Logarithms of determinants; nothing is read of the field that goes through the passes."""

    displacement: Tensor
    least: float

    @property
    def reach(self) -> Reach:
        return Reach()

    def launch(self, source: Tensor, target: Tensor, turn: Turn, depth: int) -> None:
        launch_determinant(self.displacement, target[:, 0], turn, least=self.least)


def _has_volume(displacement: Tensor, *_: Any, **__: Any) -> bool:
    return takes(displacement[0])


@paired(reference.log_volume, _has_volume)
def log_volume(
    displacement: Tensor, least: float, sigma: Sequence[Any], *, boundary: Any = "nearest", truncate: float = 3.0
) -> Tensor:
    """See DeviceOps."""
    pairs, *shape = len(displacement), *displacement.shape[2:]
    out = torch.empty((pairs, 1, *shape), dtype=torch.float32, device=displacement.device)
    passes = passes_of(gaussian_taps(out, sigma, truncate), boundary)
    run_passes(out, [_VolumePass(plain(displacement), least), *passes])
    return out[:, 0]
