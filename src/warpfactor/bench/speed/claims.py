"""Claims about speed and memory, each with its limit and the measured value.

A claim whose measurement is missing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from warpfactor.bench.score.tables import Table, TableColumn, Value
from warpfactor.bench.speed.plan import WINDOW_SIZE, SpeedJob
from warpfactor.bench.speed.runs import SpeedMeasurement

LARGE_FROM = 256


class Claim(NamedTuple):
    """A limit that a measured value must keep.

    Attributes:
        what: Description of the value.
        measured: The value.
        sign: "<=" or ">=", between the measured value and the limit.
        limit: The limit.
        timed: Whether the value is a time, which other programs on the machine change.
    """

    what: str
    measured: float
    sign: str
    limit: float
    timed: bool = True

    def verdict(self, *, busy: bool) -> str:
        """ "yes", "no", or "not judged" for times on a busy machine."""
        if busy and self.timed:
            return "not judged"
        return "yes" if (self.measured <= self.limit if self.sign == "<=" else self.measured >= self.limit) else "no"


def find(
    measurements: Sequence[SpeedMeasurement], place: str, metric: str, optimizer: str = "", *, kernels: str = "numba"
) -> SpeedMeasurement | None:
    """The successful measurement of an iteration, or None."""
    wanted = (place, metric, optimizer, kernels)
    for m in measurements:
        usable = m.job.kind in ("iteration", "greedy") and not m.failure
        if usable and (m.job.place, m.job.metric, m.job.optimizer, kernels_of(m.job)) == wanted:
            return m
    return None


def is_own_iteration(measurement: SpeedMeasurement) -> bool:
    """Whether this is an iteration of our own compiled kernels."""
    return measurement.job.kind == "iteration" and measurement.job.backend == "numba"


def kernels_of(job: SpeedJob) -> str:
    """Whose kernels an iteration uses: "numba", "reference" or "greedy"."""
    return "greedy" if job.kind == "greedy" else job.backend


def claim_table(measurements: Sequence[SpeedMeasurement], *, busy: bool = False) -> Table:
    """One row per claim, and whether it holds.

    Args:
        measurements: Results of the benchmark.
        busy: Whether other programs were running; claims about time are then not judged.
    """
    columns = (
        TableColumn("claim", "claim"),
        TableColumn("measured", "measured", 2),
        TableColumn("limit", "must be"),
        TableColumn("holds", "holds"),
    )
    sources: tuple[Callable[[Sequence[SpeedMeasurement]], Iterator[Claim]], ...] = (
        _time,
        _memory,
        _sizes,
        _windows,
        _start,
        _pairs,
    )
    rows: list[dict[str, Value]] = [
        {
            "claim": claim.what,
            "measured": claim.measured,
            "limit": f"{claim.sign} {claim.limit:g}",
            "holds": claim.verdict(busy=busy),
        }
        for source in sources
        for claim in source(measurements)
    ]
    return Table("claims", "Limits", columns, tuple(rows))


def _time(measurements: Sequence[SpeedMeasurement]) -> Iterator[Claim]:
    ours = find(measurements, "192^3", "lncc", "lm")
    slow = find(measurements, "192^3", "lncc", "lm", kernels="reference")
    if ours is None:
        return
    yield Claim("LNCC and LM at 192^3, in scaled copies", ours.values["copies"], "<=", 50)
    if slow is not None:
        ratio = slow.values["seconds"] / ours.values["seconds"]
        yield Claim("LNCC and LM at 192^3, speed-up over PyTorch", ratio, ">=", 15)


def _memory(measurements: Sequence[SpeedMeasurement]) -> Iterator[Claim]:
    for m in measurements:
        job = m.job
        if not is_own_iteration(m) or job.optimizer != "lm" or job.metric != "lncc" or job.size < LARGE_FROM:
            continue
        lm_bytes = m.values.get("peak_bytes")
        if m.failure or lm_bytes is None:
            continue
        yield Claim(f"LM at {job.size}^3, bytes per voxel", lm_bytes / m.values["voxels"], "<=", 40, timed=False)
        adam = find(measurements, job.place, "lncc", "adam")
        if adam is not None:
            adam_bytes = adam.values["peak_bytes"]
            per_voxel, saved = adam_bytes / m.values["voxels"], 100 * (1 - lm_bytes / adam_bytes)
            yield Claim(f"Adam at {job.size}^3, bytes per voxel", per_voxel, "<=", 64, timed=False)
            yield Claim(f"memory that LM saves at {job.size}^3, %", saved, ">=", 35, timed=False)


def _sizes(measurements: Sequence[SpeedMeasurement]) -> Iterator[Claim]:
    times = _alternating(measurements, "sizes")
    if len(times) > 1:
        what = f"LNCC and LM from {min(times)}^3 to {max(times)}^3, difference in time per voxel, %"
        yield Claim(what, _spread(times), "<=", 20)


def _windows(measurements: Sequence[SpeedMeasurement]) -> Iterator[Claim]:
    times = _alternating(measurements, "windows", size=WINDOW_SIZE)
    if len(times) > 1:
        what = f"LNCC windows {min(times)} to {max(times)} at {WINDOW_SIZE}^3, difference in time, %"
        yield Claim(what, _spread(times), "<=", 15)


def _alternating(measurements: Sequence[SpeedMeasurement], kind: str, size: int = 0) -> dict[int, float]:
    """Nanoseconds per voxel by window or size."""
    values = next((m.values for m in measurements if (m.job.kind, m.job.size) == (kind, size)), {})
    return {int(value): ns for value, ns in values.items()}


def _spread(times: dict[int, float]) -> float:
    return 100 * (max(times.values()) / min(times.values()) - 1)


def _start(measurements: Sequence[SpeedMeasurement]) -> Iterator[Claim]:
    values = next((m.values for m in measurements if m.job.kind == "start"), {})
    limits = {"import_seconds": ("import", 2), "load_seconds": ("load kernels", 1), "compile_seconds": ("compile", 60)}
    for name, (what, limit) in limits.items():
        if name in values:
            yield Claim(f"{what}, seconds", values[name], "<=", limit)


def _pairs(measurements: Sequence[SpeedMeasurement]) -> Iterator[Claim]:
    pairs = {(m.job.method, m.job.size): m.values for m in measurements if m.job.kind == "pair" and m.values}
    greedy = pairs.get(("greedy", 0))
    for method, limit in (("default", 3), ("fast", 6)):
        ours = pairs.get((method, 0))
        if ours is not None and greedy is not None:
            ratio = greedy["seconds"] / ours["seconds"]
            yield Claim(f"{method} from files to files, speed-up over Greedy", ratio, ">=", limit)
    large = pairs.get(("default", 512))
    if large is not None and large["peak_bytes"] is not None:
        yield Claim("512^3 from files to files, GiB", large["peak_bytes"] / 2**30, "<=", 8, timed=False)
