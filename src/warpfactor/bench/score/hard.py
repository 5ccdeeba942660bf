"""How many of the hard pairs the linear stages find: the error of each against its known map, and a table.

A pair is right if the mean error over the fixed image's object is below LIMIT of the image's longest side.

Run it with `python -m warpfactor.bench.score.hard [FOLDER] [--output TABLE.md]`.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from warpfactor.bench.data.hard import HardPair, hard_pairs, make_pair
from warpfactor.errors import WarpfactorError
from warpfactor.geometry.grid import Matrix
from warpfactor.geometry.image import Image
from warpfactor.recipebook.files import recipe
from warpfactor.registration.run import register

LIMIT = 0.02  # of the fixed image's longest side
OBJECT = 0.15  # of the intensity range above the darkest: what counts as object
POINTS = 2000


@dataclass(frozen=True)
class HardOutcome:
    """How one pair went: error as a share of the longest side, what was chosen, seconds, and warnings."""

    case: HardPair
    error: float
    start: str
    metric: str
    evidence: float
    seconds: float
    warned: bool

    @property
    def right(self) -> bool:
        return self.error < LIMIT


def run_case(case: HardPair, folder: Path | None = None, *, threads: int | None = None) -> HardOutcome:
    """Register one pair by the linear stages of the default, and compare with the truth."""
    fixed, moving, truth = make_pair(case, folder)
    began = time.perf_counter()
    try:
        found = register(fixed, moving, recipe=recipe("default").replace({"deformable": "none"}), threads=threads)
    except WarpfactorError as error:
        return HardOutcome(case, math.inf, str(error), "", math.nan, time.perf_counter() - began, True)
    stage = found.history[-1]
    apart = error_share(found.affine.matrix, truth, fixed)
    seconds, evidence = time.perf_counter() - began, stage.evidence
    start, warned = stage.start or "", bool(found.warnings)
    return HardOutcome(case, apart, start, stage.metric, math.nan if evidence is None else evidence, seconds, warned)


def error_share(found: Matrix, truth: Matrix, fixed: Image) -> float:
    """Mean distance between two transforms over the object, as a share of the image's longest side."""
    values = fixed.data[0]
    low, high = (float(end) for end in values.aminmax())
    index = torch.nonzero(values > low + OBJECT * (high - low)).numpy()
    index = index[:: 1 + len(index) // POINTS]
    points = np.column_stack([fixed.grid.index_to_world(index), np.ones(len(index))])
    apart = np.linalg.norm((points @ (found - truth).T)[:, :3], axis=1).mean()
    return float(apart) / max(n * s for n, s in zip(fixed.grid.shape, fixed.grid.spacing_mm, strict=True))


def table(outcomes: list[HardOutcome]) -> str:
    """Markdown: one row per pair, and how many are right."""
    right = sum(outcome.right for outcome in outcomes)
    wrong = [outcome for outcome in outcomes if not outcome.right]
    told = f" Of the {len(wrong)} others {sum(o.warned for o in wrong)} came with a warning." if wrong else ""
    lines = [
        f"{right} of {len(outcomes)} are right: mean error below {LIMIT:.0%} of the image's longest side.{told}",
        "",
        "| pair | error, % of the side | right | metric | start | evidence | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for o in outcomes:
        error = f"{100 * o.error:.2f}" if math.isfinite(o.error) else "failed"
        numbers = f"{o.evidence:.0f} | {o.seconds:.1f}"
        lines.append(
            f"| {o.case.name} | {error} | {'yes' if o.right else '**no**'} | {o.metric} | {o.start} | {numbers} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> list[HardOutcome]:
    """Run all pairs and write the table."""
    parser = argparse.ArgumentParser(
        prog="python -m warpfactor.bench.score.hard", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", nargs="?", type=Path, help="Folder with real images, as the evaluation data.")
    parser.add_argument("--output", type=Path, help="File for the table.")
    parser.add_argument("--only", help="Pairs whose names have this in them.")
    parser.add_argument("--threads", type=int, help="At most so many.")
    given = parser.parse_args(arguments)
    outcomes = []
    for case in hard_pairs(given.folder):
        if given.only is None or given.only in case.name:
            outcomes.append(run_case(case, given.folder, threads=given.threads))
            if given.output is not None:
                given.output.write_text(table(outcomes), encoding="utf-8")
    return outcomes


if __name__ == "__main__":
    main()
