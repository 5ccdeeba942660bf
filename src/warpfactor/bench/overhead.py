"""What a cohort costs besides its registrations: the same ones in a bare loop of as many processes.

    python -m warpfactor.bench.overhead -o overhead --jobs 100 --size 64 --rounds 3

Each round runs the loop and the cohort, in turn, into fresh folders, and starts new processes for both, reports
included. What is given is the ratio of wall time and the ratio of processor time; on a busy machine the second one is
to be trusted, and the first one only over several rounds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import warpfactor as wf
from warpfactor.bench.run.meter import ResourceUse, measured
from warpfactor.cohort import EngineSettings

WORKERS = 2


def write_images(folder: Path, count: int, size: int) -> list[dict[str, Any]]:
    """Rows of phantoms to one template."""
    shape = (size, size, size)
    made = wf.phantom.phantom(shape, seed=0)
    grid = wf.Grid.from_spacing(shape)
    image = wf.Image(made.moving[None], grid)
    wf.write_image(image, folder / "template.nii.gz", force=True)
    bent = [wf.Warp(wf.phantom.phantom(shape, seed=seed).displacement, grid).resample(image, grid) for seed in (1, 2)]
    rows = []
    for number in range(count):
        share = number / max(1, count - 1)  # between two people, so that everybody differs and little is computed
        mixed = wf.Image((1 - share) * bent[0].data + share * bent[1].data, grid)
        wf.write_image(mixed, folder / f"p{number:03d}.nii.gz", force=True)
        rows.append({"fixed": folder / "template.nii.gz", "moving": folder / f"p{number:03d}.nii.gz"})
    return rows


def loop(rows: Sequence[dict[str, Any]], output: Path, recipe: str) -> None:
    """Register rows one after the other, as a script would."""
    for row in rows:
        found = wf.register(row["fixed"], row["moving"], recipe=recipe, threads=1)
        found.save(output / Path(row["moving"]).name.split(".")[0])


def run_loop(rows: Sequence[dict[str, Any]], output: Path, recipe: str) -> None:
    """The bare loop in several processes, each with its share of the rows."""
    context = multiprocessing.get_context("spawn")
    parts = [context.Process(target=loop, args=(rows[k::WORKERS], output, recipe)) for k in range(WORKERS)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()


def run_cohort(rows: Sequence[dict[str, Any]], output: Path, recipe: str) -> None:
    """The same as a cohort, its table and page included."""
    wf.cohort.run(list(rows), output, recipe=recipe, engine=EngineSettings(workers=WORKERS))


def run_overhead(folder: Path, *, jobs: int, size: int, rounds: int, recipe: str) -> dict[str, Any]:
    """Ratios of a cohort to a bare loop, a round each, and their medians."""
    rows = write_images(folder, jobs, size)
    found: list[dict[str, float]] = []
    for number in range(rounds):
        kinds: list[tuple[str, Callable[..., None]]] = [("loop", run_loop), ("cohort", run_cohort)]
        seconds = dict[str, ResourceUse]()
        for name, work in kinds if number % 2 == 0 else reversed(kinds):
            output = folder / f"{name}{number}"
            shutil.rmtree(output, ignore_errors=True)
            with measured() as seconds[name]:
                work(rows, output, recipe)
        ours, bare = seconds["cohort"], seconds["loop"]
        ratios = {"wall": ours.wall_s / bare.wall_s, "processor": ours.cpu_s / bare.cpu_s}
        found.append({**ratios, "loop s": bare.wall_s, "cohort s": ours.wall_s})
        sys.stdout.write(f"{json.dumps(found[-1])}\n")
        sys.stdout.flush()
    return {kind: statistics.median(each[kind] for each in found) for kind in ("wall", "processor")}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recipe", default="default")
    given = parser.parse_args()
    ratios = run_overhead(given.output, jobs=given.jobs, size=given.size, rounds=given.rounds, recipe=given.recipe)
    sys.stdout.write("".join(f"median ratio of {kind} time {value:.3f}\n" for kind, value in ratios.items()))


if __name__ == "__main__":
    main()
