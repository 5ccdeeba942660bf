"""Our tensors and matrices as SimpleITK objects, and back; no file access."""

from __future__ import annotations

import functools
import importlib
import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix, slabs
from warpfactor.processes import renew_after_fork


class _SimpleITK:
    """The package SimpleITK, loaded when something of it is first used: it takes 0.2 s and 90 MB of memory."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(_loaded(), name)
        setattr(self, name, found)
        return found


@functools.cache
def _loaded() -> Any:
    package = importlib.import_module("SimpleITK")
    # ITK warns on stderr about headers; the readers in io check those themselves and warn through `warnings`.
    package.ProcessObject.SetGlobalWarningDisplay(False)
    return package


sitk: Any = _SimpleITK()  # it carries no types
# Held while ITK reads or writes a file: it lets other threads go on, and does not promise to bear two of them at once.
files = threading.RLock()
renew_after_fork(files)
_LARGEST = np.iinfo(np.int64).max


def grid_of(image: Any) -> Grid:
    """The grid of a SimpleITK image."""
    return Grid.from_itk(image.GetSize(), image.GetOrigin(), image.GetSpacing(), image.GetDirection())


def place(image: Any, grid: Grid) -> Any:
    """A SimpleITK image, put where the grid is."""
    geometry = grid.to_itk()
    image.SetOrigin(geometry.origin)
    image.SetSpacing(geometry.spacing)
    image.SetDirection(geometry.direction)
    return image


def image_to_sitk(data: Tensor, grid: Grid) -> Any:
    """(C, D, H, W) tensor -> SimpleITK image of `grid.ndim` dimensions; a vector image if C > 1."""
    array = data.detach().cpu().numpy()
    array = array[:, 0] if grid.ndim == 2 else array
    vector = array.shape[0] > 1
    image = sitk.GetImageFromArray(np.moveaxis(array, 0, -1) if vector else array[0], isVector=vector)
    return place(image, grid)


def image_from_sitk(image: Any) -> tuple[Tensor, Grid]:
    """SimpleITK image -> (C, D, H, W) tensor of the same number type, and its grid."""
    grid = grid_of(image)
    array = sitk.GetArrayViewFromImage(image)
    if np.iscomplexobj(array):
        raise InputError("The image has complex values; take their magnitude or phase first.")
    vector = image.GetNumberOfComponentsPerPixel() > 1
    channels = np.moveaxis(array, -1, 0) if vector else array[None]
    return to_tensor(channels.reshape(-1, *grid.shape)), grid


def to_tensor(array: np.ndarray[Any, Any], *, copy: bool = True) -> Tensor:
    """Contiguous tensor of an array in native byte order; unsigned types that torch lacks are widened.

    Without `copy` it shares the memory of an array that is such already.
    """
    if array.dtype.str[1:] == "u8" and array.size and int(array.max()) > _LARGEST:
        raise InputError("The image has integers above 2^63, which 64 bits with a sign do not hold; renumber them.")
    widened = {"u2": np.int32, "u4": np.int64, "u8": np.int64}.get(array.dtype.str[1:], array.dtype.newbyteorder("="))
    made = np.array(array, dtype=widened, order="C") if copy else np.ascontiguousarray(array, dtype=widened)
    return torch.from_numpy(made)


def affine_to_sitk(matrix: Matrix, ndim: int) -> Any:
    """4x4 LPS matrix -> sitk.AffineTransform about the world's origin."""
    transform = sitk.AffineTransform(ndim)
    transform.SetMatrix(matrix[:ndim, :ndim].ravel().tolist())
    transform.SetTranslation(matrix[:ndim, 3].tolist())
    return transform


def warp_to_sitk(displacement: Tensor, grid: Grid) -> Any:
    """(3, D, H, W) voxel displacement -> sitk.DisplacementFieldTransform (float64, as SimpleITK demands)."""
    return sitk.DisplacementFieldTransform(field_to_sitk(displacement, grid))


def field_to_sitk(displacement: Tensor, grid: Grid, dtype: torch.dtype = torch.float64) -> Any:
    """(3, D, H, W) voxel displacement -> vector image in LPS mm with `grid.ndim` components."""
    vectors = torch.empty((*grid.shape, grid.ndim), dtype=dtype)
    for planes in slabs(grid.shape):  # no field in double precision exists besides
        vectors[planes] = grid.voxels_to_mm(displacement[:, planes].detach())[: grid.ndim].movedim(0, -1)
    image = sitk.GetImageFromArray(vectors.numpy().reshape(*grid.shape[-grid.ndim :], -1), isVector=True)
    return place(image, grid)


def field_from_sitk(image: Any) -> tuple[Tensor, Grid]:
    """Vector image in LPS mm -> (3, D, H, W) displacement in voxels (float64), and its grid."""
    components, grid = image.GetNumberOfComponentsPerPixel(), grid_of(image)
    if components != grid.ndim:
        raise InputError(f"A {grid.ndim}-D displacement field needs {grid.ndim} components, this has {components}.")
    array = sitk.GetArrayViewFromImage(image).reshape(*grid.shape, grid.ndim)
    field = torch.empty((3, *grid.shape), dtype=torch.float64)
    for planes in slabs(grid.shape):
        part = to_tensor(np.moveaxis(array[planes], -1, 0))
        vectors = torch.zeros((3, *part.shape[1:]), dtype=torch.float64)
        vectors[: grid.ndim] = part
        field[:, planes] = grid.mm_to_voxels(vectors)
    return field, grid


def matrix_from_sitk(transform: Any) -> Matrix:
    """4x4 LPS matrix of any linear SimpleITK transform, its centre of rotation included."""
    ndim = transform.GetDimension()
    name, parameters = transform.GetName(), np.array(transform.GetParameters())
    matrix = np.eye(4)
    if name in ("AffineTransform", "MatrixOffsetTransformBase"):
        linear = parameters[: ndim * ndim].reshape(ndim, ndim)
        centre = np.array(transform.GetFixedParameters()[:ndim])
        matrix[:ndim, 3] = parameters[ndim * ndim :] + (centre - linear @ centre)
    else:
        origin = np.array(transform.TransformPoint([0.0] * ndim))
        linear = np.stack([np.array(transform.TransformPoint(e)) - origin for e in np.eye(ndim).tolist()], axis=1)
        matrix[:ndim, 3] = origin
    matrix[:ndim, :ndim] = linear
    return matrix
