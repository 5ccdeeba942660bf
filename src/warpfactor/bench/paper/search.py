"""Bayesian search of λ₀, μ⁺ and μ⁻ on the pairs of one dataset: Optuna's TPE, kept on disk, the same after a stop.

The first trial has the paper's numbers. Every trial's sampler has a seed of its own, so that a search that was stopped
makes the same trials as one that was not. Searches on different datasets are independent.
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

from warpfactor.bench.data.dataset import Case
from warpfactor.bench.paper.experiment import SEED, TRIALS
from warpfactor.bench.paper.modes import DAMPING, RULE, lm
from warpfactor.bench.paper.study import Study
from warpfactor.bench.run.method import Method
from warpfactor.bench.run.run import Run, make_job
from warpfactor.bench.run.runner import Progress, Watcher
from warpfactor.bench.score.accuracy import accuracy_of, values
from warpfactor.bench.score.metric import Metric
from warpfactor.bench.score.stats import summarize
from warpfactor.errors import InputError

FOLDER = "searches"
SPACE = {"initial": (1e-4, 0.5, True), "increase": (1.1, 10.0, True), "decrease": (0.6, 0.999, False)}  # log?
REASON = "reason"


@dataclass(frozen=True)
class Trial:
    """One setting that was tried.

    Attributes:
        number: from 0, the paper's own.
        settings: λ₀, μ⁺ and μ⁻ by name.
        mean: of the figure over pairs; NaN if a pair failed.
        reason: why it failed.
    """

    number: int
    settings: Mapping[str, float]
    mean: float
    reason: str = ""


@dataclass(frozen=True)
class Search:
    """What a search found.

    Attributes:
        group: dataset.
        metric: what was searched for.
        cases: pairs that had a part; those on which the paper's numbers fail have none.
        trials: in order.
        runs: of the paper's numbers, failed ones included.
    """

    group: str
    metric: Metric | None
    cases: tuple[Case, ...]
    trials: tuple[Trial, ...]
    runs: tuple[Run, ...]

    @property
    def best(self) -> Trial:
        """The best trial; the paper's numbers if nothing is better."""
        return self.ranked[0]

    @property
    def ranked(self) -> list[Trial]:
        """The trials that were done, the best first, the earlier first if two are as good."""
        done = [trial for trial in self.trials if not trial.reason]
        sign = -1.0 if self.metric and self.metric.higher_is_better else 1.0
        return sorted(done, key=lambda trial: (sign * trial.mean, trial.number))


def check_optuna() -> None:
    """InputError if Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise InputError("The search needs Optuna; in the clone: pip install '.[bench]'.")


def method_with(study: Study, settings: Mapping[str, float], label: str) -> Method:
    """LM with settings of the search."""
    return lm(study.plan, label, {f"{RULE}{name}": value for name, value in settings.items()})


def search(study: Study, group: str) -> Search:
    """Search on the pairs of a group, going on from what the folder holds."""
    trials = study.plan.trials or TRIALS
    given = [case for case in study.cases if case.group == group]
    first = study.run([method_with(study, DAMPING, "trial 0")], given) if given else []
    metric = accuracy_of([run for run in first if run.done])
    cases = tuple(case for case, run in zip(given, first, strict=True) if run.done)
    if metric is None:
        return Search(group, None, (), (), tuple(first))
    study.say(f"{group}: {trials} trials on {len(cases)} pairs")
    with _book(study, group, cases, metric) as book:
        if not _finished(book):
            _add_first(book, summarize(values(first, metric)).mean)
        overall = _Overall(study.watch, len(cases), trials, len(_finished(book)))
        while len(_finished(book)) < trials:
            overall.trial = len(_finished(book))
            _try_next(book, study, cases, metric, watch=overall)
        found = tuple(_trial(number, each) for number, each in enumerate(_finished(book)[:trials]))
    return Search(group, metric, cases, found, tuple(first))


def _try_next(book: Any, study: Study, cases: Sequence[Case], metric: Metric, *, watch: Watcher) -> None:
    """One more trial."""
    import optuna

    number = len(_finished(book))
    book.sampler = optuna.samplers.TPESampler(seed=_trial_seed(_seed(study), cases[0].group, number))
    trial = book.ask(_distributions())
    runs = study.run([method_with(study, trial.params, f"trial {number}")], cases, watch=watch)
    mean = summarize(values(runs, metric)).mean
    reason = next((f"{run.case}: {run.reason}" for run in runs if not run.done), "")
    if reason or math.isnan(mean):
        trial.set_user_attr(REASON, reason or f"No pair has a figure {metric.title}.")
        book.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        book.tell(trial, mean)


@contextmanager
def _book(study: Study, group: str, cases: Sequence[Case], metric: Metric) -> Iterator[Any]:
    """Optuna's study on disk, free of trials that were cut short."""
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
            direction=way.MAXIMIZE if metric.higher_is_better else way.MINIMIZE,
            load_if_exists=True,
        )
        for trial in book.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
            book.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        yield book
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _place(study: Study, group: str, cases: Sequence[Case]) -> Path:
    """The file of a search: another one for other pairs, settings or seeds."""
    method = method_with(study, DAMPING, "")
    keys = [make_job(c, method, masks=study.options.masks, initial=study.start_of(c)).key for c in cases]
    decides = json.dumps([sorted(keys), SPACE, _seed(study)])
    name = re.sub(r"[^\w.-]+", "_", group).strip("_")[:60]
    return study.folder / FOLDER / f"{name}-{hashlib.sha256(decides.encode()).hexdigest()[:12]}.db"


def _seed(study: Study) -> int:
    return SEED if study.plan.seed is None else study.plan.seed


def _trial_seed(seed: int, group: str, number: int) -> int:
    """Another one for every trial and dataset: searches that tried the same points would agree too easily."""
    return int(hashlib.sha256(f"{seed} {group} {number}".encode()).hexdigest()[:8], 16)


def _distributions() -> dict[str, Any]:
    from optuna.distributions import FloatDistribution

    return {name: FloatDistribution(low, high, log=log) for name, (low, high, log) in SPACE.items()}


def _add_first(book: Any, mean: float) -> None:
    import optuna

    book.add_trial(optuna.trial.create_trial(params=dict(DAMPING), distributions=_distributions(), value=mean))


def _finished(book: Any) -> list[Any]:
    """Trials that count: done, or failed for a reason that was written down."""
    return [t for t in book.get_trials(deepcopy=False) if t.state.name == "COMPLETE" or REASON in t.user_attrs]


def _trial(number: int, found: Any) -> Trial:
    mean = float("nan") if found.value is None else float(found.value)
    return Trial(number, dict(found.params), mean, found.user_attrs.get(REASON, ""))


class _Overall:
    """Progress of a whole search out of that of its trials."""

    def __init__(self, watch: Watcher | None, pairs: int, trials: int, finished: int) -> None:
        self._watch, self._pairs, self._total, self._there = watch, pairs, pairs * trials, pairs * finished
        self.trial = finished
        if watch is not None:
            watch(Progress(self._there, self._total, 0, None))

    def __call__(self, state: Progress) -> None:
        if self._watch is not None and state.run is not None:
            done = self.trial * self._pairs + state.done
            self._watch(Progress(done, self._total, done - self._there, state.run))
