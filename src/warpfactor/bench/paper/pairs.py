"""The image pairs of an experiment, from one or several datasets. Results are averaged by group."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from warpfactor.bench.data.dataset import BenchCase, Dataset, check_files, read_dataset
from warpfactor.bench.data.kinds import unique_names
from warpfactor.errors import InputError


@dataclass(frozen=True)
class Pairs:
    """Image pairs to register.

    Attributes:
        cases: The pairs; their names are unique.
        label_names: Names of labels by group; empty if unknown.
        command: The command-line options that select these pairs.
    """

    cases: tuple[BenchCase, ...] = ()
    label_names: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    command: str = ""

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups, in the order of their first pair."""
        return tuple(dict.fromkeys(case.group for case in self.cases))

    def of(self, group: str) -> tuple[BenchCase, ...]:
        """The pairs of a group."""
        return tuple(case for case in self.cases if case.group == group)


def gather(paths: Sequence[Path], *, pattern: str | None = None, limit: int | None = None) -> Pairs:
    """Read the pairs of one or several datasets and check their files.

    Args:
        paths: Tables, or Learn2Reg JSON files or folders.
        pattern: Keep only pairs whose name or group matches, as in `Dataset.only`.
        limit: Maximum number of pairs per group; the first ones are kept.
    """
    if limit is not None and limit < 1:
        raise InputError(f"--limit {limit}: the limit must be at least 1 pair per dataset.")
    datasets = [read_dataset(path, check=False) for path in paths]
    names = {case.group: dataset.label_names for dataset in datasets for case in dataset.cases}
    cases = unique_names([case for dataset in datasets for case in dataset.cases])
    chosen = _first(Dataset(" and ".join(d.name for d in datasets), cases).only(pattern).cases, limit)
    check_files(chosen, " and ".join(str(path) for path in paths))
    options = [*(f"--data {as_typed(path)}" for path in paths), *([f"--cases {as_typed(pattern)}"] if pattern else [])]
    return Pairs(chosen, names, " ".join([*options, *([f"--limit {limit}"] if limit else [])]))


def as_typed(value: str | Path) -> str:
    """Quote a word for a shell. Paths below the working folder become relative, so that pages do not reveal it."""
    if isinstance(value, Path) and value.is_absolute() and value.is_relative_to(Path.cwd()):
        value = value.relative_to(Path.cwd())
    return shlex.quote(str(value))


def _first(cases: Sequence[BenchCase], limit: int | None) -> tuple[BenchCase, ...]:
    seen: Counter[str] = Counter()
    kept = []
    for case in cases:
        seen[case.group] += 1
        if limit is None or seen[case.group] <= limit:
            kept.append(case)
    return tuple(kept)
