"""Tables of `warpfactor bench gpu`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from warpfactor.bench.gpu.compile import Compiled
from warpfactor.bench.gpu.memory import level_bytes
from warpfactor.bench.gpu.traffic import DEVICES, METRICS, STEPS, bytes_per_voxel, iteration, predicted_ms
from warpfactor.bench.paper.published import EFFICIENCY
from warpfactor.bench.score.tables import Table, TableColumn, Value

SIZES = (64, 128, 192, 256, 320, 384, 448, 512)
LM, ADAM = "root, pointwise", "adam"


def compiled_table(found: Iterable[Compiled], targets: Sequence[str]) -> Table:
    """A row per kernel and variant: registers / bytes of shared memory / bytes spilled, for every target."""
    columns = (TableColumn("kernel", "kernel"), TableColumn("variant", "variant"))
    ordered = sorted(found, key=lambda each: (each.kernel, each.variant))
    rows = []
    for (kernel, variant), group in groupby(ordered, key=lambda each: (each.kernel, each.variant)):
        row: dict[str, Value] = {"kernel": kernel, "variant": variant}
        rows.append(row | {c.target: f"{c.registers} / {c.shared} / {c.spilled}" for c in group})
    return Table(
        "compiled",
        "Registers / bytes of shared memory / bytes spilled",
        (*columns, *(TableColumn(target, target) for target in targets)),
        tuple(rows),
    )


def traffic_table() -> Table:
    """Bytes per voxel of an iteration, by metric and step."""
    rows: list[dict[str, Value]] = []
    for metric in METRICS:
        for step in STEPS:
            moved = {}
            for way in ("", ", one by one"):
                launches = iteration(metric, step, one_by_one=bool(way))
                for place in ("memory", "cached"):
                    moved[place + way] = round(bytes_per_voxel(launches, cached=place == "cached"))
            rows.append({"metric": metric, "step": step, **moved})
    titles = {"metric": "metric", "step": "step", "memory": "rings in memory", "cached": "rings in the cache"}
    titles |= {f"{place}, one by one": f"{titles[place]}, components one by one" for place in ("memory", "cached")}
    columns = tuple(TableColumn(key, title) for key, title in titles.items())
    return Table("traffic", "Bytes per voxel and iteration, as the kernels declare them", columns, tuple(rows))


def prediction_table() -> Table:
    """Predicted milliseconds of an iteration, and bytes of a level, beside the paper's table 5."""
    columns = [TableColumn("n", "N")]
    columns += [TableColumn(device.name, f"{device.name}, predicted ms", 2) for device in DEVICES]
    columns += [TableColumn("lm_mb", "LM MB, model", 0), TableColumn("adam_mb", "Adam MB, model", 0)]
    columns += [TableColumn("saved", "saved %", 1)]
    columns += [TableColumn("paper_ms", "paper, A6000, ms", 0), TableColumn("paper_mb", "paper LM MB", 0)]
    published = {row["n"]: row for row in EFFICIENCY.rows}
    return Table(
        "predicted", "LNCC of window 5 at N x N x N voxels", tuple(columns), tuple(_row(n, published) for n in SIZES)
    )


def _row(n: int, published: Mapping[Value, Any]) -> dict[str, Value]:
    shape = (n, n, n)
    lm, adam = (level_bytes(shape, "lncc", step) / 1e6 for step in (LM, ADAM))
    paper = published[n]
    times = {device.name: predicted_ms(device, shape) for device in DEVICES}
    return {
        "n": n,
        **times,
        "lm_mb": lm,
        "adam_mb": adam,
        "saved": 100 * (1 - lm / adam),
        "paper_ms": 1e3 * paper["lm_s"],
        "paper_mb": paper["lm_mb"],
    }
