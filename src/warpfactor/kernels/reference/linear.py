"""Sums over voxels from which the cost of an affine transform, its gradient and its Gauss-Newton matrix follow."""

import torch
from torch import Tensor

from warpfactor.kernels.reference.interpolate import exact_type, voxel_indices
from warpfactor.kernels.reference.match import match


@torch.no_grad()
def affine_moments(
    fixed: Tensor,
    moving: Tensor,
    matrix: Tensor,
    *,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over the voxels x that count, with X = (z, y, x, 1) and n = dM/du (3,), the gradient of the warped image.

    Under an affine displacement u(x) = E X, the derivative of M by E (3, 4) is n ⊗ X. The squared difference and the
    correlation of the images, their gradients by E and their Gauss-Newton matrices follow from these sums.

    Args:
        fixed: (D, H, W), F.
        moving: (D, H, W), M.
        matrix: (3, 4), fixed voxel index to moving voxel index p.
        fixed_mask, moving_mask: uint8, each on its own grid; a voxel counts where both masks are not 0 and p is inside.

    Returns:
        (6,) sums of 1, F, M, F², M², F M; (3, 12) sums of n ⊗ X, F n ⊗ X, M n ⊗ X; (12, 12) sum of
        (n ⊗ X)(n ⊗ X)ᵀ. Float64 (float32 where the device has none), on the CPU.
    """
    zero = fixed.new_zeros((3, *fixed.shape))
    pair = match(fixed, moving, zero, matrix, fixed_mask, moving_mask, True)
    exact = exact_type(fixed.device)
    f, m, w = (t.to(exact).flatten() for t in (pair.fixed, pair.warped, pair.weight))
    assert pair.slope is not None
    motion = (pair.slope.to(exact)[:, None] * _homogeneous(fixed)).reshape(12, -1)
    sums = torch.stack([w.sum(), f.sum(), m.sum(), (f * f).sum(), (m * m).sum(), (f * m).sum()])
    slopes = torch.stack([motion.sum(1), motion @ f, motion @ m])
    return sums.cpu(), slopes.cpu(), (motion @ motion.T).cpu()


@torch.no_grad()
def affine_gradient(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the voxels of g ⊗ X and of (g ⊗ X)(g ⊗ X)ᵀ, with X = (z, y, x, 1).

    The first is the derivative of a cost by E under an affine displacement u(x) = E X. The second, for a cost that is a
    sum of log-likelihoods, is the Fisher information of E.

    Args:
        gradient: (3, D, H, W), g = d cost / du.

    Returns:
        (12,) and (12, 12), float64 (float32 where the device has none), on the CPU.
    """
    motion = (gradient.to(exact_type(gradient.device))[:, None] * _homogeneous(gradient[0])).reshape(12, -1)
    return motion.sum(1).cpu(), (motion @ motion.T).cpu()


def _homogeneous(image: Tensor) -> Tensor:
    """(4, D, H, W) maps of z, y, x and 1."""
    z, y, x = voxel_indices(image.shape, image.device)
    return torch.stack([t.expand(image.shape) for t in (z, y, x, torch.ones_like(z))])
