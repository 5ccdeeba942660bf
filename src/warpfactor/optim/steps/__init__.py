"""How a gradient becomes a step; a new one is a file and a line here.

| name        | step at a voxel                                                 |
|-------------|-----------------------------------------------------------------|
| root        | -g / (|g| + sqrt(lambda)), never longer than one                 |
| pointwise   | -r g / (|g|^2 + lambda), paper eq. 5                             |
| tile        | -(H + lambda I)^-1 r g, H pooled over a window, paper eq. 6      |
| demons      | r_x n / (|n|^2 + alpha^2 r_x^2), paper eq. 9, MSE only           |
| adam        | -m / (sqrt(s) + epsilon), with two moment fields as state        |
| sgd         | -g                                                              |
"""

from warpfactor.optim.steps.adam import Adam
from warpfactor.optim.steps.base import Step, Taken, Units
from warpfactor.optim.steps.demons import Demons
from warpfactor.optim.steps.pointwise import Pointwise
from warpfactor.optim.steps.root import Root
from warpfactor.optim.steps.sgd import SGD
from warpfactor.optim.steps.tile import Tile

STEPS = {"root": Root, "pointwise": Pointwise, "tile": Tile, "demons": Demons, "adam": Adam, "sgd": SGD}

__all__ = ["SGD", "STEPS", "Adam", "Demons", "Pointwise", "Root", "Step", "Taken", "Tile", "Units"]
