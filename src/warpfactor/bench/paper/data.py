"""The pairs of an experiment: one or several datasets, thinned out; results are averaged by the group of a pair."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from warpfactor.bench.data.dataset import Case, Dataset, check_files, read_dataset
from warpfactor.errors import InputError


@dataclass(frozen=True)
class Pairs:
    """What to register.

    Attributes:
        cases: names are unique.
        label_names: by group, then by label; empty if nobody said.
        command: the options that choose them, as given.
    """

    cases: tuple[Case, ...] = ()
    label_names: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    command: str = ""

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(case.group for case in self.cases))

    def of(self, group: str) -> tuple[Case, ...]:
        """The cases of a group."""
        return tuple(case for case in self.cases if case.group == group)


def gather(paths: Sequence[Path], *, pattern: str | None = None, limit: int | None = None) -> Pairs:
    """The pairs of some datasets, all their files checked.

    Args:
        pattern: only cases whose name or group matches, as in `Dataset.only`.
        limit: at most so many of each group, the first ones.
    """
    if limit is not None and limit < 1:
        raise InputError(f"--limit {limit}: at least one pair of each dataset is meant.")
    datasets = [read_dataset(path, check=False) for path in paths]
    names = {case.group: dataset.label_names for dataset in datasets for case in dataset.cases}
    cases = _told_apart([case for dataset in datasets for case in dataset.cases])
    chosen = _first(Dataset(" and ".join(d.name for d in datasets), cases).only(pattern).cases, limit)
    check_files(chosen, " and ".join(str(path) for path in paths))
    options = [*(f"--data {as_typed(path)}" for path in paths), *([f"--cases {as_typed(pattern)}"] if pattern else [])]
    return Pairs(chosen, names, " ".join([*options, *([f"--limit {limit}"] if limit else [])]))


def as_typed(value: str | Path) -> str:
    """A word for a shell; a path below the working folder as it is from there, so that pages hold no more of it."""
    if isinstance(value, Path) and value.is_absolute() and value.is_relative_to(Path.cwd()):
        value = value.relative_to(Path.cwd())
    return shlex.quote(str(value))


def _told_apart(cases: Sequence[Case]) -> tuple[Case, ...]:
    """The cases with unique names: where two datasets use the same one, the group goes before it."""
    counts = Counter(case.name for case in cases)
    found = tuple(replace(c, name=f"{c.group} {c.name}") if counts[c.name] > 1 else c for c in cases)
    repeated = [name for name, count in Counter(case.name for case in found).items() if count > 1]
    if repeated:
        raise InputError(f"The pair {repeated[0]!r} is in the data twice; name each dataset once.")
    return found


def _first(cases: Sequence[Case], limit: int | None) -> tuple[Case, ...]:
    seen: Counter[str] = Counter()
    kept = []
    for case in cases:
        seen[case.group] += 1
        if limit is None or seen[case.group] <= limit:
            kept.append(case)
    return tuple(kept)
