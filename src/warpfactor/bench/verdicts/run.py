"""Make the results of all pairs, judge them, and keep one line of JSON per result, so that a run can be continued."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from warpfactor.bench.verdicts.again import failing_ways, harmless
from warpfactor.bench.verdicts.pairs import all_pairs
from warpfactor.bench.verdicts.rates import TrialRecord
from warpfactor.bench.verdicts.results import MadeResult, draw_of, register_pair, results_of, some_ways
from warpfactor.bench.verdicts.trial import PairSource, TrialPair
from warpfactor.checks.case import Case
from warpfactor.checks.examine import examine
from warpfactor.checks.judge import Check
from warpfactor.checks.limits import RANK
from warpfactor.errors import FileError, WarpfactorError
from warpfactor.io.jsontext import without_nan
from warpfactor.registration.resources import limited_threads

LINES = "results.jsonl"
KEPT = 60  # pairs whose transforms and images may be put in the place of others
SPOILT_WAYS = 3  # in which every result is spoilt
AGAIN = 2  # every second pair is registered twice more: in a way that should be good, and in one that ought to fail


def run_trials(
    output: Path,
    folder: Path | None,
    *,
    part: tuple[int, int] = (0, 1),
    half: int | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[TrialRecord]:
    """Make and judge the results of all pairs that are not in the output folder yet, and return everything in it.

    Args:
        output: the folder; its lines are appended to.
        folder: of real images, like the project's evaluation data; None for phantoms only.
        part: number and count of parts into which the pairs are divided, for several processes.
        half: which half of the pairs; None for both.
        tell: called with a sentence about every result.
    """
    output.mkdir(parents=True, exist_ok=True)
    path = output / (LINES if part[1] == 1 else f"{part[0]}-{LINES}")
    known = {record.pair for record in read_records(output)}
    wanted = [source for source in all_pairs(folder) if half is None or source.half == half]
    sources = wanted[part[0] :: part[1]]
    with path.open("a", encoding="utf-8") as stream:
        for record in trial_records([source for source in sources if source.name not in known]):
            stream.write(json.dumps(without_nan(asdict(record)), allow_nan=False) + "\n")
            stream.flush()
            if tell is not None:
                tell(f"{record.pair}, {record.how}: {record.level} {', '.join(record.problems)}")
    return read_records(output)


def read_records(output: Path) -> list[TrialRecord]:
    """All records of an output folder."""
    found = []
    for path in sorted(output.glob(f"*{LINES}")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            try:
                plain = json.loads(line)
                found.append(TrialRecord(**{**plain, "problems": tuple(plain["problems"])}))
            except (ValueError, TypeError, KeyError) as error:
                raise FileError(f"{path}: line {number + 1} is damaged ({error}); remove it.") from error
    return found


def trial_records(sources: list[PairSource]) -> Iterator[TrialRecord]:
    """Records of the results of pairs, in turn."""
    done: list[tuple[TrialPair, Case]] = []
    for number, source in enumerate(sources):
        pair = source.make()
        try:
            case = register_pair(pair)
        except WarpfactorError:  # refused at once, which is no verdict
            continue
        done = [*done[1 - KEPT :], (pair, case)]
        found = results_of(pair, case, done, some_ways(pair, SPOILT_WAYS))
        again = _again(pair, done) if number % AGAIN == 0 else ()
        yield from (replace(judged(made), half=source.half) for made in chain(found, again))


def _again(pair: TrialPair, done: list[tuple[TrialPair, Case]]) -> Iterator[MadeResult]:
    """Two more registrations of a pair; one that is refused has no verdict."""
    others = (other for other, _ in reversed(done) if _family(other) != _family(pair))
    stranger = next((other for other in others if other.fixed.grid.ndim == pair.fixed.grid.ndim), None)
    ways = list(failing_ways(pair, stranger))
    _, failing = ways[int(draw_of(f"again {pair.name}").integers(len(ways)))]
    for make in (partial(harmless, pair), failing):
        with suppress(WarpfactorError):
            yield make()


def _family(pair: TrialPair) -> str:
    return pair.kind.partition(",")[0]


def judged(made: MadeResult) -> TrialRecord:
    """A result with its verdict."""
    with limited_threads(
        1
    ):  # as its registration: threads that wait for each other take the processor from other parts
        checks = examine(made.case).checks
    return record_of(made, checks)


def record_of(made: MadeResult, checks: tuple[Check, ...]) -> TrialRecord:
    """What is kept of a result and its checks."""
    level = max((check.level for check in checks), key=RANK.__getitem__).replace("grey", "green")
    return TrialRecord(
        pair=made.pair,
        kind=made.kind,
        how=made.how,
        score=made.score if math.isfinite(made.score) else None,
        better=made.better,
        meant=made.meant,
        level=level,
        problems=tuple(check.code for check in checks if RANK[check.level]),
        figures={f"{check.code}.{name}": value for check in checks for name, value in _figures(check)},
    )


def _figures(check: Check) -> Iterator[tuple[str, Any]]:
    """The numbers among the facts of a check."""
    for name, value in check.facts.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value
