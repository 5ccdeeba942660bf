"""Inputs for the kernels, and how near a fast kernel must be to the reference."""

from contextlib import contextmanager

import numba
import torch

MATRIX = torch.tensor(
    [[1.03, 0.05, -0.02, 0.3131], [-0.04, 0.7, 0.03, 0.9173], [0.02, -0.06, 1.1, -0.4137]], dtype=torch.float64
)


def problem(shapes, seed=0):
    """Fixed, moving, displacement and matrix in float64, for a (fixed, moving) pair of shapes.

    In 2-D no point leaves the plane. All numbers are exact in float32.
    """
    generator = torch.Generator().manual_seed(seed)
    fixed_shape, moving_shape = shapes
    fixed = torch.randn(fixed_shape, generator=generator, dtype=torch.float32).double()
    moving = torch.randn(moving_shape, generator=generator, dtype=torch.float32).double()
    field = torch.randn((3, *fixed_shape), generator=generator, dtype=torch.float32).double()
    matrix = MATRIX.clone()
    if fixed_shape[0] == 1:
        field[0] = 0
        matrix[0] = torch.tensor([1.0, 0, 0, 0])
        matrix[:, 0] = torch.tensor([1.0, 0, 0])
    return fixed, moving, field, matrix


def masks(shapes, seed=1):
    """Fixed and moving mask, in which four voxels of five count."""
    generator = torch.Generator().manual_seed(seed)
    return tuple((torch.rand(s, generator=generator) > 0.2).to(torch.uint8) for s in shapes)


def object_in(shape, generator, lean=0.6):
    """A fixed image of one value with a slanted, textured ellipsoid in it, and a moving one textured everywhere."""
    axes = [torch.linspace(-1, 1, n) if n > 1 else torch.zeros(1) for n in shape]
    z, y, x = torch.meshgrid(*axes, indexing="ij")
    inside = z**2 + (y + lean * z) ** 2 + (x - lean * (y + z)) ** 2 < 0.3
    fixed = torch.where(inside, torch.rand(shape, generator=generator), -0.7)
    return fixed, fixed + 0.5 * torch.rand(shape, generator=generator)


def single(*tensors):
    return [t.float() for t in tensors]


def assert_as_exact(found, exact, rough, factor=4.0):
    """The error against the float64 reference is at most a few times that of the float32 reference, plus rounding."""
    scale = exact.abs().max().item() + 1e-30
    allowed = factor * (rough.double() - exact).abs().max().item() + 2e-6 * scale
    assert (found.double() - exact).abs().max().item() <= allowed


@contextmanager
def threads(number):
    """Run the block with this number of threads."""
    before = numba.get_num_threads()
    numba.set_num_threads(number)
    try:
        yield
    finally:
        numba.set_num_threads(before)
