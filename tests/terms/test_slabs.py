"""Terms over slabs of the fixed image: together they cost, and pull, what they do over the whole."""

import pytest
import torch

from warpfactor.geometry.grid import Grid
from warpfactor.kernels import reference
from warpfactor.scene.scene import Scene, Side
from warpfactor.stages.finest import make_slabs, shifted
from warpfactor.terms import LNCC, MIND, MSE, Mixed
from warpfactor.terms.base import Local

SHAPE = (19, 16, 17)


@pytest.fixture
def scene(generator):
    def side(shape, masked):
        data = reference.smooth_gaussian(torch.randn((1, *shape), generator=generator), (1.0, 1.0, 1.0))
        mask = (torch.rand(shape, generator=generator) > 0.1).to(torch.uint8) if masked else None
        return Side(data, mask, Grid.from_spacing(shape), ((0.1, 1.2),))

    return Scene(side(SHAPE, masked=True), side((21, 17, 15), masked=False))


@pytest.mark.parametrize(
    "term", [LNCC(3, symmetric=True), MSE(symmetric=True), MIND(), Mixed()], ids=lambda term: term.name
)
def test_slabs_add_up_to_the_whole(scene, generator, term):
    assert isinstance(term, Local)
    u = 0.7 * torch.randn((3, *SHAPE), generator=generator)
    matrix = torch.tensor([[1.05, 0.1, 0, 0.6], [-0.1, 0.97, 0.05, 0.4], [0.02, 0, 0.9, 0.3]], dtype=torch.float64)
    whole = torch.empty_like(u)
    expected = term.prepare(scene, reference).linearize(u, matrix, whole)
    slabs = make_slabs(SHAPE[0], 6, term.reach(0))
    assert len(slabs) == 4
    assert [slab.core.start % 2 for slab in slabs] == [0] * 4
    total, count, found = 0.0, 0.0, torch.full_like(u, torch.nan)
    for slab, part in zip(slabs, term.prepare_slabs(scene, reference, slabs), strict=True):
        gradient = torch.empty_like(u[:, slab.outer])
        point = part.linearize(u[:, slab.outer].contiguous(), shifted(matrix, slab.outer.start), gradient)
        total, count = total + point.cost * point.count, count + point.count
        found[:, slab.core] = gradient[:, slab.inner]
    # MIND's floor of the noise is that of a slab, and its channels are whole numbers of 255
    loose = 40 if term.name in ("mind", "mixed") else 1
    assert count == pytest.approx(expected.count)
    assert total == pytest.approx(expected.cost * expected.count, rel=1e-4 * loose)
    torch.testing.assert_close(found, whole, rtol=1e-3 * loose, atol=1e-4 * loose * float(whole.abs().max()))
