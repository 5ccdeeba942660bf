"""Many registrations in one process, in threads and in forked children: memory, descriptors and threads stay flat.

    python tests/attack/soak.py --runs 1000 --threaded 200 --forked 200

Small phantoms are registered with few iterations; every tenth result is saved with its report. What a process holds is
noted after every run. Growth is the mean of the last fifth of the runs over that of the second fifth; the first fifth
is left out, in which caches fill. The last line is JSON; the exit code is 1 if anything grew.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import warpfactor as wf

SHAPES = ((24, 26, 24), (20, 30, 24), (1, 40, 44))
QUICK = {
    "linear.starts": ["identity"],
    "linear.iterations": [4],
    "linear.levels": [2],
    "deformable.iterations": [4, 3, 2],
}
MOST_GROWTH = 0.02
EVERY = 10  # of the results are saved
WORKERS = 4


def held() -> tuple[int, int, int]:
    """Resident bytes, open descriptors and threads of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    status = Path("/proc/self/status").read_text()
    threads = int(next(line for line in status.splitlines() if line.startswith("Threads:")).split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(list(Path("/proc/self/fd").iterdir())), threads


def pairs() -> list[tuple[Any, Any]]:
    made = [wf.phantom.phantom(shape, seed=seed, displacement_vox=1.5) for seed, shape in enumerate(SHAPES)]
    grids = [wf.Grid.from_spacing(shape[1:] if shape[0] == 1 else shape, 2.0) for shape in SHAPES]
    return [(wf.Image(m.fixed[None], g), wf.Image(m.moving[None], g)) for m, g in zip(made, grids, strict=True)]


def run_one(number: int, images: list[tuple[Any, Any]], folder: Path) -> None:
    """One registration; every tenth is saved, over what was saved before."""
    recipe = wf.recipe("default").replace(QUICK)
    result = wf.register(*images[number % len(images)], recipe=recipe, threads=1)
    if number % EVERY == 0:
        result.save(folder / f"out{threading.get_ident()}", force=True)


def growth(notes: list[tuple[int, int, int]]) -> dict[str, Any]:
    """How much what was held grew, as a share; and the figures at the two ends."""
    values = np.array(notes, dtype=np.float64)
    fifth = max(1, len(values) // 5)
    first, last = values[fifth : 2 * fifth].mean(axis=0), values[-fifth:].mean(axis=0)
    names = ("memory", "descriptors", "threads")
    found = {name: round(float(b / a - 1), 4) for name, a, b in zip(names, first, last, strict=True)}
    return {**found, "runs": len(values), "memory_mb": [round(float(x[0] / 1e6), 1) for x in (first, last)]}


def in_one_process(runs: int, folder: Path) -> dict[str, Any]:
    images, notes = pairs(), []
    for number in range(runs):
        run_one(number, images, folder)
        notes.append(held())
    return growth(notes)


def in_threads(runs: int, folder: Path) -> dict[str, Any]:
    """Several threads share one process; what it holds is noted as runs end."""
    images, notes, lock = pairs(), [], threading.Lock()

    def work(number: int) -> None:
        run_one(number, images, folder)
        with lock:
            notes.append(held())

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(runs)))
    return growth(notes)


def in_children(runs: int, folder: Path) -> list[dict[str, Any]]:
    """Forked children, after the parent has computed."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def work(child: int) -> None:
        place = folder / f"child{child}"
        place.mkdir()
        queue.put(in_one_process(runs // WORKERS, place))

    children = [context.Process(target=work, args=(child,)) for child in range(WORKERS)]
    for child in children:
        child.start()
    found = [queue.get() for _ in children]
    for child in children:
        child.join()
    return [{**each, "exit": child.exitcode} for each, child in zip(found, children, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="Runs in one process; 0 for none.")
    parser.add_argument("--threaded", type=int, default=200, help="Runs in four threads.")
    parser.add_argument("--forked", type=int, default=200, help="Runs in four forked children.")
    given = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.runs:
            found["process"] = [in_one_process(given.runs, folder)]
        if given.threaded:
            found["threads"] = [in_threads(given.threaded, folder)]
        if given.forked:
            run_one(0, pairs(), folder)
            found["children"] = in_children(given.forked, folder)
    grown = [
        f"{kind}: {name} {each[name]:+.1%}"
        for kind, results in found.items()
        for each in results
        for name in ("memory", "descriptors", "threads")
        if each[name] > MOST_GROWTH
    ]
    for line in grown:
        print(line)
    print(json.dumps({**found, "grown": len(grown)}))
    sys.exit(1 if grown else 0)


if __name__ == "__main__":
    main()
