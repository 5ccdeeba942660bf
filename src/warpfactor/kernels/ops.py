"""The Ops protocol: every operation a backend offers, with its signature, shapes and meaning, said once.

Volumes are (D, H, W) in array order (z, y, x), images (C, D, H, W), displacements (3, D, H, W) in voxels of the grid
they live on; a 2-D image has D == 1. A `matrix` is (3, 4) and takes a fixed voxel index plus displacement to a moving
voxel index, p = matrix[:, :3] (x + u(x)) + matrix[:, 3]. A point is inside an image up to half a voxel beyond the
outermost voxel centres, as in ITK, and takes the edge value there. Masks are uint8 on the grid of their own image.

A backend is a module, or any object, with these functions. `warpfactor.kernels.reference` defines each of them in plain
PyTorch; a faster backend must agree with it to rounding. The registry is in `warpfactor.kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor


@dataclass(frozen=True)
class Tally:
    """What one pass over a set of values gives.

    Attributes:
        count: number of values.
        nonpositive: number of values that are zero or less.
        minimum, maximum: the extremes; (inf, -inf) if there are no values.
        total, squares: sums of the values and of their squares, or of their logarithms.
    """

    count: int
    nonpositive: int
    minimum: float
    maximum: float
    total: float
    squares: float


class Slab(NamedTuple):
    """Some planes of a volume, worked on by themselves.

    Attributes:
        outer: the planes that are given, with as many around the core as windows reach.
        core: the planes that are meant.
    """

    outer: slice
    core: slice

    @property
    def inner(self) -> slice:
        """The core, counted from the first of the outer planes."""
        return slice(self.core.start - self.outer.start, self.core.stop - self.outer.start)


class Ops(Protocol):
    """The operations of a backend."""

    # Sampling ---------------------------------------------------------------------------------------------------

    def sample(
        self,
        image: Tensor,
        displacement: Tensor | None,
        matrix: Tensor,
        *,
        shape: Sequence[int] | None = None,
        mode: Any = "linear",
        outside: float = 0.0,
    ) -> Tensor:
        """The image (D, H, W) at p for every voxel of the fixed grid.

        Args:
            displacement: (3, *fixed shape), or None for the affine alone.
            shape: shape of the fixed grid; read only if there is no displacement.
            mode: "linear", or "nearest", which takes floor(p + 0.5).
            outside: value of points outside the image.
        """
        ...

    def sample_gradient(
        self, image: Tensor, displacement: Tensor, matrix: Tensor, *, outside: float = 0.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """image(p), its derivative by the displacement (3, *fixed shape), and a bool map of the points inside."""
        ...

    def sample_labels(
        self,
        labels: Tensor,
        displacement: Tensor | None,
        matrix: Tensor,
        *,
        shape: Sequence[int] | None = None,
        outside: float = 0.0,
    ) -> Tensor:
        """The label with the largest linear interpolation weight at p; labels never mix."""
        ...

    # Metrics: each returns (total, count) and, if a gradient is given, overwrites it with d total / d displacement ---

    def lncc_plans(
        self,
        fixed: Tensor,
        mask: Tensor | None,
        *,
        radius: Sequence[int],
        window: Any,
        exact: bool,
        floors: Sequence[float],
    ) -> tuple[object, ...]:
        """One opaque plan per channel of `fixed` (C, D, H, W), made once a level; it makes `lncc` faster.

        Args:
            mask: the fixed mask.
            floors: the variance that a fixed window must exceed to count, per channel; flat[0] of `lncc`.
        """
        ...

    def lncc_slabs(
        self,
        fixed: Tensor,
        mask: Tensor | None,
        *,
        slabs: Sequence[Slab],
        radius: Sequence[int],
        window: Any,
        exact: bool,
        floors: Sequence[float],
    ) -> tuple[tuple[object, ...], ...]:
        """For every slab of `fixed` (C, D, H, W) one opaque plan per channel; see `lncc_plans` for the rest.

        Called with such a plan and the outer planes of the fixed image and the displacement, `lncc` sums over the core
        and writes its gradient; that of the other planes is undefined. With 2 radius + 1 planes around the core, the
        sums of all slabs make up those of the image.
        """
        ...

    def lncc(
        self,
        fixed: Tensor,
        moving: Tensor,
        displacement: Tensor,
        matrix: Tensor,
        *,
        radius: Sequence[int],
        window: Any = "box",
        squared: bool = True,
        exact: bool = True,
        symmetric: bool = False,
        flat: tuple[float, float],
        gradient: Tensor | None = None,
        fixed_mask: Tensor | None = None,
        moving_mask: Tensor | None = None,
        plan: object = None,
    ) -> tuple[float, float]:
        """Sum of 1 - cc over the voxels whose fixed window has contrast, and how many these are.

        Args:
            radius: radius of the window per axis (z, y, x); windows are cut at the border.
            window: "box", or "gaussian" with a standard deviation of (2 radius + 1) / 6.
            squared: cc = c^2 / (vF vM), which ignores the sign of the contrast; otherwise c / sqrt(vF vM).
            exact: the true gradient; False leaves out how a voxel changes the windows of its neighbours.
            symmetric: use (dM/du + rho dF/dx) / 2 with rho = sign(c) sqrt(vM / vF) as the slope in the gradient.
            flat: variances of fixed and moving windows at or below which a window has no contrast.
            plan: from `lncc_plans` for the same fixed image, mask and settings.
        """
        ...

    def mse(
        self,
        fixed: Tensor,
        moving: Tensor,
        displacement: Tensor,
        matrix: Tensor,
        *,
        gradient: Tensor | None = None,
        fixed_mask: Tensor | None = None,
        moving_mask: Tensor | None = None,
        alike: tuple[float, float] = (1.0, 0.0),
        symmetric: bool = False,
        demons: float | None = None,
        lengths: tuple[float, float, float] = (1.0, 1.0, 1.0),
    ) -> tuple[float, float]:
        """Sum of squared differences F - (a M(p) + b), (a, b) = `alike`, over the voxels that count, and their number.

        Args:
            symmetric: use (dM/du + dF/dx) / 2 as the slope in the gradient.
            demons: alpha; instead of the gradient, write minus the demons force r n / (|n|^2 + alpha^2 r^2) (paper
                eq. 9), lengths along each axis weighted by `lengths`.
        """
        ...

    def mi(
        self,
        fixed: Tensor,
        moving: Tensor,
        displacement: Tensor,
        matrix: Tensor,
        *,
        bins: int,
        fixed_range: tuple[float, float],
        moving_range: tuple[float, float],
        gradient: Tensor | None = None,
        fixed_mask: Tensor | None = None,
        moving_mask: Tensor | None = None,
    ) -> tuple[float, float]:
        """count (log B - MI) and count, natural logarithm, from a joint histogram of `bins` x `bins` bins.

        The fixed intensity votes with a linear window, the moving one with a cubic B-spline; values beyond a range are
        clipped.
        """
        ...

    def mind_channels(self, image: Tensor, *, pairs: Sequence[tuple[Any, Any]], sigma: Sequence[float]) -> Tensor:
        """Twelve self-similarity channels of an image, (D, H, W, 12) uint8: 255 exp(-d_k / V).

        d_k is the patch distance G * (I(x + a_k) - I(x + b_k))^2 and V the mean of the twelve, at least a thousandth of
        its mean over the image.

        Args:
            pairs: the twelve pairs of offsets a_k and b_k, in voxels.
            sigma: SD of the Gaussian patch G per axis, in voxels.
        """
        ...

    def mind(
        self,
        fixed: Tensor,
        moving: Tensor,
        displacement: Tensor,
        matrix: Tensor,
        *,
        gradient: Tensor | None = None,
        fixed_mask: Tensor | None = None,
        moving_mask: Tensor | None = None,
        symmetric: bool = False,
    ) -> tuple[float, float]:
        """Sum over the voxels that count of the mean over channels of (F_k - M_k(p))^2 / 255^2, and their number.

        Args:
            fixed, moving: channels of `mind_channels`; the pairs of the moving image are those of the fixed one, as
                the matrix carries them there.
            symmetric: use (dM/du + dF/dx) / 2 as the slope in the gradient.
        """
        ...

    # Linear stages --------------------------------------------------------------------------------------------------

    def affine_moments(
        self,
        fixed: Tensor,
        moving: Tensor,
        matrix: Tensor,
        *,
        fixed_mask: Tensor | None = None,
        moving_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The sums from which squared difference and correlation under an affine displacement follow.

        With X = (z, y, x, 1) and n = dM/du: (6,) sums of 1, F, M, F^2, M^2, F M; (3, 12) sums of n (x) X, F n (x) X,
        M n (x) X; (12, 12) sum of (n (x) X)(n (x) X)^T. On the CPU, float64 where the device has it.
        """
        ...

    def affine_gradient(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of g (x) X, (12,), and of (g (x) X)(g (x) X)^T, (12, 12), over the voxels of g = `gradient`."""
        ...

    # Steps: each overwrites the gradient with the step and returns the longest step and the predicted decrease --------

    def norms(self, gradient: Tensor, weights: Sequence[float]) -> tuple[float, float, float]:
        """Sum of |g|^2, sum of |g| and the number of voxels with a gradient; g weighted per axis by `weights`."""
        ...

    def descend(
        self, gradient: Tensor, *, form: str, damping: float, weights: Sequence[float], residual: float = 1.0
    ) -> tuple[float, float]:
        """The steps "pointwise" -r g / (|g|^2 + lambda), "root" -r g / (|g| + sqrt(lambda)) and "plain" -r g."""
        ...

    def tile(
        self,
        gradient: Tensor,
        *,
        size: Sequence[int],
        damping: float,
        weights: Sequence[float],
        residual: float = 1.0,
    ) -> tuple[float, float]:
        """The step -(H + lambda I)^-1 r g with H the mean of g g^T over a window of `size` voxels (paper eq. 6)."""
        ...

    def adam(
        self,
        gradient: Tensor,
        first: Tensor,
        second: Tensor,
        *,
        number: int | Tensor,
        betas: tuple[float, float],
        epsilon: float,
        weights: Sequence[float],
    ) -> tuple[float, float]:
        """Adam's step number `number` (from 1); `first` and `second`, the moments, are updated in place."""
        ...

    # Fields ---------------------------------------------------------------------------------------------------------

    def compose(self, warp: Tensor, step: Tensor, *, scale: float = 1.0, out: Tensor | None = None) -> Tensor:
        """x -> s step(x) + warp(x + s step(x)); `out` may be `step`. Beyond the border `warp` keeps its edge value."""
        ...

    def resize(self, field: Tensor, shape: Sequence[int], scale: Sequence[float], offset: Sequence[float]) -> Tensor:
        """(C, *shape): `field` at scale * index + offset per axis, linear, clamped to the edge."""
        ...

    def shrink(self, images: Tensor, shape: Sequence[int], sigma: Sequence[float]) -> Tensor:
        """(C, *shape): images smoothed by a Gaussian (sigma in voxels), on a coarser grid of the same extent."""
        ...

    def smooth_gaussian(
        self,
        field: Tensor,
        sigma: Sequence[float],
        *,
        boundary: Any = "nearest",
        truncate: float = 3.0,
        tail: tuple[float, float] = (0.0, 1.0),
    ) -> Tensor:
        """Gaussian smoothing of (C, D, H, W) in place; returns `field`.

        Args:
            sigma: standard deviation in voxels per axis; 0 leaves an axis alone.
            boundary: "nearest" continues the edge value beyond the border, "zero" does not.
            truncate: radius of the taps in standard deviations.
            tail: (share, ratio): this share of the taps is a Gaussian `ratio` times as wide.
        """
        ...

    def smooth_box(self, field: Tensor, radius: Sequence[int]) -> Tensor:
        """Mean of (C, D, H, W) over windows of 2 radius + 1 voxels, cut at the border, in place; returns `field`."""
        ...

    def jacobian_determinant(self, displacement: Tensor) -> Tensor:
        """det(I + du/dx), (D, H, W), by central differences, one-sided at the border."""
        ...

    def distortion(self, displacement: Tensor, spacing: Sequence[float]) -> tuple[Tensor, Tensor]:
        """(D, H, W) shear |F|^2 / (d det(F)^(2/d)) - 1, F = I + du/dx, and the least of the 2^d one-sided determinants.

        Args:
            spacing: along z, y, x; F is measured in lengths.
        """
        ...

    def invert(
        self, displacement: Tensor, *, start: Tensor | None = None, iterations: int = 50, tolerance: float = 1e-3
    ) -> tuple[Tensor, Tensor]:
        """The inverse displacement v, and its residual |v(x) + u(x + v(x))| (D, H, W) in voxels."""
        ...

    def round_trip(self, first: Tensor, second: Tensor, gram: Any) -> tuple[Tensor, Tensor]:
        """Length of e = first(x) + second(x + first(x)) as sqrt(e^T gram e), and where x + first(x) is in the grid."""
        ...

    # Statistics -----------------------------------------------------------------------------------------------------

    def tally(
        self, values: Tensor, *, mask: Tensor | None = None, log_range: tuple[float, float] | None = None
    ) -> Tally:
        """Count, extremes and sums of the values where the mask is not zero.

        Args:
            log_range: sum the logarithms of the values, clipped to this range, instead of the values.
        """
        ...

    def percentiles(self, values: Tensor, ranks: Sequence[float], *, mask: Tensor | None = None) -> list[float]:
        """The values below which `ranks` percent of all lie, with linear interpolation."""
        ...


class DeviceOps(Ops, Protocol):
    """The operations of a backend whose host does not wait for its device.

    All figures that operations of `Ops` return are float64 tensors without axes on the device, and so may be what they
    are given as `damping`, `residual` and `scale`. A backend has them as its attribute `on_device`; see `held.py`.
    """

    def smooth_share(
        self, field: Tensor, sigma: Sequence[float], share: Tensor, *, boundary: Any = "nearest", truncate: float = 3.0
    ) -> Tensor:
        """`smooth_gaussian` with a standard deviation of sigma sqrt(share), share being a figure of at most 1."""
        ...

    def smooth_descend(
        self,
        gradient: Tensor,
        sigma: Sequence[float],
        *,
        boundary: Any,
        truncate: float,
        tail: tuple[float, float],
        form: str,
        damping: float,
        weights: Sequence[float],
        residual: float = 1.0,
    ) -> tuple[float, float]:
        """`smooth_gaussian` of a gradient, then `descend`."""
        ...

    def smooth_adam(
        self,
        gradient: Tensor,
        first: Tensor,
        second: Tensor,
        sigma: Sequence[float],
        *,
        boundary: Any,
        truncate: float,
        tail: tuple[float, float],
        number: int | Tensor,
        betas: tuple[float, float],
        epsilon: float,
        weights: Sequence[float],
    ) -> tuple[float, float]:
        """`smooth_gaussian` of a gradient, then `adam`; if the number is the device's and 0, the moments stay."""
        ...

    def advance(
        self,
        warp: Tensor,
        step: Tensor,
        *,
        scale: Any,
        sigma: Sequence[float],
        share: Any = 1.0,
        boundary: Any = "nearest",
        truncate: float = 3.0,
        log_volume: Tensor | None = None,
        rate: Any = 0.0,
        weights: Sequence[float] = (0.0, 0.0, 0.0),
    ) -> Tensor:
        """Overwrite a step with the next warp: `even_out` if there is a volume, `compose`, then `smooth_share`.

        A share that is one of Python's numbers stays what it is.
        """
        ...

    def log_volume(
        self,
        displacement: Tensor,
        least: float,
        sigma: Sequence[float],
        *,
        boundary: Any = "nearest",
        truncate: float = 3.0,
    ) -> Tensor:
        """(D, H, W) logarithm of `jacobian_determinant`, or of `least` where it is less, after `smooth_gaussian`."""
        ...

    def take(self, field: Tensor, other: Tensor, flag: Tensor) -> None:
        """Overwrite the field with the other one if the flag, without axes, is not zero."""
        ...

    def even_out(self, step: Tensor, log_volume: Tensor, rate: Tensor, weights: Sequence[float]) -> None:
        """Add rate * weights^2 * grad(log_volume) to a step, by central differences; at an axis' border nothing."""
        ...

    def decide(self, rule: Callable[..., Sequence[Any]], *figures: Any) -> Tensor:
        """(N,) float64: the N numbers that a rule, written with `numbers.py`, makes of figures; flags are 1 or 0.

        Figures may also be Python's numbers, or None; at least one is of the device.
        """
        ...
