"""The tables of `bench speed`, from its measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpfactor.bench.score.tables import Column, Table, Value
from warpfactor.bench.speed.job import Job
from warpfactor.bench.speed.main import Measurement
from warpfactor.bench.speed.settings import window_of

MB = 1e6
NAMES = {"lm": "LM", "adam": "Adam", "lm+rejection": "LM with rejection", "default": "default"}  # in figures
_PLACE = (Column("place", "images"), Column("metric", "metric"), Column("optimizer", "optimizer"))


def iteration_table(measurements: Sequence[Measurement]) -> Table:
    """Every iteration that was measured, one per row."""
    columns = (
        *_PLACE,
        Column("window", "window"),
        Column("kernels", "kernels"),
        Column("seconds", "seconds", 4),
        Column("ns_per_voxel", "ns per voxel", 1),
        Column("scale_copies", "copies", 1),
        Column("scale_copy_ns_per_voxel", "copy ns", 2),
        Column("cpu_ns_per_voxel", "CPU ns", 1),
        Column("cpu_scale_copies", "CPU copies", 1),
        Column("peak_bytes_per_voxel", "bytes per voxel", 1),
        Column("peak_mb", "MB", 0),
        Column("iterations", "of"),
        Column("failure", "not measured"),
    )
    chosen = [m for m in measurements if m.job.kind in ("iteration", "greedy")]
    rows = tuple(_iteration_row(m) for m in chosen)
    return Table("iterations", "One iteration at full resolution", columns, rows).without_empty_columns()


def efficiency_table(measurements: Sequence[Measurement], metric: str) -> Table:
    """Adam beside LM, in the columns of the paper's table."""
    columns = (
        Column("place", "images"),
        Column("adam_mb", "Adam, MB", 0),
        Column("lm_mb", "LM, MB", 0),
        Column("saved_percent", "memory saved, %", 1),
        Column("adam_seconds", "Adam, s per iteration", 3),
        Column("lm_seconds", "LM, s per iteration", 3),
        Column("speedup", "LM faster", 2),
    )
    rows = []
    for place in _places(measurements):
        adam, lm = (find(measurements, place, metric, name) for name in ("adam", "lm"))
        if adam is None or lm is None:
            continue
        memory = [_over(m.figures["peak_bytes"], MB) for m in (adam, lm)]
        rows.append(
            {
                "place": place,
                "adam_mb": memory[0],
                "lm_mb": memory[1],
                "saved_percent": None if None in memory else 100 * (1 - float(memory[1] or 0) / float(memory[0] or 1)),
                "adam_seconds": adam.figures["seconds"],
                "lm_seconds": lm.figures["seconds"],
                "speedup": adam.figures["seconds"] / lm.figures["seconds"],
            }
        )
    title = f"Adam and LM with {metric.upper()}: memory and time of an iteration"
    return Table(f"efficiency_{metric}", title, columns, tuple(rows))


def comparison_table(measurements: Sequence[Measurement]) -> Table:
    """How many times faster our kernels are than the plain ones and than Greedy, in one run of the benchmark."""
    columns = (*_PLACE, Column("reference", "faster than PyTorch", 1), Column("greedy", "faster than Greedy", 1))
    rows: list[dict[str, Value]] = []
    for m in measurements:
        if not is_plain(m) or m.failure:
            continue
        place, job = place_of(m.job), m.job
        slow = find(measurements, place, job.metric, job.optimizer, kernels="reference")
        peer = find(measurements, place, job.metric, kernels="greedy")
        ratios = {
            name: other.figures["seconds"] / m.figures["seconds"]
            for name, other in (("reference", slow), ("greedy", peer))
            if other is not None
        }
        if ratios:
            rows.append({"place": place, "metric": job.metric, "optimizer": job.optimizer, **ratios})
    return Table("comparison", "Beside other code", columns, tuple(rows)).without_empty_columns()


def turn_table(measurements: Sequence[Measurement], kind: str) -> Table:
    """LNCC windows or sizes, measured in turn, with the time in units of the fastest."""
    title, first = {
        "windows": ("LNCC windows in turn, LM", Column("window", "window")),
        "sizes": ("Sizes in turn, LNCC and LM", Column("size", "N of N^3")),
    }[kind]
    columns = (first, Column("ns_per_voxel", "ns per voxel", 1), Column("relative", "relative to the fastest", 2))
    figures = next((m.figures for m in measurements if m.job.kind == kind), {})
    least = min(figures.values(), default=1.0)
    rows = tuple({first.key: int(k), "ns_per_voxel": ns, "relative": ns / least} for k, ns in figures.items())
    return Table(kind, title, columns, rows)


def part_table(measurements: Sequence[Measurement]) -> Table:
    """Where the time of an iteration goes, kernel by kernel, at the largest size; LNCC."""
    chosen = [m for m in measurements if is_plain(m) and m.job.metric == "lncc" and not m.failure]
    largest = max((m.job.size for m in chosen), default=0)
    columns = (
        *_PLACE,
        Column("part", "kernel"),
        Column("ns_per_voxel", "ns per voxel", 1),
        Column("share_percent", "% of the iteration", 0),
    )
    rows: list[dict[str, Value]] = []
    for m in chosen:
        if m.job.size != largest:
            continue
        head: dict[str, Value] = {"place": place_of(m.job), "metric": m.job.metric, "optimizer": m.job.optimizer}
        total, voxels = sum(m.figures["parts_seconds"].values()), m.figures["voxels"]
        for name, seconds in m.figures["parts_seconds"].items():
            figures = {"ns_per_voxel": 1e9 * seconds / voxels, "share_percent": 100 * seconds / total}
            rows.append({**head, "part": name, **figures})
    return Table("parts", "Parts of an iteration", columns, tuple(rows))


def start_table(measurements: Sequence[Measurement]) -> Table:
    """Seconds before a registration begins."""
    names = {
        "import_seconds": "import",
        "load_seconds": "load compiled kernels (default recipe)",
        "compile_seconds": "compile them, first run only",
    }
    figures = next((m.figures for m in measurements if m.job.kind == "start"), {})
    rows = tuple({"what": title, "seconds": figures[name]} for name, title in names.items() if name in figures)
    return Table("start", "Start-up", (Column("what", "what"), Column("seconds", "seconds", 2)), rows)


def pair_table(measurements: Sequence[Measurement]) -> Table:
    """End to end."""
    columns = (
        Column("place", "images"),
        Column("method", "method"),
        Column("seconds", "seconds", 1),
        Column("faster_than_greedy", "faster than Greedy", 1),
        Column("peak_mb", "peak MB of the process", 0),
        Column("peak_bytes_per_voxel", "bytes per voxel", 1),
        Column("failure", "not measured"),
    )
    rows: list[dict[str, Value]] = []
    for m in measurements:
        if m.job.kind != "pair":
            continue
        peer = next((o for o in measurements if o.job.method == "greedy" and _same_files(o, m) and not o.failure), None)
        peak, seconds = m.figures.get("peak_bytes"), m.figures.get("seconds")
        ratio = None if peer is None or not seconds or peer is m else peer.figures["seconds"] / seconds
        rows.append(
            {
                "place": place_of(m.job),
                "method": m.job.method,
                "seconds": seconds,
                "faster_than_greedy": ratio,
                "peak_mb": _over(peak, MB),
                "peak_bytes_per_voxel": _over(peak, m.figures.get("voxels")),
                "failure": m.failure,
            }
        )
    return Table("pairs", "End to end, from files to files", columns, tuple(rows)).without_empty_columns()


def find(
    measurements: Sequence[Measurement], place: str, metric: str, optimizer: str = "", *, kernels: str = "numba"
) -> Measurement | None:
    """The measurement of an iteration, if it was made."""
    wanted = (place, metric, optimizer, kernels)
    for m in measurements:
        usable = m.job.kind in ("iteration", "greedy") and not m.failure
        if usable and (place_of(m.job), m.job.metric, m.job.optimizer, _kernels(m.job)) == wanted:
            return m
    return None


def is_plain(measurement: Measurement) -> bool:
    """Whether it is an iteration of our own kernels."""
    job = measurement.job
    return job.kind == "iteration" and job.backend == "numba"


def place_of(job: Job) -> str:
    """The images, for people."""
    return f"{job.size}^3" if job.size else Path(job.fixed).name.removesuffix(".gz").removesuffix(".nii")


def _iteration_row(m: Measurement) -> dict[str, Value]:
    job, figures = m.job, m.figures
    voxels, seconds = figures.get("voxels"), figures.get("seconds")
    own = window_of(job.optimizer) if job.kind == "iteration" else 5
    return {
        "place": place_of(job),
        "metric": job.metric,
        "optimizer": job.optimizer or "-",
        "window": own if job.metric == "lncc" else None,
        "kernels": _kernels(job),
        "seconds": seconds,
        "ns_per_voxel": _over(seconds, voxels, 1e9),
        "scale_copies": figures.get("copies"),
        "scale_copy_ns_per_voxel": _over(figures.get("copy_seconds"), voxels, 1e9),
        "cpu_ns_per_voxel": _over(figures.get("cpu_seconds"), voxels, 1e9),
        "cpu_scale_copies": figures.get("copies_cpu"),
        "peak_bytes_per_voxel": _over(figures.get("peak_bytes"), voxels),
        "peak_mb": _over(figures.get("peak_bytes"), MB),
        "iterations": figures.get("iterations"),
        "failure": m.failure,
    }


def _kernels(job: Job) -> str:
    return "greedy" if job.kind == "greedy" else job.backend


def _places(measurements: Sequence[Measurement]) -> list[str]:
    return list(dict.fromkeys(place_of(m.job) for m in measurements if is_plain(m)))


def _same_files(first: Measurement, second: Measurement) -> bool:
    return first.job.kind == "pair" and (first.job.fixed, first.job.moving) == (second.job.fixed, second.job.moving)


def _over(value: float | None, unit: float | None, factor: float = 1.0) -> float | None:
    return None if value is None or not unit else factor * value / unit
