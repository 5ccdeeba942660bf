"""`longitudinal`: scans of one person in, what changed between them out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor import kernels
from warpfactor.errors import InputError
from warpfactor.followup.result import Longitudinal, figures_of
from warpfactor.followup.space import CommonSpace, common_space, halves_of
from warpfactor.followup.structures import lost_changes
from warpfactor.geometry.image import Image
from warpfactor.io import from_any, read_labels
from warpfactor.kernels.ops import Ops
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.apply import outside_values, resample_channels
from warpfactor.registration.inputs import load_image
from warpfactor.registration.resources import checked_device
from warpfactor.registration.result import Registration
from warpfactor.registration.run import register
from warpfactor.scene.levels import finest_spacing
from warpfactor.scene.object import background, foreground
from warpfactor.stages.stage import Progress

# SD of a Gaussian on the scans before they are compared, in voxels of the finest axis. Interpolation averages noise
# wherever it falls between voxels, so without this scans would look more alike if only they moved off their grids.
QUIET_VOX = 0.7


def longitudinal(  # noqa: PLR0913 - as register, all but the scans have defaults
    scans: Sequence[Any],
    *,
    labels: Any = None,
    masks: Sequence[Any] | None = None,
    recipe: str | Recipe = "longitudinal",
    overrides: Mapping[str, Any] | None = None,
    device: str | torch.device = "cpu",
    backend: str = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Longitudinal:
    """Register scans of one person to a space between them, and map the change since the first scan.

    Every later scan is registered with the first one: a rigid transform, found both ways round, then a warp that moves
    both to the middle. Exchanged scans have the negative of the map, to rounding. Two scans are compared in their
    middle, more of them in the mean position and shape of all.

    Args:
        scans: two or more of the same contrast, the first one first; each as an image of `register`.
        labels: a label map or mask of the first scan; the change of every structure is measured.
        masks: where each scan counts, such as brain masks; one per scan.
        recipe: whose deformable stage treats both images alike.
        overrides: settings to change in the recipe, by dotted name.
        device, backend, threads, progress: as for `register`.

    >>> import warpfactor as wf
    >>> made = wf.phantom.phantom((24, 26, 24))
    >>> result = wf.longitudinal([made.fixed, made.fixed])
    >>> result.changes[0].mean_absolute_log < 0.001
    True
    """
    began = time.perf_counter()
    images = _load(scans, masks)
    target = None if labels is None else _labels(labels, images[0])
    ops = kernels.choose(checked_device("cpu"), backend).load()
    quiet = [_quiet(image, ops) for image in images]

    def registered(number: int, first: Image) -> Registration:
        result = register(
            first,
            quiet[number],
            recipe=recipe,
            overrides=overrides,
            fixed_mask=None if masks is None else masks[0],
            moving_mask=None if masks is None else masks[number],
            device=device,
            backend=backend,
            threads=threads,
            progress=progress,
        )
        halves_of(result)  # raises if the recipe favours one of the scans
        return result

    found = [registered(number, quiet[0]) for number in range(1, len(images))]
    lost: list[dict[int, float]] = [{} for _ in found]
    if target is not None:
        lost = [
            lost_changes(quiet[0], target, each, partial(registered, number), ops)
            for number, each in enumerate(found, start=1)
        ]
    space = common_space(found, ops)
    shown = tuple(_in_space(image, space, number, ops) for number, image in enumerate(images))
    mean = replace(shown[0], data=torch.stack([each.data for each in shown]).mean(0), name="mean")
    carried = None if target is None else space.to_scans[0].resample(target, space.grid, mode="label", ops=ops)
    inside = foreground(torch.nan_to_num(mean.data), None)
    changes = tuple(
        figures_of(image.name, change, inside, carried, missing, each, ops)
        for image, change, missing, each in zip(images[1:], space.log_changes, lost, found, strict=True)
    )
    return Longitudinal(shown, mean, space.to_scans, changes, carried, time.perf_counter() - began)


def _load(scans: Sequence[Any], masks: Sequence[Any] | None) -> list[Image]:
    """The scans with names that differ; InputError if there are too few, or not one mask for each."""
    if isinstance(scans, (str, Path)) or len(scans) < 2:
        raise InputError("At least two scans of one person are needed; give them as a list.")
    if masks is not None and len(masks) != len(scans):
        raise InputError(f"There are {len(scans)} scans and {len(masks)} masks; give one mask for each scan.")
    images = [load_image(scan, name=f"scan {number}") for number, scan in enumerate(scans, start=1)]
    for number, image in enumerate(images, start=1):
        if image.channels != images[0].channels:
            raise InputError(
                f"{image.name} has {image.channels} channels and {images[0].name} has {images[0].channels}; all scans "
                "need the same number of channels."
            )
        if any(image.name == other.name for other in images[: number - 1]):
            images[number - 1] = replace(image, name=f"{image.name} ({number})")
    return images


def _labels(source: Any, first: Image) -> Image:
    """A label map on the grid of the first scan."""
    if isinstance(source, (str, Path)):
        found = read_labels(source)
    elif isinstance(source, (np.ndarray, Tensor)):
        found = Image.from_array(source, grid=first.grid, name="labels")
    else:
        found = from_any(source)
    if found.channels != 1 or not torch.equal(found.data, found.data.round()) or not bool(found.data.any()):
        raise InputError(f"{found.name}: is not a label map; it needs whole numbers, some of them other than zero.")
    return Image(found.data.to(torch.int32), found.grid, found.name).on_grid(first.grid)


def _quiet(image: Image, ops: Ops) -> Image:
    """The image smoothed a little, in units of what it shows: its background is 0 and the mean of its object 1.

    Voxels that are NaN or infinite stay so and add nothing to the others.
    """
    finite, grid = torch.isfinite(image.data), image.grid
    sigma = [
        QUIET_VOX * finest_spacing(grid) / s if n > 1 else 0.0 for s, n in zip(grid.spacing_mm, grid.shape, strict=True)
    ]
    parts = []
    for channel, valid in zip(image.data, finite, strict=True):
        empty = background(channel)
        values = torch.where(valid, channel.to(torch.float32) - empty, 0.0)[None].contiguous()
        shown = values[foreground(values, None)[None]].double().mean()
        parts.append(ops.smooth_gaussian(values, sigma) / (float(shown) or 1.0))
    return replace(image, data=torch.where(finite, torch.cat(parts), torch.nan))


def _in_space(image: Image, space: CommonSpace, number: int, ops: Ops) -> Image:
    """A scan in the common space, with its own background where it does not reach."""
    beyond = outside_values(image, None)
    shown = resample_channels(space.to_scans[number], image, space.grid, outside=beyond, ops=ops)
    return replace(shown, name=image.name)
