"""The files of `bench speed`: tables as CSV, JSON and Markdown, and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpfactor.bench.run import machine
from warpfactor.bench.score.tables import Table, write_tables
from warpfactor.bench.speed import load as speed_load
from warpfactor.bench.speed.claims import claim_table
from warpfactor.bench.speed.job import Plan
from warpfactor.bench.speed.main import Measurement
from warpfactor.bench.speed.plot import draw
from warpfactor.bench.speed.tables import (
    comparison_table,
    efficiency_table,
    iteration_table,
    pair_table,
    part_table,
    start_table,
    turn_table,
)

NAME = "speed"
NOTES = """\
An iteration is one of the level solver at full resolution, float32 images, one channel, no masks, stop rules off; its
time is the median of so many ("of") after two that do not count. The scale-copy reads and writes three channels of the
same size after every iteration; "copies" is the time of an iteration in units of it. CPU time is that of all threads
together, which other work on the machine changes less.{rounds}

Memory is the high-water mark of a fresh process while a level runs, over what the process held after import and
compilation; the two images themselves (8 bytes a voxel for cubes) are in it. LM, Adam and LM with rejection are the
recipe `paper` (LNCC window 7), default is the recipe of that name (window 5, symmetric force, a heavy-tailed kernel).
Greedy's iteration is the difference of two runs at full resolution, its memory that of its whole run.

What is measured in turn is of one process, in which everything has a turn of three iterations before anything has its
next; the least median of fifteen turns (windows) or seven (sizes) holds.
"""


def tables(measurements: Sequence[Measurement], plan: Plan, *, load: float = 0.0) -> list[Table]:
    """Every table that has rows, the most detailed one first.

    Args:
        load: of other work while it was measured; claims about time are not judged on a busy machine.
    """
    found = [
        iteration_table(measurements),
        *(efficiency_table(measurements, metric) for metric in plan.metrics),
        comparison_table(measurements),
        turn_table(measurements, "windows"),
        turn_table(measurements, "sizes"),
        part_table(measurements),
        pair_table(measurements),
        start_table(measurements),
        claim_table(measurements, busy=speed_load.is_busy(load, plan.threads)),
    ]
    return [table for table in found if table.rows]


def write(measurements: Sequence[Measurement], plan: Plan, folder: Path) -> list[Path]:
    """Write everything; return the files."""
    load = speed_load.highest_load(folder)
    caution = f" {speed_load.sentence(load)}" if speed_load.is_busy(load, plan.threads) else ""
    rounds = f" Everything was measured {plan.rounds} times, in turn; the fastest holds." if plan.rounds > 1 else ""
    notes = (
        f"# Speed and memory\n\n{machine.sentence()}, {plan.threads} threads.{caution}\n\n{NOTES.format(rounds=rounds)}"
    )
    extra = {"machine": machine.describe(), "threads": plan.threads, "load": load}
    written = write_tables(tables(measurements, plan, load=load), folder, NAME, notes=notes, extra=extra)
    picture = draw(measurements, folder / f"{NAME}.png")
    return [*written, *([picture] if picture is not None else [])]
