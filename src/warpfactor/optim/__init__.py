"""The optimizer in three independent parts: the step, its damping and fate, and when to stop."""

from warpfactor.optim.damping import DAMPINGS, Damping, DampingState, Paper, Trust
from warpfactor.optim.factored import FactoredLM
from warpfactor.optim.steps import SGD, STEPS, Adam, Demons, Pointwise, Root, Step, Tile, Units
from warpfactor.optim.stopping import Convergence

__all__ = [
    "DAMPINGS",
    "SGD",
    "STEPS",
    "Adam",
    "Convergence",
    "Damping",
    "DampingState",
    "Demons",
    "FactoredLM",
    "Paper",
    "Pointwise",
    "Root",
    "Step",
    "Tile",
    "Trust",
    "Units",
]
