"""Tensors as the NumPy arrays that compiled kernels read and write, with their shapes checked.

Compiled code does not check indices: an array of the wrong shape would be read or written beyond its end. Every public
kernel therefore passes its tensors through these functions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

NO_MASK = np.ones((1, 1, 1), np.uint8)  # stands for "no mask": kernels test the size
NO_FIELD = np.zeros((3, 1, 1, 1), np.float32)  # stands for "no displacement" and "no gradient"


def array(tensor: Tensor) -> Any:
    """The tensor as a contiguous array to read: a view, or a copy if the tensor is not contiguous."""
    if tensor.device.type != "cpu":
        raise TypeError(f"the Numba kernels take CPU tensors, but got one on {tensor.device}")
    return tensor.detach().contiguous().numpy()


def target(tensor: Tensor) -> Any:
    """A view of a contiguous tensor, to write to."""
    if not tensor.is_contiguous():
        raise TypeError(f"the Numba kernels write to contiguous tensors only, not to strides {tensor.stride()}")
    return array(tensor)


def check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless the tensor has this shape."""
    if tensor.shape != shape:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}, but {tuple(shape)} is needed; give a tensor of that shape"
        )


def check_field(name: str, field: Tensor, shape: tuple[int, ...] | None = None) -> None:
    """Raise a ValueError unless the tensor is (3, *shape); without a shape any (3, D, H, W) will do."""
    check_shape(name, field, (3, *((*field.shape, 1, 1, 1)[1:4] if shape is None else shape)))


def mask_array(name: str, mask: Tensor | None, image: Tensor) -> Any:
    """The mask of an image as a uint8 array, or NO_MASK."""
    if mask is None:
        return NO_MASK
    check_shape(name, mask, image.shape)
    return array(mask.to(torch.uint8))


def gradient_array(gradient: Tensor | None, shape: tuple[int, ...]) -> Any:
    """The gradient on a grid of this shape, to write to, or NO_FIELD."""
    if gradient is None:
        return NO_FIELD
    check_field("gradient", gradient, shape)
    return target(gradient)


def pair_arrays(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    fixed_mask: Tensor | None,
    moving_mask: Tensor | None,
) -> Any:
    """The arrays that the kernel of every metric reads, in the order in which it takes them."""
    check_field("displacement", displacement, fixed.shape)
    return (
        array(fixed),
        volume(moving),
        array(displacement),
        matrix_array(matrix, moving, fixed.shape[0]),
        mask_array("fixed_mask", fixed_mask, fixed),
        mask_array("moving_mask", moving_mask, moving).reshape(-1),
    )


def matrix_array(matrix: Tensor, image: Tensor, depth: int) -> Any:
    """The (3, 4) matrix in double precision; between two single slices every point stays in the plane."""
    check_shape("matrix", matrix, (3, 4))
    A = np.array(matrix.detach().cpu().numpy(), dtype=np.float64)
    if image.shape[0] == 1 and depth == 1:
        A[0] = 0.0
    return A


def volume(tensor: Tensor) -> Any:
    """What interpolation reads of an image: all voxels as one line, the shape, and the strides of that line."""
    shape = tuple(tensor.shape)
    return array(tensor).reshape(-1), shape, strides(shape)


def strides(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Strides of the flat index along z, y, x; 0 along axes of length one, so that 2-D needs no code of its own."""
    _, h, w = shape
    return tuple(s if n > 1 else 0 for s, n in zip((h * w, w, 1), shape, strict=True))  # type: ignore[return-value]


def field_strides(field: Tensor) -> tuple[int, int, int]:
    """`strides` of one component of a field."""
    return strides(tuple(field.shape[1:]))


def displacement_array(displacement: Tensor | None, shape: Sequence[int] | None) -> tuple[Any, bool, tuple[int, ...]]:
    """The displacement or NO_FIELD, whether there is one, and the shape of the fixed grid."""
    if displacement is not None:
        check_field("displacement", displacement)
        return array(displacement), True, tuple(displacement.shape[1:])
    if shape is None:
        raise ValueError("sample needs a displacement or a shape; both are None")
    return NO_FIELD, False, tuple(shape)
