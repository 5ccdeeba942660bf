"""Local normalised cross-correlation: r = mean of 1 - LNCC over windows that have contrast in the fixed image.

Correlation divides by the variance of a window. Where that is rounding or noise, the quotient is large and random: such
windows push hardest of all and make the warp depend on the last bit of the images (docs/method.md has the figures).
A window therefore needs a variance that is a share of the image's own contrast, or a multiple of its noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.ops import Ops, Slab
from warpfactor.scene.scene import Scene
from warpfactor.terms.base import aligned, at_level
from warpfactor.terms.channels import Call, Channel, Channels, normalized_weights

SAMPLES = 250_000  # voxels whose windows are looked at
PLANES = 16  # at least so many planes are, whatever their size
EMPTY = 1e-4  # windows with a smaller share of the contrast show nothing and say nothing about the noise
MOST = 0.5  # of the contrast: an image of one texture, or of noise alone, still has windows that count
QUIET = 0.05  # this fraction of the windows that show something has noise alone


@dataclass(frozen=True)
class LNCC:
    """Settings of local normalised cross-correlation.

    Attributes:
        size: edge of the window in voxels, odd; one for all levels or one per level, coarse to fine.
        window: "box", or "gaussian" with a sixth of the edge as SD.
        squared: correlation squared (contrast may be inverted) or signed.
        exact: the true gradient; False leaves out how a voxel changes its neighbours' windows, as the paper's kernel.
        symmetric: use the mean of the warped and the (rescaled) fixed image's slope as direction of the force.
        flat: windows with less than this share of the image's contrast do not count; see `least_variance`.
        noise: nor do windows with less than this many times the variance of the noise.
    """

    size: int | tuple[int, ...] = 5
    window: str = "box"
    squared: bool = True
    exact: bool = True
    symmetric: bool = False
    flat: float = 0.01
    noise: float = 2.0
    name: str = "lncc"

    def __post_init__(self) -> None:
        sizes = self.size if isinstance(self.size, tuple) else (self.size,)
        if not sizes or any(s < 1 or s % 2 == 0 for s in sizes):
            raise InputError(f"LNCC window size {self.size} must be odd and positive; use 3, 5, 7, ...")
        if self.window not in ("box", "gaussian"):
            raise InputError(f"Unknown LNCC window {self.window!r}; use 'box' or 'gaussian'")
        if not (0 <= self.flat < 1 and self.noise >= 0):
            raise InputError(f"LNCC flat {self.flat} must be in [0, 1) and noise {self.noise} not negative")

    @property
    def sees_shading(self) -> bool:
        """A window at a coarse level may show more of a bias field than of the tissue."""
        return True

    def for_levels(self, count: int) -> LNCC:
        """Window sizes per level are those of the finest levels."""
        return replace(self, size=aligned(self.size, count)) if isinstance(self.size, tuple) else self

    def prepare(self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Channels:
        """The metric over the images of one level."""
        radii = self._radii(scene, level)
        floors = self._floors(scene, radii, ops)
        plans = ops.lncc_plans(scene.fixed.data, scene.fixed.mask, **self._planned(radii, floors))
        return self._channels(scene, ops, radii, floors, plans, weights)

    @property
    def slab_bytes(self) -> int:
        """Rows at the cuts between blocks."""
        return 2

    def reach(self, level: int) -> int:
        """Two radii, since a voxel is in windows that reach as far again; at least one voxel for derivatives."""
        return 2 * (at_level(self.size, level) // 2) + 1

    def prepare_slabs(
        self, scene: Scene, ops: Ops, slabs: Sequence[Slab], *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> tuple[Channels, ...]:
        """The metric over every slab of the fixed image."""
        radii = self._radii(scene, level)
        floors = self._floors(scene, radii, ops)
        plans = ops.lncc_slabs(scene.fixed.data, scene.fixed.mask, slabs=slabs, **self._planned(radii, floors))
        spare: list[Tensor] = []  # they take turns
        parts = []
        for slab, own in zip(slabs, plans, strict=True):
            mask = None if scene.fixed.mask is None else scene.fixed.mask[slab.outer]
            fixed = replace(scene.fixed, data=scene.fixed.data[:, slab.outer], mask=mask)
            part = self._channels(scene.with_fixed(fixed), ops, radii, floors, own, weights)
            parts.append(replace(part, spare=spare))
        return tuple(parts)

    def _radii(self, scene: Scene, level: int) -> tuple[int, ...]:
        radius = at_level(self.size, level) // 2
        return tuple(radius if n > 1 else 0 for n in scene.shape)

    def _planned(self, radii: tuple[int, ...], floors: Sequence[tuple[float, float]]) -> dict[str, Any]:
        """What plans are made for."""
        fixed_floors = [floor for floor, _ in floors]
        return {"radius": radii, "window": self.window, "exact": self.exact, "floors": fixed_floors}

    def _channels(
        self,
        scene: Scene,
        ops: Ops,
        radii: tuple[int, ...],
        floors: Sequence[tuple[float, float]],
        plans: Sequence[object],
        weights: tuple[float, ...] | None,
    ) -> Channels:
        """One call of the kernel per channel."""
        fixed, moving = scene.sides

        def call(of_fixed: Tensor, of_moving: Tensor, flat: tuple[float, float], plan: object) -> Channel:
            options = {
                "radius": radii,
                "window": self.window,
                "squared": self.squared,
                "exact": self.exact,
                "symmetric": self.symmetric,
                "flat": flat,
                "fixed_mask": fixed.mask,
                "moving_mask": moving.mask,
                "plan": plan,
            }
            return Call(ops, "lncc", lambda _: (of_fixed, of_moving), options)

        calls = tuple(itertools.starmap(call, zip(fixed.data, moving.data, floors, plans, strict=True)))
        return Channels(calls, normalized_weights(weights, len(calls)))

    def _floors(self, scene: Scene, radii: tuple[int, ...], ops: Ops) -> tuple[tuple[float, float], ...]:
        """Least variances of fixed and moving windows, per channel; measured once for a scene."""

        def floor(image: Tensor, mask: Tensor | None) -> float:
            return least_variance(image, mask, radii, share=self.flat, noise=self.noise, ops=ops)

        key = ("least variances", radii, self.flat, self.noise)
        if key not in scene.notes:
            scene.notes[key] = tuple(
                (floor(fixed, scene.fixed.mask), floor(moving, scene.moving.mask))
                for fixed, moving in zip(scene.fixed.data, scene.moving.data, strict=True)
            )
        found: tuple[tuple[float, float], ...] = scene.notes[key]
        return found


def least_variance(
    image: Tensor, mask: Tensor | None, radius: tuple[int, ...], *, share: float, noise: float, ops: Ops
) -> float:
    """The larger of `share` times the contrast and `noise` times the noise variance, at most half the contrast.

    The contrast is Σv² / Σv over the variances v of the windows, the noise a low quantile of them. Neither changes
    when an empty margin is added, and both scale with the image.

    Args:
        image: (D, H, W).
        mask: where the image counts, or None.
        radius: of the windows, per axis.
    """
    variances, inside = _window_variances(image, mask, radius, ops)
    found = ops.tally(variances, mask=inside)
    if not found.total > 0:
        return 0.0
    contrast: float = found.squares / found.total
    shown = variances > EMPTY * contrast
    quiet: float = ops.percentiles(variances, (100 * QUIET,), mask=shown if inside is None else shown & inside)[0]
    return min(max(share * contrast, noise * quiet), MOST * contrast)


def _window_variances(
    image: Tensor, mask: Tensor | None, radius: tuple[int, ...], ops: Ops
) -> tuple[Tensor, Tensor | None]:
    """Variances of the windows around the voxels of evenly spread planes, and which of these voxels count."""
    depth, reach = image.shape[0], radius[0]
    every = max(1, min(image.numel() // SAMPLES, depth // PLANES))
    centres = torch.arange(every // 2, depth, every)
    dtype = image.dtype if image.is_floating_point() else torch.float32
    sums = torch.zeros((2, len(centres), 1, *image.shape[1:]), dtype=dtype, device=image.device)
    for offset in range(-reach, reach + 1):
        within = ((centres + offset >= 0) & (centres + offset < depth)).nonzero().flatten().tolist()
        if within:
            first, last = within[0], within[-1]
            part = image[int(centres[first]) + offset : int(centres[last]) + offset + 1 : every].to(dtype)
            sums[0, first : last + 1, 0] += part
            sums[1, first : last + 1, 0].addcmul_(part, part)
    planes = (centres + reach).clamp(max=depth - 1) - (centres - reach).clamp(min=0) + 1
    sums /= planes.to(sums).reshape(1, -1, 1, 1, 1)
    means, squares = (ops.smooth_box(part, (0, radius[1], radius[2])) for part in sums)
    variances = squares.sub_(means.square_()).clamp_(min=0)
    return variances, None if mask is None else mask[every // 2 :: every][:, None] > 0
