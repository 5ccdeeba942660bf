"""The frame of the paper's experiments: what the caller chooses, what an experiment is, what it works with and returns.

An experiment is a module with one `Experiment`, whose `run` takes a `Study` and returns `Findings`. The rest is shared:
datasets, the affine from which all methods start, runs that can be resumed, and files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from warpfactor.bench.data.dataset import BenchCase
from warpfactor.bench.paper.pairs import Pairs
from warpfactor.bench.run.method import OWN, Method
from warpfactor.bench.run.record import Run, plan_run
from warpfactor.bench.run.runner import RunOptions, Watcher, kept_transform, run_all
from warpfactor.bench.score.tables import Table
from warpfactor.errors import InputError

AFFINE = "affine"
TRIALS, SEED = 50, 0
SIZES = (64, 128, 192, 256, 320, 384, 448, 512)


@dataclass(frozen=True)
class StudyPlan:
    """Choices of the caller; None leaves a choice to the experiment.

    Attributes:
        iterations: Iterations per level of the paper's methods, from coarse to fine. Our own recipes take no more.
        start: Recipe whose linear stages provide the initial affine (default: the one that the dataset names).
        points: Number of values in each parameter sweep (default: all values of the paper).
        trials: Number of trials of a parameter search.
        seed: Seed of a parameter search.
        source: Dataset whose best settings are transferred to the others (default: the first one).
        sizes: Edge lengths N of N x N x N volumes.
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
                raise InputError(f"--{name} {value}: the number must be at least {least}.")


@dataclass(frozen=True)
class Findings:
    """Result of an experiment.

    Attributes:
        tables: Tables, the most detailed one first.
        notes: Paragraphs in Markdown that explain the tables.
        draw: Writes the plot to a path and returns the path; None if there is no plot.
        runs: All runs, including failed ones.
        failures: Descriptions of other failures.
    """

    tables: Sequence[Table]
    notes: Sequence[str] = ()
    draw: Callable[[Path], Path] | None = None
    runs: Sequence[Run] = ()
    failures: Sequence[str] = ()

    @property
    def failed(self) -> int:
        """Number of failures."""
        return sum(not run.done for run in self.runs) + len(self.failures)


class Study:
    """Data, options and runs of an experiment. All methods start from one affine per pair, which is computed once.

    Attributes:
        pairs: Image pairs to register.
        folder: Folder of all experiments. They share its subfolders `runs` and `transforms`, so no run is repeated.
        plan: Choices of the caller.
        options: How runs are made.
        say: Reports the next step to the user.
        watch: Follows the progress of runs.
    """

    def __init__(
        self,
        pairs: Pairs,
        folder: Path,
        *,
        plan: StudyPlan | None = None,
        options: RunOptions | None = None,
        say: Callable[[str], None] | None = None,
        watch: Watcher | None = None,
    ) -> None:
        self.pairs, self.folder = pairs, folder
        self.plan, self.options = plan or StudyPlan(), options or RunOptions()
        self.say: Callable[[str], None] = say or (lambda _: None)
        self.watch = watch
        self._repeated: set[tuple[str, str]] = set()

    @property
    def affine(self) -> Method:
        """The linear stages from whose result all methods start."""
        return Method(AFFINE, self.plan.start or OWN, {"deformable": None})

    @cached_property
    def starts(self) -> tuple[Run, ...]:
        """Runs of the affine of every pair; they are made on first access."""
        cases = self.pairs.cases
        self.say(f"Computing one affine for each of {len(cases)} pairs; all methods start from it.")
        return tuple(run_all(cases, [self.affine], self.folder, replace(self.options, keep=True), watch=self.watch))

    @cached_property
    def cases(self) -> tuple[BenchCase, ...]:
        """The pairs whose affine succeeded."""
        return tuple(case for case, run in zip(self.pairs.cases, self.starts, strict=True) if run.done)

    @property
    def lost(self) -> list[Run]:
        """The affines that failed; their pairs are left out of the experiment."""
        return [run for run in self.starts if not run.done]

    def start_of(self, case: BenchCase) -> Path:
        """File of the affine of a pair."""
        return kept_transform(plan_run(case, self.affine, masks=self.options.masks), self.folder)

    def run(
        self,
        methods: Sequence[Method],
        cases: Sequence[BenchCase] | None = None,
        *,
        what: str = "",
        watch: Watcher | None = None,
    ) -> list[Run]:
        """Run the deformable stages of methods on pairs, starting from the affine of each pair.

        Args:
            methods: The methods.
            cases: The pairs (default: all whose affine succeeded).
            what: Description of these runs for the user.
            watch: Follows the progress (default: that of the study).
        """
        chosen = tuple(self.cases if cases is None else cases)
        if what:
            self.say(what)
        warps = [replace(method, changes={**method.changes, "linear": None}) for method in methods]
        initials = {case.name: self.start_of(case) for case in chosen}
        again = [warp for warp in warps if self._must_repeat(warp, chosen)] if self.options.again else []
        later = replace(self.options, again=False)
        if again:
            run_all(chosen, again, self.folder, self.options, initials=initials, watch=watch or self.watch)
        return run_all(chosen, warps, self.folder, later, initials=initials, watch=watch or self.watch)

    def check(self, methods: Sequence[Method]) -> None:
        """Raise an InputError if a method cannot run, before the first affine is computed."""
        for method in (self.affine, *methods):
            method.check(self.pairs.cases, masks=self.options.masks)

    def _must_repeat(self, method: Method, cases: Sequence[BenchCase]) -> bool:
        """Whether a method has not been repeated yet on some case; the option `again` repeats every run once."""
        keys = {(case.name, json.dumps(method.settings_for(case), sort_keys=True)) for case in cases}
        fresh = not keys <= self._repeated
        self._repeated |= keys
        return fresh


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper as an experiment.

    Attributes:
        name: Name on the command line and of its files.
        title: Heading of its page.
        question: The question that it answers.
        paper: Where the paper has it.
        run: Performs the experiment.
        options: Fields of `StudyPlan` that it uses.
        check: Raises an InputError if the experiment cannot be run, before any work.
        needs_data: Whether it needs a dataset.
    """

    name: str
    title: str
    question: str
    paper: str
    run: Callable[[Study], Findings]
    options: frozenset[str] = field(default=frozenset({"iterations", "start"}))
    check: Callable[[Study], None] = field(default=lambda _: None)
    needs_data: bool = True
