"""What a method is given and what it returns: the seam between methods and the rest of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpfactor.bench.data.dataset import Case
from warpfactor.geometry.transform import Transform


@dataclass(frozen=True)
class Task:
    """One registration.

    Attributes:
        case: the files.
        settings: of the method, plain data.
        threads: at most so many.
        scratch: an empty folder that vanishes afterwards.
        masks: whether to register inside the masks of the case.
        initial: transform to start from, fixed to moving, if there is one.
    """

    case: Case
    settings: Mapping[str, Any]
    threads: int
    scratch: Path
    masks: bool = False
    initial: Path | None = None

    def mask_files(self) -> tuple[Path | None, Path | None]:
        """Fixed and moving mask, if they are to be used."""
        return (self.case.fixed_mask, self.case.moving_mask) if self.masks else (None, None)


@dataclass(frozen=True)
class Outcome:
    """What a registration gave.

    Attributes:
        read: returns the transform, fixed to moving: a warp of fixed space and then an affine. Called once, after the
            measurement, so that reading a tool's files back does not count against it.
        details: whatever else is worth keeping, plain data.
    """

    read: Callable[[], Transform]
    details: Mapping[str, Any] = field(default_factory=dict)
