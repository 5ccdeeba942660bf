"""What must hold of speed and memory, next to what was measured; a claim whose measurement is missing is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from warpfactor.bench.score.tables import Column, Table, Value
from warpfactor.bench.speed.job import WINDOW_SIZE
from warpfactor.bench.speed.main import Measurement
from warpfactor.bench.speed.tables import find, is_plain, place_of

LARGE_FROM = 256


class Claim(NamedTuple):
    """Something that must hold.

    Attributes:
        sign: "<=" or ">=", of the measured value and the limit.
        timed: whether it is about time, which other work on the machine changes.
    """

    what: str
    measured: float
    sign: str
    limit: float
    timed: bool = True

    def verdict(self, *, busy: bool) -> str:
        if busy and self.timed:
            return "not judged"
        return "yes" if (self.measured <= self.limit if self.sign == "<=" else self.measured >= self.limit) else "no"


def claim_table(measurements: Sequence[Measurement], *, busy: bool = False) -> Table:
    """One claim per row, and whether it holds.

    Args:
        busy: other work was running, so that claims about time are not judged.
    """
    columns = (
        Column("claim", "claim"),
        Column("measured", "measured", 2),
        Column("limit", "must be"),
        Column("holds", "holds"),
    )
    claims: tuple[Callable[[Sequence[Measurement]], Iterator[Claim]], ...] = (
        _time,
        _memory,
        _flat,
        _windows,
        _start,
        _pairs,
    )
    found = [claim for claims_of in claims for claim in claims_of(measurements)]
    rows: list[dict[str, Value]] = [
        {
            "claim": claim.what,
            "measured": claim.measured,
            "limit": f"{claim.sign} {claim.limit:g}",
            "holds": claim.verdict(busy=busy),
        }
        for claim in found
    ]
    return Table("claims", "What must hold", columns, tuple(rows))


def _time(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    ours = find(measurements, "192^3", "lncc", "lm")
    slow = find(measurements, "192^3", "lncc", "lm", kernels="reference")
    if ours is None:
        return
    yield Claim("LNCC and LM at 192^3, in scale-copies", ours.figures["copies"], "<=", 50)
    if slow is not None:
        ratio = slow.figures["seconds"] / ours.figures["seconds"]
        yield Claim("LNCC and LM at 192^3, times faster than PyTorch", ratio, ">=", 15)


def _memory(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    for m in measurements:
        job = m.job
        if not is_plain(m) or job.optimizer != "lm" or job.metric != "lncc" or job.size < LARGE_FROM or m.failure:
            continue
        adam = find(measurements, place_of(job), "lncc", "adam")
        lm_bytes = m.figures["peak_bytes"]
        if lm_bytes is None:
            continue
        yield Claim(f"LM at {job.size}^3, bytes a voxel", lm_bytes / m.figures["voxels"], "<=", 40, timed=False)
        if adam is not None:
            adam_bytes = adam.figures["peak_bytes"]
            saved = 100 * (1 - lm_bytes / adam_bytes)
            yield Claim(f"Adam at {job.size}^3, bytes a voxel", adam_bytes / m.figures["voxels"], "<=", 64, timed=False)
            yield Claim(f"memory that LM saves at {job.size}^3, %", saved, ">=", 35, timed=False)


def _flat(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    sizes = _turns(measurements, "sizes")
    if len(sizes) > 1:
        what = f"LNCC and LM from {min(sizes)}^3 to {max(sizes)}^3, change of the time per voxel, %"
        yield Claim(what, _spread(sizes), "<=", 20)


def _windows(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    windows = _turns(measurements, "windows", size=WINDOW_SIZE)
    if len(windows) > 1:
        what = f"LNCC windows {min(windows)} to {max(windows)} at {WINDOW_SIZE}^3, change of the time, %"
        yield Claim(what, _spread(windows), "<=", 15)


def _turns(measurements: Sequence[Measurement], kind: str, size: int = 0) -> dict[int, float]:
    """Nanoseconds a voxel by window or size."""
    figures = next((m.figures for m in measurements if (m.job.kind, m.job.size) == (kind, size)), {})
    return {int(value): ns for value, ns in figures.items()}


def _spread(times: dict[int, float]) -> float:
    return 100 * (max(times.values()) / min(times.values()) - 1)


def _start(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    figures = next((m.figures for m in measurements if m.job.kind == "start"), {})
    limits = {"import_seconds": ("import", 2), "load_seconds": ("load kernels", 1), "compile_seconds": ("compile", 60)}
    for name, (what, limit) in limits.items():
        if name in figures:
            yield Claim(f"{what}, seconds", figures[name], "<=", limit)


def _pairs(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    pairs = {(m.job.method, m.job.size): m.figures for m in measurements if m.job.kind == "pair" and m.figures}
    greedy = pairs.get(("greedy", 0))
    for method, limit in (("default", 3), ("fast", 6)):
        ours = pairs.get((method, 0))
        if ours is not None and greedy is not None:
            ratio = greedy["seconds"] / ours["seconds"]
            yield Claim(f"{method} end to end, times faster than Greedy", ratio, ">=", limit)
    large = pairs.get(("default", 512))
    if large is not None and large["peak_bytes"] is not None:
        yield Claim("512^3 end to end, GiB", large["peak_bytes"] / 2**30, "<=", 8, timed=False)
