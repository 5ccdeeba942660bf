"""The inverse is found at voxels too for which the usual start leads nowhere."""

import pytest
import torch

from warpfactor.geometry.inversion import invert_everywhere
from warpfactor.kernels import reference, select

SHAPE = (24, 28, 26)


def steep(seed):
    """A flow through a random field, 24 steps long, that stays in the image."""
    generator = torch.Generator().manual_seed(seed)
    flow = reference.smooth_gaussian(torch.randn((3, *SHAPE), generator=generator), (3.0, 3.0, 3.0))
    flow *= 2.2 / flow.abs().max()
    for axis, n in enumerate(SHAPE):
        place = torch.arange(n, dtype=torch.float32)
        inwards = (torch.minimum(place, n - 1 - place) / 6).clamp(max=1)
        flow *= inwards.reshape([-1 if other == axis else 1 for other in range(3)])
    found = torch.zeros_like(flow)
    for _ in range(24):
        found = select().compose(found, flow)
    return found


@pytest.mark.parametrize(("seed", "before", "after"), [(0, 0.09, 1e-3), (1, 4.0, 0.5), (2, 0.06, 1e-3)])
def test_stuck_voxels_start_again_from_their_neighbours(seed, before, after):
    u = steep(seed)
    alone, left = select().invert(u)
    found, now = invert_everywhere(u, select())
    assert float(left.max()) > before
    assert float(now.max()) < after
    assert torch.equal(found[:, left <= 1e-3], alone[:, left <= 1e-3])
    torch.testing.assert_close(select().compose(u, found).norm(dim=0), now, atol=1e-4, rtol=0)


def test_a_warp_that_is_folded_all_over_is_left_alone(generator):
    u = 5 * torch.randn((3, 12, 12, 12), generator=generator)
    found, left = invert_everywhere(u, select())
    alone, before = select().invert(u)
    assert torch.equal(found, alone)
    assert torch.equal(left, before)
