"""The optimizer in three independent parts: the step (descent), its length and fate (damping), and when to stop."""

from warpfactor.optim.convergence import Convergence
from warpfactor.optim.damping import Paper, State, Trust
from warpfactor.optim.descent import NAMES, Descent, Moments, take

DAMPINGS = {"paper": Paper, "trust": Trust}

__all__ = ["DAMPINGS", "NAMES", "Convergence", "Descent", "Moments", "Paper", "State", "Trust", "take"]
