"""Image: a tensor and its Grid, made from arrays and the image objects of SimpleITK, nibabel and ANTs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry import itk
from warpfactor.geometry import planes as views
from warpfactor.geometry.grid import Grid

_DTYPES = (torch.float32, torch.int32, torch.uint8)


@dataclass(frozen=True, eq=False)
class Image:
    """An image in space.

    Attributes:
        data: (C, D, H, W); float32 intensities, int32 labels or a uint8 mask.
        grid: where its voxels are.
        name: for messages, usually the file name.
    """

    data: Tensor
    grid: Grid
    name: str = "image"

    def __post_init__(self) -> None:
        if self.data.ndim != 4 or tuple(self.data.shape[1:]) != self.grid.shape:
            raise InputError(f"{self.name}: data {tuple(self.data.shape)} does not fit the grid {self.grid.shape}.")
        if self.data.dtype not in _DTYPES:
            raise InputError(f"{self.name}: data must be float32, int32 or uint8, not {self.data.dtype}.")

    def __repr__(self) -> str:
        kind = str(self.data.dtype).removeprefix("torch.")
        return f"Image({self.name!r}, {self.channels} x {kind}, {self.grid.summary})"

    def _repr_png_(self) -> bytes:
        """The planes through the middle, for notebooks."""
        return views.picture(self.data.detach().cpu().numpy(), self.grid)

    def _repr_html_(self) -> str:
        """The same with a line that says what it is."""
        return views.html_picture(self._repr_png_(), repr(self))

    @classmethod
    def from_array(
        cls,
        array: Any,
        spacing_mm: Sequence[float] | float | None = None,
        *,
        grid: Grid | None = None,
        name: str = "array",
    ) -> Image:
        """Float32 image from an array or tensor (H, W) or (D, H, W); with `grid` there may be channels before these.

        Args:
            array: anything numpy can read, in array order. With `grid` its axes are those of the grid, (z, y, x).
            spacing_mm: per array axis (z, y, x), or one for all. Origin zero, axis-aligned.
            grid: instead of `spacing_mm`, when origin or direction matter.
        """
        values = array if isinstance(array, Tensor) else np.asarray(array)
        if isinstance(values, np.ndarray) and values.dtype.kind not in "biufc":
            raise InputError(f"{name}: the array has values of type {values.dtype}; give numbers.")
        data = values if isinstance(values, Tensor) else itk.to_tensor(values)
        if grid is None:
            if data.ndim not in (2, 3):
                raise InputError(
                    f"{name}: an array must have 2 or 3 axes, this one has {data.ndim}; "
                    "give channels as a list of arrays, or to wf.Image.from_array with a grid."
                )
            grid = Grid.from_spacing(tuple(data.shape), 1.0 if spacing_mm is None else spacing_mm)
        if data.is_complex():
            raise InputError(f"{name}: the array has complex values; take their magnitude or phase first.")
        if not _fits(tuple(data.shape), grid):
            raise InputError(_misfit(values, grid, name))
        return cls(data.reshape(-1, *grid.shape).to(torch.float32).contiguous(), grid, name)

    def with_spacing(self, spacing_mm: Sequence[float] | float) -> Image:
        """The same voxels with another spacing along (z, y, x), one for all or one per axis; the first one stays."""
        numbers = np.atleast_1d(np.asarray(spacing_mm, dtype=np.float64))
        axes = self.grid.ndim
        wanted_numbers = f"give one number above 0 in mm, or {axes}, since the image is {axes}-D."
        if numbers.ndim != 1 or len(numbers) not in (1, axes):
            raise InputError(f"{numbers.size} numbers are not a valid spacing: {wanted_numbers}")
        if not np.all(np.isfinite(numbers) & (numbers > 0)):
            worst = numbers[~(np.isfinite(numbers) & (numbers > 0))][0]
            raise InputError(f"{worst:g} is not a valid spacing: {wanted_numbers}")
        wanted = np.full(3, self.grid.spacing_mm, dtype=np.float64)
        wanted[3 - axes :] = numbers
        matrix = self.grid.matrix.copy()
        matrix[:3, :3] *= wanted / np.asarray(self.grid.spacing_mm)
        return replace(self, grid=Grid(self.grid.shape, matrix, self.grid.ndim))

    def with_channels(self, numbers: Sequence[int] | int) -> Image:
        """Some of the channels, counted from 1."""
        wanted = [numbers] if isinstance(numbers, int) else list(numbers)
        for number in wanted or [0]:
            if not 1 <= number <= self.channels:
                has = "one channel" if self.channels == 1 else f"{self.channels} channels"
                raise InputError(f"{self.name}: has {has}; channel {number} cannot be chosen, they count from 1.")
        return replace(self, data=self.data[[number - 1 for number in wanted]])

    @classmethod
    def from_sitk(cls, image: Any, *, name: str = "SimpleITK image") -> Image:
        """Image from a SimpleITK image of two or three dimensions."""
        data, grid = itk.image_from_sitk(image)
        return cls(data.to(torch.float32), grid, name)

    @classmethod
    def from_nibabel(cls, image: Any, *, name: str = "nibabel image") -> Image:
        """Image from a nibabel image (RAS world, axes x, y, z); a fifth axis holds channels."""
        array = np.asarray(image.dataobj)
        while array.ndim > 3 and array.shape[-1] == 1:
            array = array[..., 0]
        if array.ndim == 4:
            raise InputError(
                f"{name}: a 4-D image with {array.shape[3]} volumes was given where one is expected; extract one."
            )
        channels = np.moveaxis(array[:, :, :, 0], -1, 0) if array.ndim == 5 else array[None]
        grid = Grid.from_ras(channels.shape[1:], image.affine)
        data = channels.transpose(0, *range(channels.ndim - 1, 0, -1)).reshape(-1, *grid.shape)
        return cls(itk.to_tensor(data).to(torch.float32), grid, name)

    @classmethod
    def from_ants(cls, image: Any, *, name: str = "ANTs image") -> Image:
        """Image from an ANTsPy image (LPS world as ITK, array axes x, y, z, channels last)."""
        array = np.asarray(image.numpy())
        channels = np.moveaxis(array, -1, 0) if image.has_components else array[None]
        size = channels.shape[1:]
        grid = Grid.from_itk(size, image.origin, image.spacing, np.asarray(image.direction).ravel().tolist())
        data = channels.transpose(0, *range(channels.ndim - 1, 0, -1)).reshape(-1, *grid.shape)
        return cls(itk.to_tensor(data).to(torch.float32), grid, name)

    def to_sitk(self) -> Any:
        """The SimpleITK image: same voxels, same place, 2-D if the grid is."""
        return itk.image_to_sitk(self.data, self.grid)

    @property
    def channels(self) -> int:
        return int(self.data.shape[0])

    @property
    def nonfinite_count(self) -> int:
        """How many values are NaN or infinite."""
        return int((~torch.isfinite(self.data)).sum()) if self.data.is_floating_point() else 0

    def to(self, device: torch.device | str) -> Image:
        return replace(self, data=self.data.to(device))

    def on_grid(self, grid: Grid) -> Image:
        """This image on exactly `grid` if the two agree up to rounding of the header; otherwise an InputError."""
        if self.grid.same_space(grid):
            return replace(self, grid=grid)
        if self.grid.shape != grid.shape:
            apart = f"it has {_sizes(self.grid)} voxels (x, y, z), the image {_sizes(grid)}"
        else:
            apart = f"its voxels lie up to {grid.distance_vox(self.grid):.3g} voxels away from the image's"
        raise InputError(
            f"{self.name} does not lie on the grid of its image: {apart}; resample it to that image first."
        )


def _fits(shape: tuple[int, ...], grid: Grid) -> bool:
    """Whether an array has the axes of the grid, with or without channels before them; one slice needs no z axis."""
    axes = (grid.shape, grid.shape[1:]) if grid.shape[0] == 1 else (grid.shape,)
    return shape in axes or shape[1:] in axes


def _misfit(values: Any, grid: Grid, name: str) -> str:
    """What is wrong with an array that does not fit, and what to do."""
    shape = tuple(values.shape)
    if _fits(shape[::-1], grid):
        turned = f"permute{tuple(reversed(range(len(shape))))}" if isinstance(values, Tensor) else "T"
        axes = "(x, y) instead of (y, x)" if len(shape) == 2 else "(x, y, z) instead of (z, y, x)"
        advice = f"its axes look reversed, {axes}: pass array.{turned}"
    else:
        advice = "its axes must be those of the grid, (z, y, x), with channels before them"
    return f"{name}: an array of shape {shape} does not fit a grid of {grid.shape}; {advice}."


def _sizes(grid: Grid) -> str:
    return "x".join(str(n) for n in grid.to_itk().size)
