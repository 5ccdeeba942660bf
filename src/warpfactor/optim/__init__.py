"""The optimizer in three independent parts: the step (descent), its length and fate (damping), and when to stop."""

from warpfactor.optim.damping import Paper, State, Trust
from warpfactor.optim.steps import NAMES, Descent, Moments, take
from warpfactor.optim.stopping import Convergence

DAMPINGS = {"paper": Paper, "trust": Trust}

__all__ = ["DAMPINGS", "NAMES", "Convergence", "Descent", "Moments", "Paper", "State", "Trust", "take"]
