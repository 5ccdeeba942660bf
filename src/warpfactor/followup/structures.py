"""What smoothing takes off the change of a structure, measured by a change that is known.

A map of change is as smooth as noise makes it, so a structure that shrinks by itself shares its change with what lies
around it, by how much depends on the images. So the change that was found is imposed on the structures of the first
scan once more, where it is known exactly, and the scans are registered again: what of it is missing then was missing
the first time, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from warpfactor.followup.space import common_space
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Warp
from warpfactor.kernels.ops import Ops
from warpfactor.registration.result import Registration
from warpfactor.scene.middle import displaced


def lost_changes(
    first: Image, labels: Image, found: Registration, register_again: Callable[[Image], Registration], ops: Ops
) -> dict[int, float]:
    """By how much the log change of every structure was found too small in size.

    Args:
        first: the first scan as it was registered.
        labels: its structures, on its grid.
        found: its registration with a later scan.
        register_again: registers another first scan with that one in the same way.
    """
    before = _changes(found, labels, ops)
    pattern = torch.zeros(labels.grid.shape)
    for value, change in before.items():
        pattern[labels.data[0] == value] = change
    way = displacement_of(pattern, labels.grid)
    changed = replace(first, data=torch.stack([displaced(channel, way, ops) for channel in first.data]))
    moved = Warp(way, labels.grid).resample(labels, labels.grid, mode="label", ops=ops)
    after = _changes(register_again(changed), moved, ops)
    imposed = structure_means(ops.jacobian_determinant(way).log_(), moved.data[0])
    return {
        value: imposed[value] - (after[value] - change)
        for value, change in before.items()
        if value in imposed and value in after
    }


def displacement_of(log_change: Tensor, grid: Grid) -> Tensor:
    """(3, D, H, W) in voxels: the displacement without rotation whose divergence is a map less its mean.

    To first order that is its log Jacobian. The map is continued by its mirror images, so nothing crosses the border.
    """
    density = log_change - log_change.mean()
    waves = []
    for axis, (n, spacing) in enumerate(zip(density.shape, grid.spacing_mm, strict=True)):
        density = torch.cat([density, density.flip(axis)], axis)
        frequencies = torch.fft.rfftfreq if axis == 2 else torch.fft.fftfreq
        wave = 2 * torch.pi * frequencies(2 * n, d=spacing)
        waves.append(wave.reshape([-1 if a == axis else 1 for a in range(3)]))
    square = sum((wave**2 for wave in waves), start=torch.zeros(()))
    square[0, 0, 0] = 1.0  # of the mean, which is zero
    spectrum = torch.fft.rfftn(density).div_(-square)
    inner = tuple(slice(n) for n in log_change.shape)
    parts = [
        torch.fft.irfftn(spectrum * (1j * wave), s=density.shape)[inner] / spacing
        for wave, spacing in zip(waves, grid.spacing_mm, strict=True)
    ]
    return torch.stack(parts).to(torch.float32).contiguous()


def structure_means(values: Tensor, labels: Tensor) -> dict[int, float]:
    """The mean of (D, H, W) values in the inside of every structure, by its number."""
    return {
        int(label): float(values[inner_voxels(labels == label)].double().mean())
        for label in torch.unique(labels)
        if label != 0
    }


def inner_voxels(inside: Tensor) -> Tensor:
    """The voxels of a structure whose neighbours along every axis are inside too; all of it if none are."""
    found = inside.clone()
    for axis, n in enumerate(inside.shape):
        if n > 2:
            found.narrow(axis, 1, n - 1).logical_and_(inside.narrow(axis, 0, n - 1))
            found.narrow(axis, 0, n - 1).logical_and_(inside.narrow(axis, 1, n - 1))
    return found if bool(found.any()) else inside


def _changes(found: Registration, labels: Image, ops: Ops) -> Mapping[int, float]:
    """The mean log change of every structure, in the middle of two scans."""
    space = common_space((found,), ops)
    carried = space.to_scans[0].resample(labels, space.grid, mode="label", ops=ops)
    return structure_means(space.log_changes[0].data[0], carried.data[0])
