"""Kills at random moments: what is left of a command must be complete, old or absent, and the next run tidies up.

    python tests/attack/kills.py --kills 200 --seed 1

Every kind of command is run by a forked child of this process, or (warmup) by a process of its own, and ended by
SIGKILL: half of them at any moment of the run, the others after its first temporary file has appeared. Results are bit
for bit the same in every run, so what a folder holds is compared with what it may hold. After a few kills the command
runs to its end, and nothing but its output may be there. The last line is the count, as JSON; the exit code is 1 if
anything failed.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import warpfactor as wf
from warpfactor.cli.app import main as command_line
from warpfactor.registration.folder import read_result

SHAPE = (1, 40, 44)  # a slice: what is written, and how, does not depend on the size
EXACT = (".nii.gz", ".mat")  # files that are the same in every run
QUICK = ("--set", "linear.starts=identity", "--set", "deformable.iterations=8,6,4", "--threads", "1")
PER_ROUND = 5  # kills between two runs that end by themselves
LONGEST_S = 600
COMPILING_S = 12.0  # of a warmup, in which it is killed; compiling takes longer


@dataclass(frozen=True)
class Target:
    """What is killed.

    Attributes:
        name: for the count.
        run: what the child does, in its working folder.
        reset: puts the old state of the outputs in place.
        outputs: names of files and folders in the working folder that the command writes.
        spawned: arguments of a process of its own, instead of a forked child.
    """

    name: str
    run: Callable[[], None]
    reset: Callable[[Path], None]
    outputs: Sequence[str]
    spawned: Sequence[str] = ()


@dataclass
class Found:
    """What was left behind, and what of it is wrong."""

    states: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    late: int = 0  # children that had ended before the signal
    finished: int = 0


def digest(place: Path) -> str:
    """Of a file, or of those files in a folder that are the same in every run."""
    if not place.is_dir():
        return hashlib.sha256(place.read_bytes()).hexdigest()
    files = sorted(path for path in place.rglob("*") if path.is_file() and path.name.endswith(EXACT))
    return hashlib.sha256("".join(f"{p.relative_to(place)}{digest(p)}" for p in files).encode()).hexdigest()


def is_complete(place: Path) -> bool:
    """Whether a result folder can be read, with every file that it names, and a report with an end."""
    if not place.is_dir():
        return True
    saved = read_result(place)
    named = [name for name in saved.entries["files"].values() if isinstance(name, str)]
    there = all((place / name).exists() for name in named)
    page = place / "report.html"
    return there and saved.warped is not None and page.read_text(encoding="utf-8").rstrip().endswith("</html>")


def start(target: Target, folder: Path) -> int:
    """The process id of a child that runs the target."""
    if target.spawned:
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([sys.executable, *target.spawned], cwd=folder, **silent).pid
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.chdir(folder)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        target.run()
        status = 0
    except SystemExit as error:
        status = int(error.code or 0)
    finally:
        os._exit(status)


def ended(child: int, seconds: float) -> int | None:
    """Wait for a child; its status, or None if it still runs."""
    until = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done or time.monotonic() > until:
            return status if done else None
        time.sleep(0.002)


def hidden(folder: Path) -> list[str]:
    """Temporary entries in a folder and in the folders in it."""
    patterns = (".*", "*/.*", "*/unfinished-*", "cache/*/unfinished-*")
    while True:
        try:
            return sorted(str(path.relative_to(folder)) for pattern in patterns for path in folder.glob(pattern))
        except FileNotFoundError:  # a folder was moved while it was looked at
            continue


def writes(folder: Path) -> bool:
    return any(not name.endswith(".lock") for name in hidden(folder))


def kill_once(target: Target, folder: Path, seconds: float, draw: random.Random, found: Found) -> None:
    """Start the target and end it at a random moment."""
    child = start(target, folder)
    status = None
    if draw.random() < 0.5 or target.spawned:
        status = ended(child, draw.uniform(0, 1.05 * seconds))
    else:
        began = time.monotonic()
        while status is None and not writes(folder) and time.monotonic() - began < 5 * seconds + 5:
            status = ended(child, 0)
        if status is None:
            status = ended(child, draw.uniform(0, 0.4 * seconds))
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found.kills[target.name] += 1
    else:
        found.late += 1


def inspect(target: Target, folder: Path, known: dict[str, dict[str, str]], found: Found) -> None:
    """Compare what is left with what may be left."""
    for name in target.outputs:
        place = folder / name
        state = "absent"
        if place.exists():
            try:
                whole, what = is_complete(place), digest(place)
            except Exception as error:  # a file that cannot be read is the failure that is looked for
                found.failures.append(f"{target.name}: {name}: {type(error).__name__}: {error}")
                continue
            state = next((state for state, known_one in known[name].items() if what == known_one), "neither")
            state = state if whole else "incomplete"
        found.states[target.name, state] += 1
        if state in ("neither", "incomplete"):
            found.failures.append(f"{target.name}: {name} is {state}")


def finish(target: Target, folder: Path, before: set[str], found: Found) -> None:
    """Run the target to its end: it succeeds, and nothing but its outputs is new."""
    status = ended(start(target, folder), LONGEST_S)
    found.finished += 1
    if status != 0:
        found.failures.append(f"{target.name}: the next run ended with {status}")
    left = {path.name for path in folder.iterdir()} - before - set(target.outputs)
    inside = hidden(folder)
    if left or inside:
        found.failures.append(f"{target.name}: left behind: {sorted(left)} {inside}")


def age_unfinished(folder: Path) -> None:
    """Make unfinished kernels older than the ten minutes after which they are removed."""
    for path in folder.glob("cache/*/unfinished-*"):
        os.utime(path, (time.time() - 3600,) * 2)


def targets(folder: Path, repeats: int) -> list[Target]:
    """Everything that is killed; the files it needs are written into the folder."""
    for name, seed in (("fixed", 0), ("moving", 0), ("other", 1)):
        made = wf.phantom.phantom(SHAPE, seed=seed)
        data = made.fixed if name == "fixed" else made.moving
        wf.write_image(wf.Image(data[None], wf.Grid.from_spacing(SHAPE[1:], 2.0)), folder / f"{name}.nii.gz")

    def call(*arguments: str) -> Callable[[], None]:
        return lambda: command_line(list(arguments))

    def register(moving: str, output: str) -> Callable[[], None]:
        return call("register", "fixed.nii.gz", f"{moving}.nii.gz", "-o", output, "--force", "--quiet", *QUICK)

    def loop() -> None:
        recipe = wf.recipe("default").replace({"linear.starts": ["identity"], "deformable.iterations": [8, 6, 4]})
        for name in loops:
            wf.register("fixed.nii.gz", "moving.nii.gz", recipe=recipe, threads=1).save(name, force=True)

    def absent(*names: str) -> Callable[[Path], None]:
        return lambda place: [_remove(place / name) for name in names] and None

    def copied(source: str, *names: str) -> Callable[[Path], None]:
        def reset(place: Path) -> None:
            for name in names:
                _remove(place / name)
                whole = (place / source).is_dir()
                (shutil.copytree if whole else shutil.copy2)(place / source, place / name)

        return reset

    loops = [f"loop{number}" for number in range(repeats)]
    applied = ("apply", "other.nii.gz", "--result", "kept", "-o", "applied.nii.gz", "--force", "--quiet")
    return [
        Target("register --force", register("moving", "out"), copied("kept_old", "out"), ["out"]),
        Target("loop", loop, absent(*loops), loops),
        Target("apply", call(*applied), absent("applied.nii.gz"), ["applied.nii.gz"]),
        Target("register", register("moving", "out"), absent("out"), ["out"]),
        Target("loop, force", loop, copied("kept_old", *loops), loops),
        Target("apply --force", call(*applied), copied("applied_old.nii.gz", "applied.nii.gz"), ["applied.nii.gz"]),
        Target("report", call("report", "out", "--quiet"), copied("kept", "out"), ["out"]),
    ]


def warmup_target() -> Target:
    """Kernels that are compiled into an empty cache, by a process that has none of them."""
    program = "import warpfactor as wf\nfrom warpfactor.cli.app import main\nmain(['warmup', '--quiet'])"
    return Target("warmup", lambda: None, lambda place: None, ["cache"], ["-c", program])


def _remove(place: Path) -> None:
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)


def prepare(folder: Path) -> None:
    """The results that are old when others are written: of another moving image."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        recipe = wf.recipe("default").replace({"linear.starts": ["identity"], "deformable.iterations": [8, 6, 4]})
        for moving, output in (("other", "kept_old"), ("moving", "kept")):
            wf.register("fixed.nii.gz", f"{moving}.nii.gz", recipe=recipe, threads=1).save(output)
        shutil.copy2("other.nii.gz", "applied_old.nii.gz")
        wf.write_image(wf.read_result("kept").apply("other.nii.gz"), "applied_new.nii.gz")
    finally:
        os.chdir(here)


def attack(kills: int, seed: int, folder: Path, *, warmups: int, per_round: int = PER_ROUND, repeats: int = 3) -> Found:
    """Kill every target in turn, `kills` times in all."""
    draw, found = random.Random(seed), Found()
    chosen = targets(folder, repeats)
    prepare(folder)
    old, new = digest(folder / "kept_old"), digest(folder / "kept")
    files = {"old": digest(folder / "applied_old.nii.gz"), "new": digest(folder / "applied_new.nii.gz")}
    known = {name: {"old": old, "new": new} for target in chosen for name in target.outputs}
    known["applied.nii.gz"] = files
    while sum(found.kills.values()) < kills - warmups:
        target = chosen[found.finished % len(chosen)]
        for other in chosen:
            for name in other.outputs:
                _remove(folder / name)
        before = {path.name for path in folder.iterdir()}
        target.reset(folder)
        began = time.monotonic()
        finish(target, folder, before, found)
        seconds = time.monotonic() - began
        inspect(target, folder, known, found)
        for _ in range(min(per_round, kills - warmups - sum(found.kills.values()))):
            target.reset(folder)
            kill_once(target, folder, seconds, draw, found)
            inspect(target, folder, known, found)
        finish(target, folder, before, found)
        print(f"{target.name}: {total_of(found)}", file=sys.stderr, flush=True)
    if warmups:
        _attack_warmup(warmups, folder, draw, found)
    return found


def _attack_warmup(kills: int, folder: Path, draw: random.Random, found: Found) -> None:
    """Kills while kernels are compiled and stored; every next run goes on with what is there."""
    target, before = warmup_target(), {path.name for path in folder.iterdir()}
    os.environ["NUMBA_CACHE_DIR"] = str(folder / "cache")
    for _ in range(kills):
        kill_once(target, folder, COMPILING_S, draw, found)
        found.states[target.name, "unfinished kernels" if hidden(folder) else "whole kernels"] += 1
    age_unfinished(folder)
    finish(target, folder, before, found)
    del os.environ["NUMBA_CACHE_DIR"]


def total_of(found: Found) -> str:
    """The count so far, as JSON."""
    total = {"kills": sum(found.kills.values()), "late": found.late, "finished": found.finished}
    return json.dumps({**total, "by_target": dict(found.kills), "failures": len(found.failures)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warmups", type=int, default=10, help="How many of the kills end a warmup.")
    parser.add_argument("--per-round", type=int, default=PER_ROUND, help="Kills between two runs that end.")
    parser.add_argument("--repeats", type=int, default=3, help="Registrations of a loop.")
    given = parser.parse_args()
    options = {"warmups": given.warmups, "per_round": given.per_round, "repeats": given.repeats}
    with tempfile.TemporaryDirectory() as name:
        found = attack(given.kills, given.seed, Path(name), **options)
    for (target, state), count in sorted(found.states.items()):
        print(f"{target}: {state} {count}")
    for failure in found.failures:
        print(failure)
    print(total_of(found))
    sys.exit(1 if found.failures else 0)


if __name__ == "__main__":
    main()
