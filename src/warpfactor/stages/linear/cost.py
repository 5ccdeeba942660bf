"""The cost of a linear transform at one level: value, gradient by the affine displacement, Gauss-Newton matrix.

Squared difference and correlation follow from sums over the voxels, with their Gauss-Newton matrices. Local
correlation is the correlation of images that were normalised, each in its own windows, once a level: on four pairs of
1 mm brains its affines were as good as the LNCC kernel's, for a fraction of the work. Mutual information takes value
and gradient from its kernel, and Fisher's information as matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Matrix
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene, Side
from warpfactor.terms import MI, Prepared

METRICS = ("lncc", "ncc", "mi", "mse")
LEAST_CORRELATION = 0.1  # the Gauss-Newton matrix is scaled by the correlation, but not below this
# Windows with little contrast hold noise that must not be blown up. Variances are in units of the image's own.
CONSTANT = 1e-5  # a window with less than this was filled by a tool, not by a scanner
QUIETEST = 0.05  # share of the other windows that is taken to show noise only
FLOOR_FACTOR = 20.0
FLOORS = (1e-3, 1e-2)
QUANTILE_SAMPLES = 100_000


@dataclass(frozen=True)
class Evaluation:
    """The cost at a transform.

    Attributes:
        cost: mean over the voxels that count; infinite if none does.
        gradient: (12,) its derivative by the entries of an affine displacement (3, 4) in fixed voxels.
        curvature: (12, 12) Gauss-Newton matrix of the same.
    """

    cost: float
    gradient: NDArray[np.float64]
    curvature: NDArray[np.float64]


NO_SLOPES, NO_PRODUCTS = np.zeros((3, 12)), np.zeros((12, 12))
NOTHING = Evaluation(math.inf, np.zeros(12), np.zeros((12, 12)))


class LinearCost(Protocol):
    """A metric over the images of one level."""

    @property
    def worst(self) -> float:
        """The cost of images that have nothing to do with each other."""
        ...

    def evaluate(self, matrix: Matrix) -> Evaluation:
        """Cost, gradient and curvature at a 4x4 transform, fixed to moving, LPS mm."""
        ...

    def value(self, matrix: Matrix) -> float:
        """The cost alone, for a fraction of the work."""
        ...


def linear_cost(scene: Scene, metric: str, ops: Ops, *, window: int, bins: int) -> LinearCost:
    """The cost of a named metric over the images of one level."""
    makers: dict[str, Callable[[], LinearCost]] = {
        "mse": lambda: _MomentCost(_alike(scene), scene, ops, _squared_difference, 2.0),
        "ncc": lambda: _MomentCost(scene.moving.data, scene, ops, _correlation, 1.0),
        "lncc": lambda: _local_cost(scene, window, ops),
        "mi": lambda: _information_cost(scene, bins, ops),
    }
    if metric not in makers:
        raise InputError(f"Unknown metric {metric!r}; use one of {', '.join(METRICS)}.")
    return makers[metric]()


def _local_cost(scene: Scene, window: int, ops: Ops) -> LinearCost:
    local = _locally_normalized(scene, window, ops)
    return _MomentCost(local.moving.data, local, ops, _correlation, 1.0)


def _information_cost(scene: Scene, bins: int, ops: Ops) -> LinearCost:
    still = scene.fixed.data.new_zeros((3, *scene.shape))
    metric = MI(bins=bins).prepare(scene, ops)
    return _InformationCost(metric, scene, ops, math.log(bins), still, torch.empty_like(still))


@dataclass(frozen=True)
class _MomentCost:
    """A cost that is a function of the sums of `affine_moments`, averaged over the channels."""

    moving: Tensor
    scene: Scene
    ops: Ops
    formula: Formula
    worst: float

    def evaluate(self, matrix: Matrix) -> Evaluation:
        parts = [self.formula(*m) for m in _moments(self.scene, self.moving, matrix, self.ops)]
        if not all(math.isfinite(p.cost) for p in parts):
            return NOTHING
        return Evaluation(
            float(np.mean([p.cost for p in parts])),
            np.mean([p.gradient for p in parts], axis=0),
            np.mean([p.curvature for p in parts], axis=0),
        )

    def value(self, matrix: Matrix) -> float:
        found = [self.formula(sums, NO_SLOPES, NO_PRODUCTS).cost for sums in self._sums(matrix)]
        return float(np.mean(found))

    def _sums(self, matrix: Matrix) -> list[NDArray[np.float64]]:
        """Per channel the first of the three results of `affine_moments`."""
        scene, ops = self.scene, self.ops
        through = VoxelMap(scene.fixed.grid, None, matrix).matrix(scene.moving.grid)
        where = None if scene.fixed.mask is None else scene.fixed.mask > 0
        if scene.moving.mask is not None:
            reached = ops.sample(scene.moving.mask.float(), None, through, shape=scene.shape, mode="nearest") > 0
            where = reached if where is None else where & reached
        warped = [ops.sample(m, None, through, shape=scene.shape, outside=math.nan) for m in self.moving]
        return [_sums(f, m, where) for f, m in zip(scene.fixed.data, warped, strict=True)]


@dataclass(frozen=True)
class _InformationCost:
    """Mutual information: the mean over voxels of a log-likelihood, whose curvature is Fisher's information.

    `still` is a displacement of zero, `force` the room for the gradient: both are made once a level.
    """

    kernel: Prepared
    scene: Scene
    ops: Ops
    worst: float
    still: Tensor
    force: Tensor

    def evaluate(self, matrix: Matrix) -> Evaluation:
        through = VoxelMap(self.scene.fixed.grid, None, matrix).matrix(self.scene.moving.grid)
        found = self.kernel.linearize(self.still, through, self.force)
        if not found.count:
            return NOTHING
        gradient, information = (t.double().numpy() for t in self.ops.affine_gradient(self.force))
        return Evaluation(found.cost, gradient / found.count, information / found.count)

    def value(self, matrix: Matrix) -> float:
        through = VoxelMap(self.scene.fixed.grid, None, matrix).matrix(self.scene.moving.grid)
        found = self.kernel.linearize(self.still, through)
        return found.cost if found.count else math.inf


class Formula(Protocol):
    def __call__(
        self, sums: NDArray[np.float64], slopes: NDArray[np.float64], products: NDArray[np.float64]
    ) -> Evaluation: ...


def _moments(
    scene: Scene, moving: Tensor, matrix: Matrix, ops: Ops
) -> list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
    """The sums of `affine_moments`, per channel."""
    through = VoxelMap(scene.fixed.grid, None, matrix).matrix(scene.moving.grid)
    masks = {"fixed_mask": scene.fixed.mask, "moving_mask": scene.moving.mask}
    found = [ops.affine_moments(f, m, through, **masks) for f, m in zip(scene.fixed.data, moving, strict=True)]
    return [(sums.double().numpy(), s.double().numpy(), p.double().numpy()) for sums, s, p in found]


def _sums(fixed: Tensor, warped: Tensor, where: Tensor | None) -> NDArray[np.float64]:
    """(6,) sums of 1, F, M, F², M², F M over the voxels that count; the warped image is NaN outside the moving one."""
    inside = ~torch.isnan(warped) if where is None else where & ~torch.isnan(warped)
    f, m = (image[inside].double() for image in (fixed, warped))
    found = [float(len(f)), float(f.sum()), float(m.sum()), float(f @ f), float(m @ m), float(f @ m)]
    return np.array(found)


def _squared_difference(
    sums: NDArray[np.float64], slopes: NDArray[np.float64], products: NDArray[np.float64]
) -> Evaluation:
    """Mean of (F - M)²."""
    n, _, _, ff, mm, fm = sums
    if n == 0:
        return NOTHING
    return Evaluation(float(ff - 2 * fm + mm) / n, 2 * (slopes[2] - slopes[1]) / n, 2 * products / n)


def _correlation(sums: NDArray[np.float64], slopes: NDArray[np.float64], products: NDArray[np.float64]) -> Evaluation:
    """1 - cc, half the mean squared difference of the images standardised over their overlap.

    The standardised image is M̂ = (M - mean) / SD, so its slope is the image's less what changes mean and SD. The
    matrix is scaled by cc: noise that the two images do not share makes the peak lower, not wider.
    """
    n = max(float(sums[0]), 1.0)
    mean_f, mean_m, ff, mm, fm = sums[1:] / n
    var_f, var_m, cov = ff - mean_f**2, mm - mean_m**2, fm - mean_f * mean_m
    if not (var_f > 1e-12 and var_m > 1e-12):
        return NOTHING
    cc = float(cov / math.sqrt(var_f * var_m))
    by_f, by_m = slopes[1] - mean_f * slopes[0], slopes[2] - mean_m * slopes[0]
    gradient = (cov / var_m * by_m - by_f) / (n * math.sqrt(var_f * var_m))
    mean_slope = slopes[0] / n
    spread = products / n - np.outer(mean_slope, mean_slope) - np.outer(by_m, by_m) / (n * n * var_m)
    return Evaluation(1 - cc, gradient, max(cc, LEAST_CORRELATION) / var_m * spread)


def _alike(scene: Scene) -> Tensor:
    """The moving image in the fixed image's standardised units."""
    scales = zip(scene.moving.data, scene.fixed.scale, scene.moving.scale, strict=True)
    return torch.stack([(m * om[1] + (om[0] - of[0])) / of[1] for m, of, om in scales])


def _locally_normalized(scene: Scene, window: int, ops: Ops) -> Scene:
    """The scene with each image's local mean removed and divided by its local SD, in its own voxels."""

    def local(side: Side) -> Side:
        return replace(side, data=_normalize(side.data, window // 2, ops))

    return Scene(local(scene.fixed), local(scene.moving))


def _normalize(image: Tensor, radius: int, ops: Ops) -> Tensor:
    """(image - mean) SD / (variance + floor) in windows: divided by the SD where that is not noise, else faded."""
    radii = tuple(radius if n > 1 else 0 for n in image.shape[1:])
    mean = ops.smooth_box(image.clone(), radii)
    variance = ops.smooth_box(image.square(), radii).sub_(mean.square()).clamp_(min=0)
    floors = torch.tensor([_noise_floor(v) for v in variance], device=image.device, dtype=image.dtype)
    normalized: Tensor = (image - mean) * variance.sqrt() / (variance + floors.reshape(-1, 1, 1, 1))
    return normalized


def _noise_floor(variance: Tensor) -> float:
    """A multiple of the variance in the quietest windows that are not constant, within bounds."""
    values = variance[variance > CONSTANT].cpu().numpy()
    if not len(values):
        return FLOORS[0]
    quiet = np.quantile(values[:: 1 + len(values) // QUANTILE_SAMPLES], QUIETEST)
    return float(np.clip(FLOOR_FACTOR * quiet, *FLOORS))
