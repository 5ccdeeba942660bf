"""What a registration leaves behind of its own course: one record per iteration, and why it stopped, in words."""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """Why a registration stopped; the value is the sentence for people."""

    CONVERGED = "Converged: at every level the cost had flattened."
    ITERATIONS = "Finished: every level ran to its iteration limit, or to where no step lowered the cost."
    INTERRUPTED = "Interrupted; this is the last warp that was found good."
    ROSE = "Stopped where the cost began to rise, as the stop rule of the recipe says."
    STALLED = "No step lowered the cost any more at the finest level."


@dataclass(frozen=True)
class Record:
    """One iteration.

    Attributes:
        level: factor of the level.
        iteration: within the level, from 0.
        cost: at the warp the iteration started from (of the trial warp, if that was rejected).
        residual: r, the factor of the paper's steps.
        damping: λ of the step taken from there, or of the step that was rejected.
        accepted: whether that warp was kept.
        step_vox: length of the longest step taken, in voxels of the level; 0 if none was.
        seconds: since the registration started.
    """

    level: float
    iteration: int
    cost: float
    residual: float
    damping: float
    accepted: bool
    step_vox: float
    seconds: float
