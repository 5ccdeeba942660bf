"""What a cohort survives: workers killed at random, a scheduler that dies and comes back, a disk that is full.

    python -m warpfactor.bench.faults -o faults --jobs 200 --kills 20 --disk small

Small phantoms are registered twice: calmly, and on a Dask scheduler and workers that were started by hand. Meanwhile
workers are killed with signal 9, the scheduler is killed and started again, and the disk of the results is filled for
some seconds. Then every result must be there, the same bit for bit (times and memory aside), and none may have been
written twice.

The folder of `--disk` is filled to the last byte, so it must be a file system of its own, for instance
`mount -t tmpfs -o size=300m tmpfs small`; without it no disk is filled.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import warpfactor as wf
from warpfactor.cohort import CohortEvent, EngineSettings, JobOptions
from warpfactor.cohort.job import POSTPONED
from warpfactor.show.report.summary import RESULT

SHAPE = (24, 26, 24)
QUICK = {
    "linear.levels": [2],
    "linear.iterations": [3],
    "linear.starts": ["identity"],
    "deformable.levels": [2, 1],
    "deformable.iterations": [20, 10],
}
FULL_S = 20.0  # for which the disk stays full
_PASSING = ("seconds", "peak_memory_mb", "modified_ns", "path_from_result")  # what two runs need not share


@dataclass
class Accidents:
    """What was done to a cluster, and what came of it.

    Attributes:
        kills: workers that were killed.
        restarts: of the scheduler.
        fills: of the disk.
        written: by row, the result.json files that were seen; more than one if it was written twice.
    """

    kills: int = 0
    restarts: int = 0
    fills: int = 0
    written: dict[str, set[tuple[int, int]]] = field(default_factory=dict)

    def twice(self) -> list[str]:
        """Rows whose result was written more than once."""
        return sorted(name for name, seen in self.written.items() if len(seen) > 1)


def write_people(folder: Path, count: int) -> list[dict[str, Any]]:
    """Rows of phantoms, each bent in its own way, and their files."""
    base = wf.phantom.phantom(SHAPE, seed=0)
    grid = wf.Grid.from_spacing(SHAPE)
    image = wf.Image(base.moving[None], grid)
    wf.write_image(image, folder / "template.nii.gz", force=True)
    rows = []
    for number in range(count):
        warp = wf.Warp(wf.phantom.phantom(SHAPE, displacement_vox=1.5, seed=number).displacement, grid)
        path = folder / f"p{number:03d}.nii.gz"
        wf.write_image(warp.resample(image, grid), path, force=True)
        rows.append({"fixed": folder / "template.nii.gz", "moving": path})
    return rows


class HandMadeCluster:
    """A scheduler and a nanny with workers, as processes that can be killed."""

    def __init__(self, workers: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.workers = workers
        self._scheduler = self._start_scheduler()
        self._nanny = self._start_nanny()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def kill_a_worker(self, chance: random.Random) -> bool:
        """Kill one of the worker processes; False if there is none at the moment."""
        import psutil

        with contextlib.suppress(psutil.Error):
            found = [
                process
                for process in psutil.Process(self._nanny.pid).children(recursive=True)
                if any("spawn_main" in word for word in process.cmdline())
            ]
            if found:
                chance.choice(found).send_signal(signal.SIGKILL)
                return True
        return False

    def restart_scheduler(self) -> None:
        """Kill the scheduler and start one at the same address; workers that gave up are started again, too."""
        self._scheduler.kill()
        self._scheduler.wait()
        _end(self._nanny)
        self._scheduler = self._start_scheduler()
        self._nanny = self._start_nanny()

    def mend(self) -> None:
        """Start workers again if all of them are gone, as the keeper of a cluster would."""
        if self._nanny.poll() is not None:
            self._nanny = self._start_nanny()

    def close(self) -> None:
        _end(self._nanny)
        _end(self._scheduler)

    def _start_scheduler(self) -> subprocess.Popen[bytes]:
        return _start("scheduler", "--port", str(self.port), "--no-dashboard")

    def _start_nanny(self) -> subprocess.Popen[bytes]:
        return _start("worker", self.address, "--nworkers", str(self.workers), "--nthreads", "1", "--no-dashboard")


def disturb(cluster: HandMadeCluster, output: Path, found: Accidents, plan: Accidents, ended: threading.Event) -> None:
    """Kill workers at random moments, fill the disk after a quarter of them and restart the scheduler after half."""
    chance, seen = random.Random(1), 0
    while not ended.wait(chance.uniform(0.5, 2.0)):
        finished = sum(1 for _ in output.glob("*/result.json"))
        if finished > seen:  # so the workers are at work; one that is killed while it starts is given up by its nanny
            if found.kills < plan.kills and cluster.kill_a_worker(chance):
                found.kills, seen = found.kills + 1, finished
            if found.fills < plan.fills and found.kills * 4 >= plan.kills:
                found.fills += 1
                with full_disk(output):
                    ended.wait(FULL_S)
            if found.restarts < plan.restarts and found.kills * 2 >= plan.kills:
                cluster.restart_scheduler()
                found.restarts += 1
        cluster.mend()


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Fill the file system of a folder for the duration of a block."""
    ballast = folder / ".ballast"
    try:
        with ballast.open("wb", buffering=0) as stream:
            for size in (1 << 20, 1 << 10, 1):
                with contextlib.suppress(OSError):  # no space left
                    while stream.write(bytes(size)):
                        pass
        yield
    finally:
        ballast.unlink(missing_ok=True)


def observe(output: Path, found: Accidents, ended: threading.Event) -> None:
    """Note every result.json that appears."""
    while not ended.wait(0.05):
        for path in output.glob("*/result.json"):
            with contextlib.suppress(OSError):
                seen = path.stat()
                found.written.setdefault(path.parent.name, set()).add((seen.st_ino, seen.st_mtime_ns))


def differing(calm: Path, disturbed: Path) -> list[str]:
    """Files of a calm run that the disturbed one lacks, or that differ; a result.json in more than time and memory."""
    return [
        str(path.relative_to(calm))
        for path in sorted(calm.glob("p*/*"))
        if not _alike(path, disturbed / path.relative_to(calm))
    ]


def _alike(path: Path, other: Path) -> bool:
    if not other.is_file():
        return False
    if path.name == RESULT:
        return bool(_lasting(json.loads(path.read_bytes())) == _lasting(json.loads(other.read_bytes())))
    return path.read_bytes() == other.read_bytes()


def _lasting(entries: Any) -> Any:
    """What is the same in every run."""
    if isinstance(entries, dict):
        return {name: _lasting(value) for name, value in entries.items() if name not in _PASSING}
    return [_lasting(each) for each in entries] if isinstance(entries, list) else entries


@contextlib.contextmanager
def accidents(cluster: HandMadeCluster, output: Path, plan: Accidents) -> Iterator[Accidents]:
    """Disturb a cluster for the duration of a block; what was done to it."""
    found, ended = Accidents(), threading.Event()
    threads = [
        threading.Thread(target=disturb, args=(cluster, output, found, plan, ended)),
        threading.Thread(target=observe, args=(output, found, ended)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def run_faults(
    folder: Path, *, jobs: int, kills: int, restarts: int, disk: Path | None = None, workers: int = 2
) -> dict[str, Any]:
    """Run a cohort calmly and with accidents, and compare.

    Args:
        folder: for everything that is written.
        jobs: number of rows.
        kills: of workers.
        restarts: of the scheduler.
        disk: folder on a file system of its own, which is filled once.
        workers: at once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = write_people(folder, jobs)
    options = JobOptions(report=False)
    calm, disturbed = folder / "calm", (disk or folder) / "disturbed"
    wf.cohort.run(rows, calm, overrides=QUICK, options=options, engine=EngineSettings(workers=workers))
    cluster, events = HandMadeCluster(workers), list[CohortEvent]()
    try:
        place = EngineSettings(scheduler=cluster.address, patience_s=600)
        _wait_for(cluster.address)
        with accidents(cluster, disturbed, Accidents(kills, restarts, int(disk is not None))) as found:
            frame = wf.cohort.run(rows, disturbed, overrides=QUICK, options=options, engine=place, watch=events.append)
    finally:
        cluster.close()
    return {
        "rows": jobs,
        "done": int((frame["state"] == "done").sum()),
        "kills": found.kills,
        "scheduler restarts": found.restarts,
        "disk filled": found.fills,
        "rows postponed": sum(event.outcome is not None and event.outcome.state == POSTPONED for event in events),
        "written twice": found.twice(),
        "differing files": differing(calm, disturbed),
        "left behind": [path.name for path in disturbed.glob(".*-p*")],
    }


def _wait_for(address: str, patience_s: float = 60.0) -> None:
    host, port = address.removeprefix("tcp://").split(":")
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.2)


def _start(command: str, *arguments: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", f"distributed.cli.dask_{command}", *arguments]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children."""
    import psutil

    with contextlib.suppress(psutil.Error):
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        for each in family:
            with contextlib.suppress(psutil.Error):
                each.kill()
    process.wait()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=1)
    parser.add_argument("--disk", type=Path, help="folder on a small file system of its own, which is filled once")
    given = parser.parse_args()
    found = run_faults(given.output, jobs=given.jobs, kills=given.kills, restarts=given.restarts, disk=given.disk)
    for name, value in found.items():
        sys.stdout.write(f"{name:20} {value}\n")
    good = found["done"] == found["rows"] and not found["written twice"] and not found["differing files"]
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
