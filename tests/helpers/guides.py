"""Terms that guide a registration, one of each, beside small images in double precision."""

from __future__ import annotations

import torch

from warpfactor.geometry.grid import Grid
from warpfactor.scene.scene import Scene, Side
from warpfactor.terms import MSE, Bending, LabelTerm, PairTerm, VolumeChange

SCALE = ((0.0, 1.0),)


def side(generator, shape, spacing=1.0, mask=None):
    data = torch.rand((1, *shape), generator=generator, dtype=torch.float64)
    return Side(data, mask, Grid.from_spacing(shape, spacing), SCALE)


def terms(generator, shape):
    """One of each, for a fixed image of this shape."""
    labels = torch.zeros(shape, dtype=torch.int32)
    labels[..., 2:4, 2:5], labels[..., 4:6, 3:6] = 3, 7
    other = (shape[0] + (shape[0] > 1), shape[1] + 2, shape[2] + 1)
    moving = torch.zeros(other, dtype=torch.int32)
    moving[..., 3:6, 2:5], moving[..., 6:8, 3:6] = 3, 7
    grids = Grid.from_spacing(shape, (2.0, 1.0, 1.5)), Grid.from_spacing(other, (1.8, 0.9, 1.4))
    pair = Scene(side(generator, shape, (2.0, 1.0, 1.5)), side(generator, other, (1.8, 0.9, 1.4)))
    return {
        "labels": LabelTerm(labels, moving, *grids, (3, 7)),
        "pair": PairTerm(MSE(), pair, "mse of t2"),
        "bending": Bending(),
        "volume": VolumeChange(),
    }
