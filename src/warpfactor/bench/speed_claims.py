"""What must hold of speed and memory, next to what was measured; a claim whose measurement is missing is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from warpfactor.bench.speed import Measurement
from warpfactor.bench.speed_job import WINDOW_SIZE
from warpfactor.bench.speed_tables import find, is_plain, place_of
from warpfactor.bench.tables import Column, Table

FLAT_FROM = 128
LARGE_FROM = 256
Claim = tuple[str, float, str, float]  # what, measured, "<=" or ">=", limit


def claim_table(measurements: Sequence[Measurement]) -> Table:
    """One claim per row, and whether it holds."""
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
    rows = tuple(
        {
            "claim": what,
            "measured": measured,
            "limit": f"{sign} {limit:g}",
            "holds": "yes" if (measured <= limit if sign == "<=" else measured >= limit) else "no",
        }
        for claim in claims
        for what, measured, sign, limit in claim(measurements)
    )
    return Table("claims", "What must hold", columns, rows)


def _time(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    ours = find(measurements, "192^3", "lncc", "lm")
    slow = find(measurements, "192^3", "lncc", "lm", kernels="reference")
    if ours is None:
        return
    yield "LNCC and LM at 192^3, in scale-copies", ours.figures["copies"], "<=", 50
    if slow is not None:
        ratio = slow.figures["seconds"] / ours.figures["seconds"]
        yield "LNCC and LM at 192^3, times faster than PyTorch", ratio, ">=", 15


def _memory(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    for m in measurements:
        job = m.job
        if not is_plain(m) or job.optimizer != "lm" or job.metric != "lncc" or job.size < LARGE_FROM or m.failure:
            continue
        adam = find(measurements, place_of(job), "lncc", "adam")
        lm_bytes = m.figures["peak_bytes"]
        if lm_bytes is None:
            continue
        yield f"LM at {job.size}^3, bytes a voxel", lm_bytes / m.figures["voxels"], "<=", 40
        if adam is not None:
            adam_bytes = adam.figures["peak_bytes"]
            yield f"Adam at {job.size}^3, bytes a voxel", adam_bytes / m.figures["voxels"], "<=", 64
            yield f"memory that LM saves at {job.size}^3, %", 100 * (1 - lm_bytes / adam_bytes), ">=", 35


def _flat(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    chosen = [
        m.figures["seconds"] / m.figures["voxels"]
        for m in measurements
        if is_plain(m) and (m.job.metric, m.job.optimizer) == ("lncc", "lm") and m.job.size >= FLAT_FROM and m.figures
    ]
    if len(chosen) > 1:
        spread = 100 * (max(chosen) / min(chosen) - 1)
        yield f"LNCC and LM from {FLAT_FROM}^3 on, change of the time per voxel, %", spread, "<=", 20


def _windows(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    chosen = [m.figures["copies"] for m in measurements if m.job.window and m.job.size == WINDOW_SIZE and m.figures]
    if len(chosen) > 1:
        yield (
            f"LNCC windows 3 to 15 at {WINDOW_SIZE}^3, change of the time, %",
            100 * (max(chosen) / min(chosen) - 1),
            "<=",
            15,
        )


def _start(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    figures = next((m.figures for m in measurements if m.job.kind == "start"), {})
    limits = {"import_seconds": ("import", 2), "load_seconds": ("load kernels", 1), "compile_seconds": ("compile", 60)}
    for name, (what, limit) in limits.items():
        if name in figures:
            yield f"{what}, seconds", figures[name], "<=", limit


def _pairs(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    pairs = {(m.job.method, m.job.size): m.figures for m in measurements if m.job.kind == "pair" and m.figures}
    greedy = pairs.get(("greedy", 0))
    for method, limit in (("default", 3), ("fast", 6)):
        ours = pairs.get((method, 0))
        if ours is not None and greedy is not None:
            yield f"{method} end to end, times faster than Greedy", greedy["seconds"] / ours["seconds"], ">=", limit
    large = pairs.get(("default", 512))
    if large is not None and large["peak_bytes"] is not None:
        yield "512^3 end to end, GiB", large["peak_bytes"] / 2**30, "<=", 8
