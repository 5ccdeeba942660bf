"""Problems for every operation of `Ops`: what a backend is given, and which of its results are compared.

A new operation is a function and a line in `PROBLEMS`; a test looks that no operation is left out. The inputs are
random numbers that are exact in single precision, with points outside the moving image and, where there are masks,
voxels that do not count.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import torch
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.held import Unwaited
from warpfactor.kernels.numbers import chosen, finite, inverse, larger, quotient, smaller
from warpfactor.kernels.ops import Ops, Slab
from warpfactor.kernels.pairs import PairOps

Shape = tuple[int, int, int]
Shapes = tuple[Shape, Shape]
Outputs = Sequence[Any]

MATRIX = torch.tensor(
    [[1.03, 0.05, -0.02, 0.3131], [-0.04, 0.7, 0.03, 0.9173], [0.02, -0.06, 1.1, -0.4137]], dtype=torch.float64
)
WEIGHTS = (0.5, 1.0, 0.8)
WHOLE = 4000.0  # whole numbers per unit of intensity, where images are held as 16-bit integers
ENDS = 3.0  # of the histograms, in units of intensity: a few values lie beyond
STORED = (torch.int16, torch.float16)  # as which images may be held
TOLERANCE = 1e-4  # voxels, of an inverse


@dataclass
class Given:
    """What an operation is given; a problem may overwrite `field`, and nothing else.

    Attributes:
        fixed, moving: (D, H, W) images, each of a shape of its own.
        field: (3, *fixed shape), displacement or gradient.
        smooth: (3, *fixed shape), a displacement that has an inverse.
        matrix: (3, 4), fixed to moving voxels; on the CPU.
        fixed_mask, moving_mask: uint8.
        labels: int16, of the moving shape.
        described: self-similarity channels of both images, uint8.
        unit: what an intensity of 1 is in the numbers of the images.
    """

    fixed: Tensor
    moving: Tensor
    field: Tensor
    smooth: Tensor
    matrix: Tensor
    fixed_mask: Tensor
    moving_mask: Tensor
    labels: Tensor
    described: tuple[Tensor, Tensor]
    unit: float = 1.0

    @property
    def pair(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What every metric takes first."""
        return self.fixed, self.moving, self.field, self.matrix

    @property
    def masks(self) -> dict[str, Tensor]:
        return {"fixed_mask": self.fixed_mask, "moving_mask": self.moving_mask}

    def window(self, radius: Shape) -> Shape:
        """The radius, 0 along z for a slice."""
        return (radius[0] if self.fixed.shape[0] > 1 else 0, *radius[1:])

    def on(self, device: torch.device | str, dtype: torch.dtype) -> Given:
        """A copy on a device, numbers in another type; images that are stored stay so, except in double precision."""
        kept = dtype != torch.float64 and self.fixed.dtype in STORED
        images = self.fixed.dtype if kept else dtype
        return replace(
            self,
            fixed=self.fixed.to(device, images, copy=True),
            moving=self.moving.to(device, images, copy=True),
            field=self.field.to(device, dtype, copy=True),
            smooth=self.smooth.to(device, dtype, copy=True),
            fixed_mask=self.fixed_mask.to(device),
            moving_mask=self.moving_mask.to(device),
            labels=self.labels.to(device),
            described=(self.described[0].to(device), self.described[1].to(device)),
        )

    def with_whole_numbers(self) -> Given:
        """The same with images of 16-bit integers."""
        fixed, moving = ((WHOLE * image).round().to(torch.int16) for image in (self.fixed, self.moving))
        return replace(self, fixed=fixed, moving=moving, unit=WHOLE)

    def in_half_precision(self) -> Given:
        """The same with images of half precision."""
        return replace(self, fixed=self.fixed.half(), moving=self.moving.half())


def problem(shapes: Shapes, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Fixed, moving, displacement and matrix in float64, for a (fixed, moving) pair of shapes.

    In 2-D no point leaves the plane. All numbers are exact in float32.
    """
    generator = torch.Generator().manual_seed(seed)
    fixed_shape, moving_shape = shapes
    fixed = torch.randn(fixed_shape, generator=generator, dtype=torch.float32).double()
    moving = torch.randn(moving_shape, generator=generator, dtype=torch.float32).double()
    field = torch.randn((3, *fixed_shape), generator=generator, dtype=torch.float32).double()
    matrix = MATRIX.clone()
    if fixed_shape[0] == 1:
        field[0] = 0
        matrix[0] = torch.tensor([1.0, 0, 0, 0])
        matrix[:, 0] = torch.tensor([1.0, 0, 0])
    return fixed, moving, field, matrix


def masks(shapes: Shapes, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Fixed and moving mask, in which four voxels of five count."""
    generator = torch.Generator().manual_seed(seed)
    fixed, moving = ((torch.rand(s, generator=generator) > 0.2).to(torch.uint8) for s in shapes)
    return fixed, moving


def given(shapes: Shapes, seed: int = 0) -> Given:
    """The inputs of all problems, in float64 on the CPU."""
    fixed, moving, field, matrix = problem(shapes, seed)
    generator = torch.Generator().manual_seed(seed + 2)
    smooth = reference.smooth_gaussian(1.5 * field, (2.0, 2.0, 2.0)).float().double()
    labels = torch.randint(0, 5, shapes[1], generator=generator).to(torch.int16)
    described = tuple(_described(image) for image in (fixed, moving))
    return Given(fixed, moving, field, smooth, matrix, *masks(shapes, seed + 1), labels, (described[0], described[1]))


def _described(image: Tensor) -> Tensor:
    return reference.mind_channels(image, pairs=PAIRS, sigma=(0.5, 0.5, 0.5))


def _pairs() -> list[tuple[Shape, Shape]]:
    """The twelve pairs of neighbours of a voxel that are beside each other."""
    places = [(0, 0, 1), (0, 0, -1), (0, 1, 0), (0, -1, 0), (1, 0, 0), (-1, 0, 0)]
    return [(a, b) for a, b in combinations(places, 2) if any(p + q for p, q in zip(a, b, strict=True))]


PAIRS = _pairs()


@dataclass(frozen=True)
class KernelProblem:
    """One call of an operation.

    Attributes:
        operation: of `Ops`, or of `DeviceOps`.
        run: calls it, and returns what is compared.
        variant: what is special about this call; empty for the plain one, which comes first and is timed.
        bytes_moved: that any implementation reads and writes, per voxel, in single precision.
        positions: whether points are computed, which may fall into the neighbouring cell by rounding.
        images: whether it also takes images as they are stored: of 16-bit integers and of half precision.
        rounding: error that is allowed besides a few times that of the reference, in units of the largest value.
        slack: an absolute error that is allowed besides.
        unwaited: whether figures stay on the device; for backends that can do that.
    """

    operation: str
    run: Callable[[Ops, Given], Outputs]
    variant: str = ""
    bytes_moved: float = 0.0
    positions: bool = False
    images: bool = False
    rounding: float = 2e-6
    slack: float = 0.0
    unwaited: bool = False

    @property
    def title(self) -> str:
        return f"{self.operation} ({self.variant})" if self.variant else self.operation


def _metric(
    operation: str, *, masked: bool = False, planned: bool = False, slope: bool = True, **options: Any
) -> Callable[..., Outputs]:
    """Total, count and gradient of a metric; the numbers alone without `slope`."""

    def run(ops: Ops, at: Given) -> Outputs:
        chosen = {**options, **(at.masks if masked else {})}
        if "radius" in chosen:
            chosen["radius"] = at.window(chosen["radius"])
            chosen["flat"] = (1e-4 * at.unit**2, 1e-4 * at.unit**2)
        if operation == "mi":
            chosen["fixed_range"] = chosen["moving_range"] = (-ENDS * at.unit, ENDS * at.unit)
        first, second, *rest = at.pair
        if operation == "mind":
            first, second = at.described
        if planned:
            chosen["plan"] = _plan(ops, at, chosen)
        if not slope:
            return tuple(getattr(ops, operation)(first, second, *rest, **chosen))
        gradient = torch.full_like(at.field, 7.0)
        return *getattr(ops, operation)(first, second, *rest, gradient=gradient, **chosen), gradient

    return run


def _plan(ops: Ops, at: Given, options: dict[str, Any]) -> object:
    return ops.lncc_plans(
        at.fixed[None],
        options.get("fixed_mask"),
        radius=options["radius"],
        window=options.get("window", "box"),
        exact=options.get("exact", True),
        floors=[options["flat"][0]],
    )[0]


def _slabs(ops: Ops, at: Given) -> Outputs:
    """LNCC by two slabs: totals, counts and the gradients of both cores."""
    fixed, moving, field, matrix = at.pair
    radius, flat = at.window((2, 2, 2)), (1e-4 * at.unit**2,) * 2
    depth, reach = fixed.shape[0], 2 * radius[0] + 1
    cuts = (0, depth // 2, depth) if depth > 1 else (0, depth)
    cores = [slice(a, b) for a, b in pairwise(cuts)]
    slabs = [Slab(slice(max(0, core.start - reach), min(depth, core.stop + reach)), core) for core in cores]
    options: dict[str, Any] = {"radius": radius, "window": "box", "exact": True}
    plans = ops.lncc_slabs(fixed[None], None, slabs=slabs, floors=[flat[0]], **options)
    outputs: list[Any] = []
    for slab, (plan,) in zip(slabs, plans, strict=True):
        there = matrix.clone()
        there[:, 3] += slab.outer.start * there[:, 0]
        part = field[:, slab.outer].contiguous()
        gradient = torch.full_like(part, 7.0)
        found = ops.lncc(fixed[slab.outer], moving, part, there, flat=flat, gradient=gradient, plan=plan, **options)
        outputs += [*found, gradient[:, slab.inner]]
    return tuple(outputs)


def _step(operation: str, **options: Any) -> Callable[..., Outputs]:
    def run(ops: Ops, at: Given) -> Outputs:
        at.field[:, 0, 1, 1] = 0  # a voxel without a gradient
        return *getattr(ops, operation)(at.field, weights=WEIGHTS, **options), at.field

    return run


BY_ADAM: dict[str, Any] = {"betas": (0.9, 0.999), "epsilon": 1e-8, "weights": WEIGHTS}


def _adam(ops: Ops, at: Given) -> Outputs:
    first, second = 0.1 * at.smooth, at.smooth.square()
    return *ops.adam(at.field, first, second, number=3, **BY_ADAM), at.field, first, second


def _smooth_adam(sigma: tuple[float, ...], *numbers: float) -> Callable[..., Outputs]:
    """For as many pairs as there are numbers; the first takes a step, moments are those of all."""

    def run(ops: Ops, at: Given) -> Outputs:
        field, first = (torch.stack([each] * len(numbers)) for each in (at.field, 0.1 * at.smooth))
        second, count = first.square(), at.field.new_tensor(numbers).double()
        given = {"boundary": "nearest", "truncate": 2.5, "tail": (0.3, 2.0), "number": count, **BY_ADAM}
        found = PairOps(lambda: ops).smooth_adam(field, first, second, sigma, **given)
        return *(each[0] for each in found), field[0], first, second

    return run


def _smooth(sigma: tuple[float, ...] = (1.0, 0.6, 1.7), **options: Any) -> Callable[..., Outputs]:
    return lambda ops, at: [ops.smooth_gaussian(at.field, sigma, **options)]


NARROW = (0.6, 0.4, 0.7)  # voxels: a Gaussian that may be done in one pass


def _smooth_descend(sigma: tuple[float, ...], **options: Any) -> Callable[..., Outputs]:
    def run(ops: Ops, at: Given) -> Outputs:
        given = {"boundary": "nearest", "truncate": 2.5, "tail": (0.3, 2.0), "weights": WEIGHTS, **options}
        return *Unwaited(lambda: ops).smooth_descend(at.field, sigma, **given), at.field

    return run


def _advance(**options: Any) -> Callable[..., Outputs]:
    """The step is that of the volume and the field; figures are the device's."""

    def run(ops: Ops, at: Given) -> Outputs:
        scale, share, rate = (at.field.new_tensor(value).double() for value in (0.6, 0.7, 0.5))
        given: dict[str, Any] = {"scale": scale, "share": share, "sigma": NARROW, **options}
        if given.pop("volume", False):
            given |= {"log_volume": at.smooth[0].clone(), "rate": rate, "weights": WEIGHTS}
        return [Unwaited(lambda: ops).advance(at.smooth, at.field, **given)]

    return run


def _log_volume(ops: Ops, at: Given) -> Outputs:
    return [Unwaited(lambda: ops).log_volume(at.smooth, 0.02, NARROW, boundary="zero")]


def _compose_in_place(ops: Ops, at: Given) -> Outputs:
    return [ops.compose(at.smooth, at.field, scale=0.5, out=at.field)]


def _resize(ops: Ops, at: Given) -> Outputs:
    shape = tuple(max(1, n - 1) for n in at.field.shape[1:])
    return [ops.resize(at.field, shape, (0.5, 1.1, 0.9), (-0.2, 0.1, 0.3))]


def _shrink(ops: Ops, at: Given) -> Outputs:
    shape = tuple(-(-n // 2) for n in at.moving.shape)
    sigma = [0.6 if n > 1 else 0.0 for n in at.moving.shape]
    return [ops.shrink(at.moving[None], shape, sigma)]


def _tally(ops: Ops, at: Given, **options: Any) -> Outputs:
    return dataclasses.astuple(ops.tally(at.moving, **options))


def _moments(ops: Ops, at: Given, **options: Any) -> Outputs:
    return ops.affine_moments(at.fixed, at.moving, at.matrix, **options)


def _rule(a: Any, b: Any, c: Any, last: float) -> tuple[Any, ...]:
    """Everything that decisions are made of, of three figures and a number."""
    rose = (a > b) & inverse(a >= c) | (b != b)
    gain = chosen(rose, quotient(a - b, c), larger(abs(a) ** 0.5, last))
    stays = (gain == 0) | (c <= last)
    return gain, stays, chosen(stays, rose, finite(c)), smaller(b * c, 2 * a + last) % 3, 1.0 / c, last, rose & True


def _decide(ops: Ops, at: Given) -> Outputs:
    """For some columns of the field, some of which hold what is no number."""
    a, b, c = (at.field[:, 0, 0, k % at.field.shape[3]].double() for k in range(3))
    figures = torch.cat([torch.stack([a, b, c]), torch.tensor([[1.0, 2], [math.nan, 2], [0, math.inf]]).to(a)], 1)
    return [torch.nan_to_num(PairOps(lambda: ops).decide(_rule, *figures, 0.25), nan=-7.0, posinf=9.0)]


def _smooth_share(ops: Ops, at: Given) -> Outputs:
    share = torch.tensor(0.4, dtype=torch.float64, device=at.field.device)
    return [Unwaited(lambda: ops).smooth_share(at.field, (1.0, 0.6, 1.7), share)]


def _even_out(ops: Ops, at: Given) -> Outputs:
    Unwaited(lambda: ops).even_out(at.field, at.smooth[0].clone(), at.field.new_tensor(0.7).double(), WEIGHTS)
    return [at.field]


def _take(ops: Ops, at: Given) -> Outputs:
    flags = torch.tensor([0.0, 1.0], dtype=torch.float64, device=at.field.device)
    both, others = torch.stack([at.field, at.smooth]), torch.stack([at.smooth, at.field])
    PairOps(lambda: ops).take(both, others, flags)
    return [both]


GRAM = ((1.0, 0.1, 0.0), (0.1, 4.0, 0.2), (0.0, 0.2, 2.0))
SIGNED = {"squared": False, "symmetric": True}

PROBLEMS: tuple[KernelProblem, ...] = (
    KernelProblem(
        "sample", lambda o, at: [o.sample(at.moving, at.field, at.matrix, outside=-3.0)], "", 20.0, positions=True
    ),
    KernelProblem(
        "sample", lambda o, at: [o.sample(at.moving, None, at.matrix, shape=at.fixed.shape)], "affine", positions=True
    ),
    KernelProblem(
        "sample", lambda o, at: [o.sample(at.moving, at.field, at.matrix, mode="nearest")], "nearest", positions=True
    ),
    KernelProblem(
        "sample_gradient", lambda o, at: o.sample_gradient(at.moving, at.field, at.matrix), "", 33.0, positions=True
    ),
    KernelProblem(
        "sample_labels", lambda o, at: [o.sample_labels(at.labels, at.field, at.matrix)], "", 16.0, positions=True
    ),
    KernelProblem("lncc_plans", _metric("lncc", radius=(2, 2, 2), planned=True), "used", positions=True),
    KernelProblem("lncc_slabs", _slabs, "used", positions=True),
    KernelProblem("lncc", _metric("lncc", radius=(2, 2, 2)), "", 32.0, positions=True, images=True),
    KernelProblem("lncc", _metric("lncc", radius=(2, 2, 2), slope=False), "value only", positions=True),
    KernelProblem("lncc", _metric("lncc", radius=(1, 2, 3), masked=True), "masks", positions=True),
    KernelProblem("lncc", _metric("lncc", radius=(2, 2, 2), **SIGNED), "signed, symmetric", positions=True),
    KernelProblem("lncc", _metric("lncc", radius=(1, 2, 1), exact=False), "paper's gradient", positions=True),
    KernelProblem("lncc", _metric("lncc", radius=(2, 1, 2), window="gaussian"), "Gaussian windows", positions=True),
    KernelProblem("mse", _metric("mse"), "", 32.0, positions=True, images=True),
    KernelProblem("mse", _metric("mse", slope=False), "value only", positions=True),
    KernelProblem("mse", _metric("mse", masked=True, symmetric=True), "masks, symmetric", positions=True),
    KernelProblem("mse", _metric("mse", alike=(0.8, 0.1)), "rescaled", positions=True),
    KernelProblem("mse", _metric("mse", demons=0.8, lengths=WEIGHTS), "demons", positions=True),
    KernelProblem("mi", _metric("mi", bins=16), "", 32.0, positions=True, images=True),
    KernelProblem("mi", _metric("mi", bins=16, slope=False), "value only", positions=True),
    KernelProblem("mi", _metric("mi", bins=32, masked=True), "masks", positions=True),
    KernelProblem("mind", _metric("mind"), "", 48.0, positions=True),
    KernelProblem("mind", _metric("mind", slope=False), "value only", positions=True),
    KernelProblem("mind", _metric("mind", masked=True, symmetric=True), "masks, symmetric", positions=True),
    KernelProblem(
        "mind_channels",
        lambda o, at: [o.mind_channels(at.moving, pairs=PAIRS, sigma=(0.5, 0.5, 0.5))],
        "",
        16.0,
        images=True,
        slack=1.0,
    ),
    KernelProblem("affine_moments", _moments, "", 8.0),
    KernelProblem("affine_moments", lambda o, at: _moments(o, at, **at.masks), "masks"),
    KernelProblem("affine_gradient", lambda o, at: o.affine_gradient(at.field), "", 12.0),
    KernelProblem("norms", lambda o, at: o.norms(at.field, WEIGHTS), "", 12.0),
    KernelProblem("descend", _step("descend", form="root", damping=0.3), "", 24.0),
    KernelProblem("descend", _step("descend", form="pointwise", damping=0.3, residual=0.7), "pointwise"),
    KernelProblem("descend", _step("descend", form="plain", damping=0.0), "plain"),
    KernelProblem("tile", _step("tile", size=(3, 3, 3), damping=0.3, residual=0.7), "", 24.0),
    KernelProblem("tile", _step("tile", size=(2, 6, 4), damping=0.3), "even"),
    KernelProblem("adam", _adam, "", 72.0, rounding=2e-5),
    KernelProblem("compose", lambda o, at: [o.compose(at.smooth, at.field)], "", 36.0, positions=True),
    KernelProblem("compose", _compose_in_place, "in place", positions=True),
    KernelProblem("resize", _resize, "", 24.0, positions=True),
    KernelProblem("shrink", _shrink, "", 4.5, positions=True, images=True),
    KernelProblem("smooth_gaussian", _smooth(), "", 24.0),
    KernelProblem("smooth_gaussian", _smooth(boundary="zero"), "zero beyond"),
    KernelProblem("smooth_gaussian", _smooth(tail=(0.3, 4.0)), "tail"),
    KernelProblem("smooth_gaussian", _smooth(NARROW), "narrow"),
    KernelProblem("smooth_gaussian", _smooth(NARROW, boundary="zero", truncate=2.0), "narrow, zero beyond"),
    KernelProblem("smooth_box", lambda o, at: [o.smooth_box(at.field, (1, 2, 3))], "", 24.0),
    KernelProblem("jacobian_determinant", lambda o, at: [o.jacobian_determinant(at.smooth)], "", 16.0),
    KernelProblem("distortion", lambda o, at: o.distortion(at.smooth, (1.5, 1.0, 0.8)), "", 20.0),
    KernelProblem(
        "invert", lambda o, at: o.invert(at.smooth, tolerance=TOLERANCE), "", 28.0, positions=True, slack=2 * TOLERANCE
    ),
    KernelProblem("round_trip", lambda o, at: o.round_trip(at.smooth, at.field, GRAM), "", 29.0, positions=True),
    KernelProblem("tally", _tally, "", 4.0),
    KernelProblem("tally", lambda o, at: _tally(o, at, mask=at.moving_mask, log_range=(0.1, 2.0)), "mask, logarithms"),
    KernelProblem("percentiles", lambda o, at: o.percentiles(at.moving, (0, 5, 50, 99.9)), "", 4.0),
    KernelProblem("percentiles", lambda o, at: o.percentiles(at.moving, (1, 99), mask=at.moving_mask), "mask"),
    KernelProblem("decide", _decide, unwaited=True),
    KernelProblem("smooth_share", _smooth_share, unwaited=True),
    KernelProblem("even_out", _even_out, unwaited=True),
    KernelProblem("take", _take, unwaited=True),
    KernelProblem("smooth_descend", _smooth_descend((1.0, 0.6, 1.7), form="root", damping=0.3), unwaited=True),
    KernelProblem(
        "smooth_descend",
        _smooth_descend((0.8, 0.0, 0.0), form="pointwise", damping=0.3, residual=0.7, boundary="zero"),
        "one axis",
        unwaited=True,
    ),
    KernelProblem("smooth_adam", _smooth_adam((1.0, 0.6, 1.7), 3, 0), rounding=2e-5, unwaited=True),
    KernelProblem("smooth_adam", _smooth_adam((0.0, 0.0, 0.0), 1), "no axis", rounding=2e-5, unwaited=True),
    KernelProblem("advance", _advance(), positions=True, unwaited=True),
    KernelProblem("advance", _advance(volume=True, share=1.0), "volume", positions=True, unwaited=True),
    KernelProblem("advance", _advance(sigma=(1.0, 0.6, 1.7), boundary="zero"), "wide", positions=True, unwaited=True),
    KernelProblem("log_volume", _log_volume, unwaited=True),
)
