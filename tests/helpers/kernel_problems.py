"""Inputs for the kernels, and how near a fast kernel must be to the reference."""

from contextlib import contextmanager

import numba
import torch

from warpfactor.checks.device.problems import masks, problem

__all__ = ["assert_as_exact", "masks", "object_in", "problem", "single", "threads"]


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
