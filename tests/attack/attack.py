"""Damaged files of every format, read by the readers of the package and by its commands; the long mode is a script.

    python tests/attack/attack.py --cases 20000 --seed 1 --keep cases.jsonl

A case is a file, or one file of a folder, that was written by the package, damaged once or twice. It must be refused
with an error that has a code, or be read; a command must end with a sentence, or succeed. It must not raise anything
else, take long, end the process, or leave anything behind. What is read must be the original where the format can tell:
after a truncation, and anywhere in a file with checksums. A case depends on its number and the seed only. With --keep
outcomes are written to a file, and a run that ended goes on after the case at which it did, which counts as failed. The
last line is the count, as JSON; the exit code is 1 if anything failed.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from mutations import MUTATIONS, truncate
from subjects import CHECKSUMS, WHOLE, Subject, write_subjects

import warpfactor as wf

REFUSED, READ, FAILED = "refused", "read", "failed"
LONGEST_S = 120  # a case that takes longer counts as a hang and ends the process with a traceback


def contents(found: Any) -> list[tuple[torch.Tensor, Any]]:
    """Numbers and grids of an image or a transform."""
    if isinstance(found, wf.Image):
        return [(found.data, found.grid)]
    return [
        (part.displacement, part.grid) if isinstance(part, wf.Warp) else (torch.from_numpy(part.matrix), None)
        for part in found.parts
    ]


def same(one: Any, other: Any) -> bool:
    """Whether two images or transforms are equal."""
    pairs = list(zip(contents(one), contents(other), strict=False))
    alike = all(torch.equal(a, b) and a_grid == b_grid for (a, a_grid), (b, b_grid) in pairs)
    return alike and len(contents(one)) == len(contents(other))


def is_wrong(suffix: str, names: list[str], found: Any, good: Any, *, in_payload: bool) -> bool:
    """Whether a damaged file was taken in although its format can tell."""
    if suffix not in WHOLE or same(found, good):
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


def attack(
    cases: int, seed: int, folder: Path, kept: Path, *, workers: bool, only: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """One record for every case, or for those of some subjects: its number, subject and outcome, and what failed."""
    done = read_kept(kept)
    subjects = write_subjects(folder, workers=workers)
    good = {name: subjects[name].read(subjects[name].seed) for name in WHOLE if name in subjects}
    names = sorted(subjects)
    with kept.open("a", encoding="utf-8") as stream:
        for number in range(cases):
            if number in done:
                continue
            draw = random.Random(f"{seed} {number}")
            (name,) = draw.choices(names, [subjects[each].weight for each in names])
            if only and name not in only:
                continue
            print(json.dumps({"case": number, "subject": name}), file=stream, flush=True)
            done[number] = {"case": number, "subject": name, **one_case(subjects[name], folder, draw, name, good)}
            print(json.dumps(done[number]), file=stream, flush=True)
    return [done[number] for number in sorted(done) if number < cases]


def read_kept(kept: Path) -> dict[int, dict[str, Any]]:
    """Cases that were done before, by number. One that has no outcome ended its process."""
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    found: dict[int, dict[str, Any]] = {}
    for record in map(json.loads, lines):
        found[record["case"]] = {"outcome": FAILED, "failure": "it ended the process, or was ended with it", **record}
    return found


def one_case(subject: Subject, folder: Path, draw: random.Random, name: str, good: dict[str, Any]) -> dict[str, Any]:
    """Damage a subject and take it in: the outcome, and what failed."""
    path, raw, how = place_damaged(subject, folder / "damaged", draw)
    faulthandler.dump_traceback_later(LONGEST_S, exit=True)
    try:
        found = subject.read(path)
    except wf.WarpfactorError as error:
        if error.code != "error" and "\n" not in str(error):
            return {"outcome": REFUSED}
        return {"outcome": FAILED, "failure": f"{how}: the message is no sentence: {error}"}
    except Exception as error:  # the point of it all
        return {"outcome": FAILED, "failure": f"{how}: {type(error).__name__}: {str(error)[:300]}"}
    finally:
        faulthandler.cancel_dump_traceback_later()
    if name in good and _took_wrong(name, subject, raw, how, found, good[name]):
        return {"outcome": FAILED, "failure": f"{how}: taken in with wrong data"}
    return {"outcome": READ}


def _took_wrong(name: str, subject: Subject, raw: bytes, how: list[str], found: Any, good: Any) -> bool:
    if name not in CHECKSUMS:
        return is_wrong(name, how, found, good, in_payload=False)
    whole = subject.seed.read_bytes()
    start = payload_start(whole, name)
    return is_wrong(name, how, found, good, in_payload=raw[:start] == whole[:start] and start < len(raw))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="File of the outcomes, with which a run goes on.")
    parser.add_argument("--no-workers", action="store_true", help="Leave out commands that start worker processes.")
    parser.add_argument("--only", action="append", default=[], metavar="SUBJECT", help="The cases of one subject.")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    began = time.process_time()
    with tempfile.TemporaryDirectory() as name:
        kept = given.keep or Path(name) / "cases.jsonl"
        folder = Path(name) / "files"
        folder.mkdir()
        found = attack(given.cases, given.seed, folder, kept, workers=not given.no_workers, only=given.only)
    for subject in sorted({record["subject"] for record in found}):
        print(subject, count([record for record in found if record["subject"] == subject]))
    for record in found:
        if record["outcome"] == FAILED:
            print(f"case {record['case']} of seed {given.seed} ({record['subject']}): {record['failure']}")
    total = count(found)
    print(json.dumps({"cases": len(found), "cpu_s": round(time.process_time() - began, 1), **total}))
    sys.exit(1 if total[FAILED] else 0)


def count(records: list[dict[str, Any]]) -> dict[str, int]:
    """How many cases had each outcome."""
    return {outcome: sum(record["outcome"] == outcome for record in records) for outcome in (REFUSED, READ, FAILED)}


if __name__ == "__main__":
    main()
