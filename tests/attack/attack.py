"""Damaged files of every format, read by the readers of the package; run it by itself for the long mode.

    python tests/attack/attack.py --cases 20000 --seed 1

A case is a file that was written by the package, damaged once or twice. It must be refused with an error that has a
code, or be read. It must not raise anything else, take long, or end the process. What is read must be the original
where the format can tell: after a truncation, and anywhere in a file with checksums. The last line is the count, as
JSON; the exit code is 1 if anything failed.
"""

import argparse
import faulthandler
import json
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mutations import MUTATIONS, truncate

import warpfactor as wf
from warpfactor.geometry.itk import sitk
from warpfactor.registration.folder import read_entries

SHAPE = (5, 6, 7)
LONGEST_S = 60  # a case that takes longer counts as a hang and ends the process with a traceback
CHECKSUMS = (".nii.gz", ".png", ".packed.mha", ".nrrd")
IMAGES = (".nii", ".nii.gz", ".mha", ".packed.mha", ".nrrd", ".png", ".jpg", ".bmp", ".tif")


def write_seeds(folder: Path) -> dict[str, Path]:
    """One good file of every format, by what its name ends in."""
    made = {}
    for suffix in (".nii", ".nii.gz", ".nrrd", ".png", ".jpg", ".bmp", ".tif"):
        shape = SHAPE[1:] if suffix in (".png", ".jpg", ".bmp") else SHAPE
        data = torch.arange(int(np.prod(shape)), dtype=torch.uint8).reshape(shape)
        made[suffix] = folder / f"seed{suffix}"
        wf.write_image(wf.Image(data.reshape(1, -1, *shape[-2:]), wf.Grid.from_spacing(shape, 2.0)), made[suffix])
    image = sitk.GetImageFromArray(np.arange(np.prod(SHAPE), dtype=np.int16).reshape(SHAPE))
    for suffix in (".mha", ".packed.mha"):
        made[suffix] = folder / f"seed{suffix}"
        sitk.WriteImage(image, str(made[suffix]), suffix == ".packed.mha")
    grid = wf.Grid.from_spacing(SHAPE)
    for suffix, transform in ((".tfm", wf.Affine()), (".mat", wf.Affine()), (".warp.nii", None)):
        made[suffix] = folder / f"seed{suffix}"
        wf.write_transform(transform or wf.Warp(torch.zeros((3, *SHAPE)), grid), made[suffix])
    made[".csv"] = folder / "seed.csv"
    made[".csv"].write_text("x,y,z,label\n1.5,2,3,a\n-4,5e1,6,b\n")
    made[".toml"], made[".json"] = folder / "seed.toml", folder / "seed.json"
    made[".toml"].write_text(wf.recipe("default").to_toml())
    made[".json"].write_text(json.dumps(wf.recipe("brain").to_dict()))
    made["result.json"] = folder / "seed" / "result.json"
    made["result.json"].parent.mkdir()
    made["result.json"].write_text(json.dumps(result_entries(grid)))
    return made


def result_entries(grid: wf.Grid) -> dict[str, Any]:
    """What a result.json must have to be read."""
    side = {
        "name": "image",
        "shape_zyx": list(grid.shape),
        "index_zyx_to_world_lps_mm": grid.matrix.tolist(),
        "dimension": grid.ndim,
    }
    files = {"fixed_to_moving_warp_before_affine_lps_mm": "1Warp.nii.gz"}
    return {"format": 2, "fixed": side, "moving": side, "files": files}


def reader_of(suffix: str) -> Callable[[Path], Any]:
    if suffix in IMAGES:
        return wf.read_image
    if suffix in (".tfm", ".mat", ".warp.nii"):
        return wf.read_transform
    if suffix == ".csv":
        return wf.io.read_points
    return (lambda path: read_entries(path.parent)) if suffix == "result.json" else wf.recipe


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


def attack(cases: int, seed: int, folder: Path) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Outcomes by format, and what failed."""
    draw = random.Random(seed)
    seeds = write_seeds(folder)
    good = {suffix: reader_of(suffix)(path) for suffix, path in seeds.items()}
    raws = {suffix: path.read_bytes() for suffix, path in seeds.items()}
    outcomes, failures = Counter[tuple[str, str]](), list[str]()
    place = folder / "damaged"
    place.mkdir()
    for number in range(cases):
        suffix = draw.choice(sorted(seeds))
        raw, names = raws[suffix], list[str]()
        for _ in range(draw.choice((1, 1, 2))):
            if raw:
                mutation = draw.choice(MUTATIONS)
                raw = mutation(raw, draw)
                names.append(mutation.__name__)
        start = payload_start(raws[suffix], suffix)
        path = place / (suffix if suffix == "result.json" else f"x{suffix}")
        path.write_bytes(raw)
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        title = f"case {number} of seed {seed} ({suffix}, {', '.join(names)})"
        (folder / "now").write_text(title)
        try:
            found = reader_of(suffix)(path)
        except wf.WarpfactorError as error:
            outcome = "refused" if error.code != "error" and "\n" not in str(error) else "failed"
            if outcome == "failed":
                failures.append(f"{title}: the message is no sentence: {error}")
        except Exception as error:  # the point of it all
            outcome = "failed"
            failures.append(f"{title}: {type(error).__name__}: {str(error)[:200]}")
        else:
            unchanged = raw[:start] == raws[suffix][:start]
            outcome = "read"
            if is_wrong(suffix, names, found, good[suffix], in_payload=unchanged and start < len(raw)):
                outcome = "failed"
                failures.append(f"{title}: taken in with wrong data")
        finally:
            faulthandler.cancel_dump_traceback_later()
        outcomes[suffix, outcome] += 1
    return outcomes, failures


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
