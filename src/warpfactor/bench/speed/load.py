"""Other work on the machine while times were measured: a file in the folder keeps the highest load before a start."""

from __future__ import annotations

import json
from pathlib import Path

from warpfactor.io import atomic_path

NAME = "load.json"
BUSY = 0.25  # load per thread from which times cannot be trusted


def note(folder: Path, load: float, *, again: bool = False) -> None:
    """Remember a load; what was measured under an earlier one is still there, unless all is measured again."""
    highest = load if again else max(load, highest_load(folder))
    with atomic_path(folder / NAME, force=True) as temporary:
        temporary.write_text(json.dumps({"load": highest}), encoding="utf-8")


def highest_load(folder: Path) -> float:
    """The highest load before measurements in a folder began; 0 if nobody noted it."""
    try:
        return float(json.loads((folder / NAME).read_text(encoding="utf-8"))["load"])
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError):
        return 0.0


def is_busy(load: float, threads: int) -> bool:
    """Whether times that a number of threads take under a load are too long to be trusted."""
    return load > BUSY * threads


def sentence(load: float) -> str:
    """What to think of times under such a load."""
    return f"Other work was running (load {load:.1f}): times are too long, and ratios are rough."
