"""Bayesian search of λ₀, μ⁺ and μ⁻ on the pairs of one dataset, with the TPE sampler of Optuna.

The first trial has the paper's settings. The search is stored on disk, and the sampler of every trial has its own seed,
so an interrupted search makes the same trials as an uninterrupted one. Searches on different datasets are independent.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfactor.bench.data.dataset import BenchCase
from warpfactor.bench.paper.methods import DAMPING, RULE, lm
from warpfactor.bench.paper.study import SEED, TRIALS, Study
from warpfactor.bench.run.method import Method
from warpfactor.bench.run.record import Run, plan_run
from warpfactor.bench.run.runner import RunProgress, Watcher
from warpfactor.bench.score.accuracy import accuracy_of, values
from warpfactor.bench.score.measures import Measure
from warpfactor.bench.score.stats import summarize
from warpfactor.errors import InputError

FOLDER = "searches"
# Lower limit, upper limit, and whether the scale is logarithmic.
SPACE = {
    "initial": (1e-4, 0.5, True),
    "increase": (1.1, 10.0, True),
    "decrease": (0.6, 0.999, False),
}
REASON = "reason"


@dataclass(frozen=True)
class Trial:
    """One trial of a search.

    Attributes:
        number: Number of the trial; trial 0 has the paper's settings.
        settings: λ₀, μ⁺ and μ⁻ by name.
        mean: Mean accuracy over pairs; NaN if a pair failed.
        reason: Why the trial failed.
    """

    number: int
    settings: Mapping[str, float]
    mean: float
    reason: str = ""


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Attributes:
        group: Name of the dataset.
        measure: The measure that was optimized; None if no run finished.
        cases: The pairs that were used; pairs on which the paper's settings fail are left out.
        trials: The trials in order.
        runs: The runs with the paper's settings, including failed ones.
    """

    group: str
    measure: Measure | None
    cases: tuple[BenchCase, ...]
    trials: tuple[Trial, ...]
    runs: tuple[Run, ...]

    @property
    def best(self) -> Trial:
        """The best trial; the one with the paper's settings if no other is better."""
        return self.ranked[0]

    @property
    def ranked(self) -> list[Trial]:
        """The successful trials, the best first; of equal ones the earlier first."""
        done = [trial for trial in self.trials if not trial.reason]
        sign = -1.0 if self.measure and self.measure.higher_is_better else 1.0
        return sorted(done, key=lambda trial: (sign * trial.mean, trial.number))


def check_optuna() -> None:
    """Raise an InputError if Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise InputError("The search needs Optuna; install it in the clone with: pip install '.[bench]'.")


def method_with(study: Study, settings: Mapping[str, float], label: str) -> Method:
    """LM with the settings of a trial."""
    return lm(study.plan, label, {f"{RULE}{name}": value for name, value in settings.items()})


def search(study: Study, group: str) -> SearchResult:
    """Search on the pairs of a group; an earlier search in the folder is resumed."""
    trials = study.plan.trials or TRIALS
    given = [case for case in study.cases if case.group == group]
    first = study.run([method_with(study, DAMPING, "trial 0")], given) if given else []
    measure = accuracy_of([run for run in first if run.done])
    cases = tuple(case for case, run in zip(given, first, strict=True) if run.done)
    if measure is None:
        return SearchResult(group, None, (), (), tuple(first))
    study.say(f"{group}: {trials} trials on {len(cases)} pairs")
    with _book(study, group, cases, measure) as book:
        if not _finished(book):
            _add_first(book, summarize(values(first, measure)).mean)
        overall = _Overall(study.watch, len(cases), trials, len(_finished(book)))
        while len(_finished(book)) < trials:
            overall.trial = len(_finished(book))
            _try_next(book, study, cases, measure, watch=overall)
        found = tuple(_trial(number, each) for number, each in enumerate(_finished(book)[:trials]))
    return SearchResult(group, measure, cases, found, tuple(first))


def _try_next(book: Any, study: Study, cases: Sequence[BenchCase], measure: Measure, *, watch: Watcher) -> None:
    """Make one more trial."""
    import optuna

    number = len(_finished(book))
    book.sampler = optuna.samplers.TPESampler(seed=_trial_seed(_seed(study), cases[0].group, number))
    trial = book.ask(_distributions())
    runs = study.run([method_with(study, trial.params, f"trial {number}")], cases, watch=watch)
    mean = summarize(values(runs, measure)).mean
    reason = next((f"{run.case}: {run.reason}" for run in runs if not run.done), "")
    if reason or math.isnan(mean):
        trial.set_user_attr(REASON, reason or f"No pair has a value of {measure.title}.")
        book.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        book.tell(trial, mean)


@contextmanager
def _book(study: Study, group: str, cases: Sequence[BenchCase], measure: Measure) -> Iterator[Any]:
    """Open the study of Optuna on disk; trials that were interrupted are discarded."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = _place(study, group, cases)
    path.parent.mkdir(parents=True, exist_ok=True)
    if study.options.again:
        path.unlink(missing_ok=True)
    storage = optuna.storages.RDBStorage(f"sqlite:///{path.absolute()}")
    try:
        way = optuna.study.StudyDirection
        book = optuna.create_study(
            storage=storage,
            study_name=group,
            direction=way.MAXIMIZE if measure.higher_is_better else way.MINIMIZE,
            load_if_exists=True,
        )
        for trial in book.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
            book.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        yield book
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _place(study: Study, group: str, cases: Sequence[BenchCase]) -> Path:
    """File of a search; it depends on the pairs, the settings and the seed."""
    method = method_with(study, DAMPING, "")
    keys = [plan_run(c, method, masks=study.options.masks, initial=study.start_of(c)).key for c in cases]
    inputs = json.dumps([sorted(keys), SPACE, _seed(study)])
    name = re.sub(r"[^\w.-]+", "_", group).strip("_")[:60]
    return study.folder / FOLDER / f"{name}-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}.db"


def _seed(study: Study) -> int:
    return SEED if study.plan.seed is None else study.plan.seed


def _trial_seed(seed: int, group: str, number: int) -> int:
    """Seed of a trial; it differs between datasets, so that their searches do not try the same settings."""
    return int(hashlib.sha256(f"{seed} {group} {number}".encode()).hexdigest()[:8], 16)


def _distributions() -> dict[str, Any]:
    from optuna.distributions import FloatDistribution

    return {name: FloatDistribution(low, high, log=log) for name, (low, high, log) in SPACE.items()}


def _add_first(book: Any, mean: float) -> None:
    import optuna

    book.add_trial(optuna.trial.create_trial(params=dict(DAMPING), distributions=_distributions(), value=mean))


def _finished(book: Any) -> list[Any]:
    """Trials that count: successful ones, and failed ones with a recorded reason."""
    return [t for t in book.get_trials(deepcopy=False) if t.state.name == "COMPLETE" or REASON in t.user_attrs]


def _trial(number: int, found: Any) -> Trial:
    mean = float("nan") if found.value is None else float(found.value)
    return Trial(number, dict(found.params), mean, found.user_attrs.get(REASON, ""))


class _Overall:
    """Converts the progress of single trials into that of the whole search."""

    def __init__(self, watch: Watcher | None, pairs: int, trials: int, finished: int) -> None:
        self._watch, self._pairs, self._total, self._there = watch, pairs, pairs * trials, pairs * finished
        self.trial = finished
        if watch is not None:
            watch(RunProgress(self._there, self._total, 0, None))

    def __call__(self, state: RunProgress) -> None:
        if self._watch is not None and state.run is not None:
            done = self.trial * self._pairs + state.done
            self._watch(RunProgress(done, self._total, done - self._there, state.run))
