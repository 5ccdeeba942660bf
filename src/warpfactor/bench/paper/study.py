"""A study: pairs, one affine for each, and runs of methods that all start from it, kept in a folder to go on from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from warpfactor.bench.data.dataset import Case
from warpfactor.bench.paper.data import Pairs
from warpfactor.bench.paper.experiment import Plan
from warpfactor.bench.run.method import OWN, Method
from warpfactor.bench.run.run import Run, make_job
from warpfactor.bench.run.runner import Options, Watcher, kept_transform, run_all

AFFINE = "affine"


class Study:
    """What an experiment works with.

    Attributes:
        pairs: what to register.
        folder: of all experiments; `runs` and `transforms` in it are shared by them, so nothing is run twice.
        plan, options: what the caller chose.
        say: tells people what comes next.
        watch: follows runs.
        starts: the affine's runs, once `run` or `cases` was used.
    """

    def __init__(
        self,
        pairs: Pairs,
        folder: Path,
        *,
        plan: Plan | None = None,
        options: Options | None = None,
        say: Callable[[str], None] | None = None,
        watch: Watcher | None = None,
    ) -> None:
        self.pairs, self.folder = pairs, folder
        self.plan, self.options = plan or Plan(), options or Options()
        self.say: Callable[[str], None] = say or (lambda _: None)
        self.watch = watch
        self._renewed: set[tuple[str, str]] = set()

    @property
    def affine(self) -> Method:
        """The linear stages that all methods start from."""
        return Method(AFFINE, self.plan.start or OWN, {"deformable": None})

    @cached_property
    def starts(self) -> tuple[Run, ...]:
        """The affine of every pair; found once and kept."""
        cases = self.pairs.cases
        self.say(f"one affine for each of {len(cases)} pairs, shared by all methods")
        return tuple(run_all(cases, [self.affine], self.folder, replace(self.options, keep=True), watch=self.watch))

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """The pairs whose affine was found."""
        return tuple(case for case, run in zip(self.pairs.cases, self.starts, strict=True) if run.done)

    @property
    def lost(self) -> list[Run]:
        """The affines that failed; their pairs have no part in what follows."""
        return [run for run in self.starts if not run.done]

    def start_of(self, case: Case) -> Path:
        """File of the affine of a pair."""
        return kept_transform(make_job(case, self.affine, masks=self.options.masks), self.folder)

    def run(
        self,
        methods: Sequence[Method],
        cases: Sequence[Case] | None = None,
        *,
        what: str = "",
        watch: Watcher | None = None,
    ) -> list[Run]:
        """Every pair, or some, with the warps of every method, from the affine of the pair.

        Args:
            what: this is, for people.
            watch: instead of the study's own.
        """
        chosen = tuple(self.cases if cases is None else cases)
        if what:
            self.say(what)
        warps = [replace(method, changes={**method.changes, "linear": None}) for method in methods]
        initials = {case.name: self.start_of(case) for case in chosen}
        again = [warp for warp in warps if self._renew(warp, chosen)] if self.options.again else []
        later = replace(self.options, again=False)
        if again:
            run_all(chosen, again, self.folder, self.options, initials=initials, watch=watch or self.watch)
        return run_all(chosen, warps, self.folder, later, initials=initials, watch=watch or self.watch)

    def check(self, methods: Sequence[Method]) -> None:
        """InputError if a method cannot run: found before the first affine."""
        for method in (self.affine, *methods):
            method.check(self.pairs.cases, masks=self.options.masks)

    def _renew(self, method: Method, cases: Sequence[Case]) -> bool:
        """Whether a method has yet to be run again on some case: with `again` everything is, but once."""
        keys = {(case.name, json.dumps(method.settings_for(case), sort_keys=True)) for case in cases}
        fresh = not keys <= self._renewed
        self._renewed |= keys
        return fresh
