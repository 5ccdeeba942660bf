"""The protocol of the experiments: what one is asked (`Plan`), what it is (`Experiment`), what it says (`Report`).

An experiment is a file with one `Experiment`, whose `run` gets a `Study` and returns a `Report`; the rest is shared:
datasets, the affine that all methods start from, runs that can be resumed, files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from warpfactor.bench.run.run import Run
from warpfactor.bench.score.tables import Table
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.bench.paper.study import Study

TRIALS, SEED = 50, 0
SIZES = (64, 128, 192, 256, 320, 384, 448, 512)


@dataclass(frozen=True)
class Plan:
    """What the caller may choose, beyond the data; None leaves it to the experiment.

    Attributes:
        iterations: per level of the paper's methods, coarse to fine; ours take no more than that.
        start: recipe whose linear stages every pair starts from; without, the one that the dataset names for it.
        points: of each sweep, instead of all.
        trials, seed: of a search.
        source: dataset whose best settings are transferred; without, the first.
        sizes: N of N x N x N volumes.
    """

    iterations: tuple[int, ...] | None = None
    start: str | None = None
    points: int | None = None
    trials: int | None = None
    seed: int | None = None
    source: str | None = None
    sizes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name, least in (("points", 2), ("trials", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"--{name} {value}: a whole number from {least} on is meant.")


@dataclass(frozen=True)
class Report:
    """What an experiment found.

    Attributes:
        tables: the most detailed one first.
        notes: what a reader must know to understand them, in Markdown; paragraphs.
        draw: writes the figure to a path and returns it; None if there is nothing to draw.
        runs: all that were made, failed ones included.
        failures: what else failed, in sentences.
    """

    tables: Sequence[Table]
    notes: Sequence[str] = ()
    draw: Callable[[Path], Path] | None = None
    runs: Sequence[Run] = ()
    failures: Sequence[str] = ()

    @property
    def failed(self) -> int:
        """How many things failed."""
        return sum(not run.done for run in self.runs) + len(self.failures)


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper as something to run.

    Attributes:
        name: on the command line, and of its files.
        title: above its tables.
        question: what it answers, a sentence.
        paper: where the paper has it.
        run: does it.
        options: fields of `Plan` that have a part in it.
        check: raises an InputError if it cannot work here, before anything runs.
        needs_data: whether it needs a dataset.
    """

    name: str
    title: str
    question: str
    paper: str
    run: Callable[[Study], Report]
    options: frozenset[str] = field(default=frozenset({"iterations", "start"}))
    check: Callable[[Study], None] = field(default=lambda _: None)
    needs_data: bool = True
