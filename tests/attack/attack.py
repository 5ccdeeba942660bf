"""Damaged files of every format, read by the readers of the package and by its commands; the long mode is a script.

    python tests/attack/attack.py --cases 20000 --seed 1

A case is a file, or one file of a folder, that was written by the package, damaged once or twice. It must be refused
with an error that has a code, or be read; a command must end with a sentence, or succeed. It must not raise anything
else, take long, end the process, or leave anything behind. What is read must be the original where the format can tell:
after a truncation, and anywhere in a file with checksums. The last line is the count, as JSON; the exit code is 1 if
anything failed.
"""

import argparse
import faulthandler
import json
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from mutations import MUTATIONS, truncate
from subjects import CHECKSUMS, IMAGES, Subject, write_subjects

import warpfactor as wf

LONGEST_S = 120  # a case that takes longer counts as a hang and ends the process with a traceback


def same(one: Any, other: Any) -> bool:
    """Whether two images are equal."""
    return bool(torch.equal(one.data, other.data)) and one.grid == other.grid


def is_wrong(suffix: str, names: list[str], found: Any, good: Any, *, in_payload: bool) -> bool:
    """Whether a damaged file was taken in although its format can tell."""
    if suffix not in IMAGES or same(found, good):
        return False
    checked = suffix in CHECKSUMS and (in_payload or suffix in (".nii.gz", ".png"))
    return checked or names == [truncate.__name__]


def payload_start(raw: bytes, suffix: str) -> int:
    """Where the compressed data of a file begins whose header is text; beyond its end for other files."""
    mark = {".packed.mha": b"LOCAL\n", ".nrrd": b"\n\n"}.get(suffix)
    return len(raw) + 1 if mark is None else raw.index(mark) + len(mark)


def damage(raw: bytes, draw: random.Random) -> tuple[bytes, list[str]]:
    """The bytes after one or two mutations, and their names."""
    names = list[str]()
    for _ in range(draw.choice((1, 1, 2))):
        if raw:
            mutation = draw.choice(MUTATIONS)
            raw = mutation(raw, draw)
            names.append(mutation.__name__)
    return raw, names


def place_damaged(subject: Subject, place: Path, draw: random.Random) -> tuple[Path, bytes, list[str]]:
    """Put a damaged copy of a subject into an empty folder: its path, the bytes that were changed, and how."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    path = place / subject.name
    target, seed = path, subject.seed
    if subject.seed.is_dir():
        shutil.copytree(subject.seed, path)
        files = sorted(file for file in subject.seed.rglob("*") if file.is_file() and file.suffix != ".html")
        seed = draw.choice(files)
        target = path / seed.relative_to(subject.seed)
    raw, names = damage(seed.read_bytes(), draw)
    target.write_bytes(raw)
    return path, raw, names


def attack(cases: int, seed: int, folder: Path) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Outcomes by subject, and what failed."""
    draw = random.Random(seed)
    subjects = write_subjects(folder)
    good = {name: subjects[name].read(subjects[name].seed) for name in IMAGES}
    names, weights = sorted(subjects), [subjects[name].weight for name in sorted(subjects)]
    outcomes, failures = Counter[tuple[str, str]](), list[str]()
    for number in range(cases):
        (name,) = draw.choices(names, weights)
        subject = subjects[name]
        path, raw, how = place_damaged(subject, folder / "damaged", draw)
        title = f"case {number} of seed {seed} ({name}, {', '.join(how)})"
        (folder / "now").write_text(title)
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        try:
            found = subject.read(path)
        except wf.WarpfactorError as error:
            outcome = "refused" if error.code != "error" and "\n" not in str(error) else "failed"
            if outcome == "failed":
                failures.append(f"{title}: the message is no sentence: {error}")
        except Exception as error:  # the point of it all
            outcome = "failed"
            failures.append(f"{title}: {type(error).__name__}: {str(error)[:300]}")
        else:
            outcome = "read"
            if name in IMAGES and _took_wrong(name, subject, raw, how, found, good[name]):
                outcome = "failed"
                failures.append(f"{title}: taken in with wrong data")
        finally:
            faulthandler.cancel_dump_traceback_later()
        outcomes[name, outcome] += 1
    return outcomes, failures


def _took_wrong(name: str, subject: Subject, raw: bytes, how: list[str], found: Any, good: Any) -> bool:
    whole = subject.seed.read_bytes()
    start = payload_start(whole, name)
    return is_wrong(name, how, found, good, in_payload=raw[:start] == whole[:start] and start < len(raw))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        outcomes, failures = attack(given.cases, given.seed, Path(folder))
    for suffix in sorted({suffix for suffix, _ in outcomes}):
        print(suffix, {kind: outcomes[suffix, kind] for kind in ("refused", "read", "failed")})
    for failure in failures:
        print(failure)
    total = {
        kind: sum(n for (_, each), n in outcomes.items() if each == kind) for kind in ("refused", "read", "failed")
    }
    print(json.dumps({"cases": given.cases, "cpu_s": round(time.process_time() - began, 1), **total}))
    sys.exit(1 if total["failed"] else 0)


if __name__ == "__main__":
    main()
