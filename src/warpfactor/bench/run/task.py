"""Interface between registration methods and the rest of the benchmark: a task in, its result out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpfactor.bench.data.dataset import BenchCase
from warpfactor.geometry.transform import Transform


@dataclass(frozen=True)
class Task:
    """One registration to be done.

    Attributes:
        case: The images and what is needed to score the result.
        settings: Settings of the method, as plain data.
        threads: Maximum number of threads.
        scratch: Empty folder for temporary files; it is deleted afterwards.
        masks: Whether to register inside the masks of the case.
        initial: File of a transform (fixed to moving) to start from, or None.
    """

    case: BenchCase
    settings: Mapping[str, Any]
    threads: int
    scratch: Path
    masks: bool = False
    initial: Path | None = None

    def mask_files(self) -> tuple[Path | None, Path | None]:
        """Fixed and moving mask; None where there is none or masks are not to be used."""
        return (self.case.fixed_mask, self.case.moving_mask) if self.masks else (None, None)


@dataclass(frozen=True)
class TaskResult:
    """Result of a registration.

    Attributes:
        read: Returns the transform, fixed to moving: a warp in fixed space followed by an affine. It is called once,
            after time and memory were measured, so that reading a tool's output files does not count.
        details: Further information that is kept with the run, as plain data.
    """

    read: Callable[[], Transform]
    details: Mapping[str, Any] = field(default_factory=dict)
