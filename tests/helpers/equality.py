"""Registrations that must be the same to the last bit."""

import numpy as np
import torch


def assert_same(found, alone):
    """Two registrations have the same bits: iterations, transforms, image and figures."""
    for one, other in ((found.warp, alone.warp), (found.inverse_warp, alone.inverse_warp)):
        assert np.array_equal(*(part.displacement.numpy().view(np.int32) for part in (one, other)))
    assert np.array_equal(found.affine.matrix, alone.affine.matrix)
    assert torch.equal(found.warped.data, alone.warped.data)
    assert found.figures == alone.figures
    for one, other in zip(found.history, alone.history, strict=True):
        assert [(e.level, e.cost, e.damping, e.accepted, e.step_vox) for e in one.history] == [
            (e.level, e.cost, e.damping, e.accepted, e.step_vox) for e in other.history
        ]
        assert (one.ending, one.cost_before, one.cost_after) == (other.ending, other.cost_before, other.cost_after)
