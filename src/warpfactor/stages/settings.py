"""Settings of the deformable stage, as data, and those of them that follow from the size of the images."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.optim import Convergence, Damping, Root, Step, Trust, Units
from warpfactor.scene.levels import BLUR, finest_spacing
from warpfactor.terms import LNCC, Term
from warpfactor.terms.base import aligned

UNITS = ("spacing", "normalized")
BOUNDARIES = ("nearest", "zero")
SMOOTHINGS = ("step", "full")
WIDEST = 1000  # of a Gaussian, in voxels; wider than any image is at the level it is used
COARSEST = 1 << 16
STORAGES = ("float32", "int16", "float16")
METHODS = ("greedy", "symmetric", "velocity")  # stages/deform.py has what they do
ANY_UNITS = Units((1.0, 1.0, 1.0), 1.0, (1.0, 1.0, 1.0))


@dataclass(frozen=True)
class Deformable:
    """Settings of the deformable stage.

    Attributes:
        method: "greedy" warps the moving image onto the fixed one; "symmetric" warps both to the middle;
            "velocity" does so by the flow of one stationary velocity field.
        metric: what makes the images alike.
        optimizer: how the gradient becomes a step.
        damping: how long the step is and whether it is kept. Demons, adam and sgd have no damping: the rule has no part
            in them, and no step of theirs is rejected, since a second try would be the same.
        levels: spacing of each level in units of the fixed image's finest spacing, coarse to fine.
        iterations: at most this many per level.
        coarsest: levels are left out or added, each twice as coarse as the next, until the longest axis of the coarsest
            one has about this many voxels; 0 takes `levels` as they are.
        meant_for: width in voxels (geometric mean of the axes) of the fixed image for which `iterations` are meant;
            smaller images get more (see `fitted`); 0 takes them as they are.
        step: longest step in voxels of the level (of its finest axis).
        sigma_grad, sigma_warp: SD of the Gaussians on gradient and warp, in voxels of the level's finest axis
            ("spacing" units) or of each axis ("normalized").
        tail: (share, ratio): this share of the gradient's kernel along each axis is `ratio` times as wide. A heavy tail
            moves neighbourhoods together and still lets a detail move by itself.
        heavy: share of the tail where the correlation length of the force is long (see `reach`); 0 keeps that of
            `tail`, as landmarks, labels and further pairs of images do.
        smoothness: multiplies `sigma_grad` and `sigma_warp`: more than 1 is smoother, less is closer to the images.
        reach: at the start of a level both Gaussians are widened, at most by this factor, to the correlation length of
            what two halves of the force agree on (see agreement.py); 1 leaves them as they are.
        broad_from: correlation length of the force at the finest level, in units of its Gaussian, from which the stage
            ends before that level and Recipe.broad takes over; 0 never does.
        agreement: a level ends when the two halves correlate less than this, as only noise is left; 0 never looks.
        volume: share of a step by which the gradient of the warp's smoothed log Jacobian is added to it, which evens
            out changes of volume; 0 never does.
        smoothing: "step" smooths the warp in proportion to the step taken, so that no step means no smoothing;
            "full" smooths it fully in every iteration, as the paper.
        units: "spacing" makes a step isotropic in millimetres; "normalized" works in coordinates that run from -1 to 1
            along each axis, as the paper, where λ has its published meaning.
        boundary: what the Gaussians see beyond the border, "nearest" or "zero" (the paper).
        truncate: where their taps end, in SD.
        blur: SD of the Gaussian before an image is shrunk by a factor f, in units of f.
        shading: SD in voxels of the smooth part that is taken off both images at a coarse level, for local correlation,
            if they correlate as well without it; 0 never does.
        convergence: when a level stops early.
        channel_weights: of the metric's channels; None weighs them equally.
        storage: how the full images are held, "float32" or "int16": whole numbers that divide the range of intensities
            into 65534 steps, in half the memory and as fast; "float16" takes as much, for backends that read it.
    """

    method: str = "greedy"
    metric: Term = field(default_factory=LNCC)
    optimizer: Step = field(default_factory=Root)
    damping: Damping = field(default_factory=Trust)
    levels: tuple[float, ...] = (4, 2, 1)
    iterations: tuple[int, ...] = (100, 50, 20)
    coarsest: int = 0
    meant_for: int = 0
    step: float = 0.5
    sigma_grad: float = 1.5
    sigma_warp: float = 0.6
    tail: tuple[float, float] = (0.0, 1.0)
    heavy: float = 0.0
    smoothness: float = 1.0
    reach: float = 1.0
    broad_from: float = 0.0
    agreement: float = 0.0
    volume: float = 0.0
    smoothing: str = "step"
    units: str = "spacing"
    boundary: str = "nearest"
    truncate: float = 3.0
    blur: float = BLUR
    shading: float = 0.0
    convergence: Convergence = field(default_factory=Convergence)
    channel_weights: tuple[float, ...] | None = None
    storage: str = "float32"

    def __post_init__(self) -> None:
        if not self.levels or len(self.levels) != len(self.iterations):
            raise InputError(
                f"{len(self.levels)} levels {self.levels} and {len(self.iterations)} iteration limits "
                f"{self.iterations}: give one limit per level, and at least one level."
            )
        if any(b >= a for a, b in zip(self.levels, self.levels[1:], strict=False)) or self.levels[-1] < 1:
            raise InputError(f"Levels {self.levels} must fall from coarse to fine and end at 1 or above.")
        if any(n < 0 for n in self.iterations):
            raise InputError(f"Iterations {self.iterations} must not be negative.")
        self._check_numbers()
        if not 0 <= self.tail[0] <= 1 or not self.tail[1] >= 1:
            raise InputError(f"The tail's share must be in [0, 1] and its ratio at least 1, not {self.tail}.")
        if not 0 <= self.heavy <= 1:
            raise InputError(f"The setting deformable.heavy = {self.heavy:g} must be in [0, 1].")
        if self.method not in METHODS:
            raise InputError(f"Unknown method {self.method!r}; use one of {', '.join(METHODS)}.")
        if self.units not in UNITS:
            raise InputError(f"Unknown units {self.units!r}; use one of {', '.join(UNITS)}.")
        if self.smoothing not in SMOOTHINGS:
            raise InputError(f"Unknown warp smoothing {self.smoothing!r}; use one of {', '.join(SMOOTHINGS)}.")
        if self.storage not in STORAGES:
            raise InputError(f"Unknown storage {self.storage!r}; use one of {', '.join(STORAGES)}.")
        self.optimizer.bind(self.metric, ANY_UNITS)  # raises if the two do not go together

    def _check_numbers(self) -> None:
        if not all(level <= COARSEST for level in self.levels):  # NaN is not either
            raise InputError(f"Levels {self.levels} must be finite numbers of at most {COARSEST}.")
        for name in ("step", "truncate", "smoothness"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"The setting deformable.{name} = {getattr(self, name):g} must be a positive number.")
        for name in ("sigma_grad", "sigma_warp", "blur", "shading", "volume", "coarsest", "meant_for", "broad_from"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(
                    f"The setting deformable.{name} = {getattr(self, name):g} must be 0 or a positive number."
                )
        widest = max(self.sigma_grad * self.tail[1], self.sigma_warp) * self.smoothness
        if not (max(widest, self.blur, self.shading) <= WIDEST and self.truncate <= WIDEST):
            raise InputError(
                f"The settings deformable.sigma_grad = {self.sigma_grad:g}, sigma_warp = {self.sigma_warp:g} (times "
                f"smoothness = {self.smoothness:g}), blur = {self.blur:g}, shading = {self.shading:g} and truncate = "
                f"{self.truncate:g} describe a Gaussian of more than {WIDEST} voxels; give smaller numbers."
            )
        if not 1 <= self.reach <= WIDEST or not self.agreement < 1:
            raise InputError(
                f"The setting deformable.reach = {self.reach:g} must be at least 1, and deformable.agreement = "
                f"{self.agreement:g} below 1."
            )
        if self.boundary not in BOUNDARIES:
            raise InputError(f"Unknown boundary {self.boundary!r}; use one of {', '.join(BOUNDARIES)}.")
        weights = self.channel_weights
        if weights is not None and (not weights or min(weights) < 0 or not 0 < sum(weights) < math.inf):
            given = ", ".join(f"{weight:g}" for weight in weights) or "(none)"
            raise InputError(f"The channel weights {given} must not be negative, and one must be positive.")


def fitted(settings: Deformable, grid: Grid) -> Deformable:
    """The settings for a fixed image on this grid: `coarsest` and `meant_for` have become levels and iterations.

    The coarsest level is the power of two that comes nearest to `coarsest` voxels along the longest axis. Settings per
    level are those of the finest levels; further coarse ones have those of the first. An image narrower than the ones
    that the iterations are meant for has more of them, in proportion, but no level more than the coarsest.
    """
    if settings.coarsest > 0:
        finest = finest_spacing(grid)
        width = max(n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True) if n > 1) / finest
        depth = 1 + max(0, round(math.log2(width / settings.coarsest)))
        settings = replace(
            settings,
            levels=tuple(2.0**k for k in reversed(range(depth))),
            iterations=aligned(settings.iterations, depth),
            metric=settings.metric.for_levels(depth),
            coarsest=0,
        )
    if settings.meant_for > 0:
        width = math.prod(grid.shape) ** (1 / sum(n > 1 for n in grid.shape))
        factor = max(1.0, settings.meant_for / width)
        most = max(settings.iterations)
        more = tuple(min(most, round(factor * n)) for n in settings.iterations)
        settings = replace(settings, iterations=more, meant_for=0)
    return settings
