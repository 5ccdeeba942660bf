"""How every CPU kernel is compiled, what becomes of its tensors, and the interpolation primitives they share.

Fast-math flags allow fused and reassociated arithmetic but keep NaN and infinity meaningful. Kernels are parallel over
rows, planes or tiles whose results do not depend on each other, and sums are taken in each of them and then in a fixed
order, so a result is bit-identical for any number of threads.

Images may be of any real number type; what is read is made float32 on the spot.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np
import torch
from numba import njit

from warpfactor.kernels.numba._compile.cache import kept
from warpfactor.kernels.numba._compile.whole import KERNEL, MAKER, PART

# Threads of the OpenMP layer spin at the end of every parallel loop, and on a machine that has anything else to do
# that costs a scheduler's time slice: at 80x96x80 with one other busy process a form of LNCC with two loops a plane
# took 1430 ns a voxel against 94 with Numba's own work queue (two cores). A choice made by the user stays.
_config: Any = numba.config
if _config.THREADING_LAYER == "default":
    _config.THREADING_LAYER = "workqueue"
# The work queue serves one caller at a time.
_queue = threading.RLock()

FLAGS = {"contract", "nsz", "arcp", "reassoc", "afn"}
LOOSE: Any = {"fastmath": FLAGS, "error_model": "numpy", "nogil": True}
ORDERED: Any = {**LOOSE, "fastmath": FLAGS - {"reassoc"}}  # sums keep their order
parallel = kept(njit(parallel=True, **LOOSE, **KERNEL))
# Parts of kernels, which Python cannot call.
serial = njit(**LOOSE, **PART)
ordered = njit(**ORDERED, **PART)
making = njit(**LOOSE, **MAKER)  # may make arrays
inline = njit(fastmath=FLAGS, error_model="numpy", inline="always")

offset = numba.uint64  # type of indices that are sums, see filters.py

NO_MASK = np.ones((1, 1, 1), np.uint8)
NO_FIELD = np.zeros((3, 1, 1, 1), np.float32)

P = ParamSpec("P")
R = TypeVar("R")


def exclusive(kernel: Callable[P, R]) -> Callable[P, R]:
    """The kernel, entered by one Python thread at a time."""

    @functools.wraps(kernel)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        with _queue:
            return kernel(*args, **kwargs)

    return entered


def array(tensor: torch.Tensor) -> Any:
    """A CPU tensor as contiguous numpy array, to be read: a copy if it is not contiguous."""
    if tensor.device.type != "cpu":
        raise TypeError(f"the cpu kernels take CPU tensors, got one on {tensor.device}")
    return tensor.detach().contiguous().numpy()


def target(tensor: torch.Tensor) -> Any:
    """The numpy view of a contiguous CPU tensor, to be written."""
    if not tensor.is_contiguous():
        raise TypeError(f"the cpu kernels write to contiguous tensors only, not to strides {tensor.stride()}")
    return array(tensor)


def check_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise unless the tensor has that shape: compiled code would read and write beyond its end."""
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but {tuple(shape)} is needed; give one that has it")


def check_field(name: str, field: torch.Tensor, shape: tuple[int, ...] | None = None) -> None:
    """Raise unless the tensor has three components, on a grid of that shape if one is given."""
    check_shape(name, field, (3, *((*field.shape, 1, 1, 1)[1:4] if shape is None else shape)))


def mask_array(name: str, mask: torch.Tensor | None, image: torch.Tensor) -> Any:
    """A mask of the image as uint8 array; a single one stands for no mask (kernels test its size)."""
    if mask is None:
        return NO_MASK
    check_shape(name, mask, image.shape)
    return array(mask.to(torch.uint8))


def gradient_array(gradient: torch.Tensor | None, shape: tuple[int, ...]) -> Any:
    """The gradient on a grid of that shape, to be written; a single vector stands for none."""
    if gradient is None:
        return NO_FIELD
    check_field("gradient", gradient, shape)
    return target(gradient)


def pair_arrays(
    fixed: torch.Tensor,
    moving: torch.Tensor,
    displacement: torch.Tensor,
    matrix: torch.Tensor,
    fixed_mask: torch.Tensor | None,
    moving_mask: torch.Tensor | None,
) -> Any:
    """What every cost of a warp reads, in the order in which its kernel takes it."""
    check_field("displacement", displacement, fixed.shape)
    return (
        array(fixed),
        volume(moving),
        array(displacement),
        matrix_array(matrix, moving, fixed.shape[0]),
        mask_array("fixed_mask", fixed_mask, fixed),
        mask_array("moving_mask", moving_mask, moving).reshape(-1),
    )


def matrix_array(matrix: torch.Tensor, image: torch.Tensor, depth: int) -> Any:
    """The matrix in double precision; between two single slices every point stays in the plane."""
    check_shape("matrix", matrix, (3, 4))
    A = np.array(matrix.detach().cpu().numpy(), dtype=np.float64)
    if image.shape[0] == 1 and depth == 1:
        A[0] = 0.0
    return A


def volume(tensor: torch.Tensor) -> Any:
    """What interpolation reads: all voxels in one line, the shape, and the steps to neighbours in that line."""
    shape = tuple(tensor.shape)
    return array(tensor).reshape(-1), shape, strides(shape)


def strides(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Flat-index strides to the next voxel along each axis; 0 along axes of length one, so 2-D needs no other path."""
    _, h, w = shape
    return tuple(s if n > 1 else 0 for s, n in zip((h * w, w, 1), shape, strict=True))  # type: ignore[return-value]


@inline
def split(p, n):  # type: ignore[no-untyped-def]
    """Cell index and fraction of coordinate p clamped to [0, n-1]; a NaN gives cell 0."""
    q = min(max(p, 0.0), n - 1.0)
    i = max(min(int(q), max(n - 2, 0)), 0)
    return i, np.float32(q - i)


@inline
def is_inside(pz, py, px, d, h, w):  # type: ignore[no-untyped-def]
    """ITK's rule: a point belongs to the image up to half a voxel beyond the outermost centres."""
    return (pz >= -0.5) & (pz <= d - 0.5) & (py >= -0.5) & (py <= h - 0.5) & (px >= -0.5) & (px <= w - 0.5)


@inline
def locate(A, z, y, x, uz, uy, ux):  # type: ignore[no-untyped-def]
    """Moving voxel coordinate of fixed index (z, y, x) displaced by (uz, uy, ux)."""
    qz = z + np.float64(uz)
    qy = y + np.float64(uy)
    qx = x + np.float64(ux)
    return (
        A[0, 0] * qz + A[0, 1] * qy + A[0, 2] * qx + A[0, 3],
        A[1, 0] * qz + A[1, 1] * qy + A[1, 2] * qx + A[1, 3],
        A[2, 0] * qz + A[2, 1] * qy + A[2, 2] * qx + A[2, 3],
    )


@inline
def value_gradient(flat, b, sz, sy, sx, fz, fy, fx):  # type: ignore[no-untyped-def]
    """Trilinear value and its derivative along (z, y, x) in the cell whose lowest corner is flat[b]."""
    v000 = np.float32(flat[b])
    v010 = np.float32(flat[b + sy])
    c = b + sz
    v100 = np.float32(flat[c])
    v110 = np.float32(flat[c + sy])
    d00 = np.float32(flat[b + sx]) - v000
    d01 = np.float32(flat[b + sy + sx]) - v010
    d10 = np.float32(flat[c + sx]) - v100
    d11 = np.float32(flat[c + sy + sx]) - v110
    w00 = v000 + fx * d00
    w10 = v100 + fx * d10
    e0 = v010 + fx * d01 - w00
    e1 = v110 + fx * d11 - w10
    s0 = w00 + fy * e0
    gz = w10 + fy * e1 - s0
    gx0 = d00 + fy * (d01 - d00)
    gx1 = d10 + fy * (d11 - d10)
    return s0 + fz * gz, gz, e0 + fz * (e1 - e0), gx0 + fz * (gx1 - gx0)


@inline
def value(flat, b, sz, sy, sx, fz, fy, fx):  # type: ignore[no-untyped-def]
    """Trilinear value in the cell whose lowest corner is flat[b]."""
    c = b + sz
    v000, v010 = np.float32(flat[b]), np.float32(flat[b + sy])
    v100, v110 = np.float32(flat[c]), np.float32(flat[c + sy])
    w00 = v000 + fx * (np.float32(flat[b + sx]) - v000)
    w01 = v010 + fx * (np.float32(flat[b + sy + sx]) - v010)
    w10 = v100 + fx * (np.float32(flat[c + sx]) - v100)
    w11 = v110 + fx * (np.float32(flat[c + sy + sx]) - v110)
    s0 = w00 + fy * (w01 - w00)
    return s0 + fz * (w10 + fy * (w11 - w10) - s0)
