"""Shading taken off the images of a coarse level, when it is what their windows show.

A window at a coarse level is so wide that a bias field can change more across it than the tissue does. If that shading
runs against itself in the two images, local correlation pulls everywhere the wrong way. Without their smooth part the
images then correlate as well as with it, though half of what they share is gone; ordinary images correlate clearly
less, and are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import Level
from warpfactor.scene.scene import Scene
from warpfactor.stages.settings import Deformable
from warpfactor.stages.share import ALONE, Share
from warpfactor.terms import LNCC, Linearization

WINDOWS = LNCC(3, squared=False)  # the metric by which windows are compared
LIMIT = 0.9  # mean correlation above which shading does no harm
MARGIN = 0.02  # of mean correlation; ordinary images lose 0.04 and more, opposite shading of 0.3 to 1.7 at most 0.01


def without_shading(
    level: Level, settings: Deformable, likeness: Callable[[Scene], float], ops: Ops, share: Share = ALONE
) -> Level:
    """The level with the smooth part of both images taken off, if windows then correlate as well; else itself.

    Args:
        level: with images in floating point.
        settings: `shading` is the SD of the Gaussian mean that is the smooth part, in voxels of the level.
        likeness: mean correlation of small windows of two such images where the level starts; see `window_likeness`.
        ops: for images.
        share: which planes are computed here.
    """
    if not (settings.shading > 0 and settings.metric.sees_shading and level.factor > 1):
        return level
    whole = likeness(level.scene)
    if whole > LIMIT:
        return level
    bare = share.scene(partial(_bare, level.scene, settings.shading, ops))
    left = likeness(bare)
    return replace(level, scene=bare) if left and left > whole - MARGIN else level


def window_likeness(point: Linearization) -> float:
    """Mean correlation of windows, of whatever sign, from the cost by WINDOWS; 0 where there are none."""
    return abs(1 - point.cost) if point.count else 0.0


def _bare(scene: Scene, sd: float, ops: Ops) -> Scene:
    """The scene with the smooth part of both images taken off."""
    fixed, moving = (replace(s, data=_residue(s.data, sd, ops)) for s in scene.sides)
    return Scene(fixed, moving)


def _residue(images: Tensor, sd: float, ops: Ops) -> Tensor:
    """(C, D, H, W) images less their Gaussian mean."""
    mean = ops.smooth_gaussian(images.clone(), (sd, sd, sd))
    return torch.sub(images, mean, out=mean)
