"""Tables, plot and files of the speed benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpfactor.bench.run import machine
from warpfactor.bench.score.plots import add_legend, save, style
from warpfactor.bench.score.tables import Table, TableColumn, Value, write_tables
from warpfactor.bench.speed.claims import claim_table, find, is_own_iteration, kernels_of
from warpfactor.bench.speed.plan import SpeedPlan
from warpfactor.bench.speed.runs import SpeedMeasurement, highest_load, is_busy, load_warning

NAME = "speed"
MB = 1e6
TITLES = {"lm": "LM", "adam": "Adam", "lm+rejection": "LM with rejection", "default": "default"}  # in plots
NOTES = """\
An iteration is one iteration of the level solver at full resolution, on float32 images with one channel, without masks
and without stopping rules. Its time is the median over the number of iterations in the column "repeats", after two
iterations that are not counted. The scaled copy reads and writes three channels of the same size after every iteration;
"copies" is the time of an iteration divided by the time of that copy. CPU time is the time of all threads together,
which depends less on other programs.{rounds}

Memory is the peak memory of a fresh process while a level runs, minus the memory that the process held after import and
compilation. It includes the two images (8 bytes per voxel for cubes). LM, Adam and LM with rejection are the recipe
`paper` (LNCC window 7); default is the recipe of that name. Greedy's iteration is the difference of two runs at full
resolution, and its memory is that of the whole run.

Windows and sizes are compared within one process: all of them are measured once (three iterations each) before any is
measured again. The table shows the smallest median of fifteen repetitions (windows) or seven (sizes).
"""
_PLACE = (
    TableColumn("place", "images"),
    TableColumn("metric", "metric"),
    TableColumn("optimizer", "optimizer"),
)


def tables(measurements: Sequence[SpeedMeasurement], plan: SpeedPlan, *, load: float = 0.0) -> list[Table]:
    """All tables that have rows, the most detailed one first.

    Args:
        measurements: Results of the benchmark.
        plan: What was measured.
        load: System load before the benchmark; claims about time are not judged on a busy machine.
    """
    found = [
        iteration_table(measurements),
        *(efficiency_table(measurements, metric) for metric in plan.metrics),
        comparison_table(measurements),
        alternating_table(measurements, "windows"),
        alternating_table(measurements, "sizes"),
        part_table(measurements),
        pair_table(measurements),
        start_table(measurements),
        claim_table(measurements, busy=is_busy(load, plan.threads)),
    ]
    return [table for table in found if table.rows]


def write(measurements: Sequence[SpeedMeasurement], plan: SpeedPlan, folder: Path) -> list[Path]:
    """Write tables (CSV, JSON, Markdown) and plot, and return the paths of the files."""
    load = highest_load(folder)
    warning = f" {load_warning(load)}" if is_busy(load, plan.threads) else ""
    rounds = f" Everything was measured {plan.rounds} times and the minimum is shown." if plan.rounds > 1 else ""
    head = f"# Speed and memory\n\n{machine.sentence()}, {plan.threads} threads.{warning}\n\n"
    extra = {"machine": machine.describe(), "threads": plan.threads, "load": load}
    notes = head + NOTES.format(rounds=rounds)
    written = write_tables(tables(measurements, plan, load=load), folder, NAME, notes=notes, extra=extra)
    picture = draw(measurements, folder / f"{NAME}.png")
    return [*written, *([picture] if picture is not None else [])]


def iteration_table(measurements: Sequence[SpeedMeasurement]) -> Table:
    """One row per measured iteration."""
    columns = (
        *_PLACE,
        TableColumn("window", "window"),
        TableColumn("kernels", "kernels"),
        TableColumn("seconds", "seconds", 4),
        TableColumn("ns_per_voxel", "ns per voxel", 1),
        TableColumn("scale_copies", "copies", 1),
        TableColumn("scale_copy_ns_per_voxel", "copy ns", 2),
        TableColumn("cpu_ns_per_voxel", "CPU ns", 1),
        TableColumn("cpu_scale_copies", "CPU copies", 1),
        TableColumn("peak_bytes_per_voxel", "bytes per voxel", 1),
        TableColumn("peak_mb", "MB", 0),
        TableColumn("iterations", "repeats"),
        TableColumn("failure", "not measured"),
    )
    rows = tuple(_iteration_row(m) for m in measurements if m.job.kind in ("iteration", "greedy"))
    return Table("iterations", "One iteration at full resolution", columns, rows).without_empty_columns()


def _iteration_row(m: SpeedMeasurement) -> dict[str, Value]:
    job, values = m.job, m.values
    voxels, seconds = values.get("voxels"), values.get("seconds")
    return {
        "place": job.place,
        "metric": job.metric,
        "optimizer": job.optimizer or "-",
        "window": values.get("window") if job.metric == "lncc" else None,
        "kernels": kernels_of(job),
        "seconds": seconds,
        "ns_per_voxel": _divide(seconds, voxels, 1e9),
        "scale_copies": values.get("copies"),
        "scale_copy_ns_per_voxel": _divide(values.get("copy_seconds"), voxels, 1e9),
        "cpu_ns_per_voxel": _divide(values.get("cpu_seconds"), voxels, 1e9),
        "cpu_scale_copies": values.get("copies_cpu"),
        "peak_bytes_per_voxel": _divide(values.get("peak_bytes"), voxels),
        "peak_mb": _divide(values.get("peak_bytes"), MB),
        "iterations": values.get("iterations"),
        "failure": m.failure,
    }


def efficiency_table(measurements: Sequence[SpeedMeasurement], metric: str) -> Table:
    """Adam and LM side by side, with the columns of the paper's table 5."""
    columns = (
        TableColumn("place", "images"),
        TableColumn("adam_mb", "Adam, MB", 0),
        TableColumn("lm_mb", "LM, MB", 0),
        TableColumn("saved_percent", "memory saved, %", 1),
        TableColumn("adam_seconds", "Adam, s per iteration", 3),
        TableColumn("lm_seconds", "LM, s per iteration", 3),
        TableColumn("speedup", "speed-up by LM", 2),
    )
    rows = []
    for place in dict.fromkeys(m.job.place for m in measurements if is_own_iteration(m)):
        adam, lm = (find(measurements, place, metric, name) for name in ("adam", "lm"))
        if adam is None or lm is None:
            continue
        memory = [_divide(m.values["peak_bytes"], MB) for m in (adam, lm)]
        rows.append(
            {
                "place": place,
                "adam_mb": memory[0],
                "lm_mb": memory[1],
                "saved_percent": None if None in memory else 100 * (1 - float(memory[1] or 0) / float(memory[0] or 1)),
                "adam_seconds": adam.values["seconds"],
                "lm_seconds": lm.values["seconds"],
                "speedup": adam.values["seconds"] / lm.values["seconds"],
            }
        )
    title = f"Adam and LM with {metric.upper()}: memory and time per iteration"
    return Table(f"efficiency_{metric}", title, columns, tuple(rows))


def comparison_table(measurements: Sequence[SpeedMeasurement]) -> Table:
    """Speed-up of our kernels over the PyTorch kernels and over Greedy, measured in the same benchmark."""
    columns = (
        *_PLACE,
        TableColumn("reference", "speed-up over PyTorch", 1),
        TableColumn("greedy", "speed-up over Greedy", 1),
    )
    rows: list[dict[str, Value]] = []
    for m in measurements:
        if not is_own_iteration(m) or m.failure:
            continue
        place, job = m.job.place, m.job
        slow = find(measurements, place, job.metric, job.optimizer, kernels="reference")
        peer = find(measurements, place, job.metric, kernels="greedy")
        ratios = {
            name: other.values["seconds"] / m.values["seconds"]
            for name, other in (("reference", slow), ("greedy", peer))
            if other is not None
        }
        if ratios:
            rows.append({"place": place, "metric": job.metric, "optimizer": job.optimizer, **ratios})
    return Table("comparison", "Compared with other code", columns, tuple(rows)).without_empty_columns()


def alternating_table(measurements: Sequence[SpeedMeasurement], kind: str) -> Table:
    """Time by LNCC window ("windows") or image size ("sizes"), also relative to the fastest."""
    title, first = {
        "windows": ("LNCC windows, LM", TableColumn("window", "window")),
        "sizes": ("Image sizes, LNCC and LM", TableColumn("size", "N of N^3")),
    }[kind]
    columns = (
        first,
        TableColumn("ns_per_voxel", "ns per voxel", 1),
        TableColumn("relative", "relative to the fastest", 2),
    )
    times = next((m.values for m in measurements if m.job.kind == kind), {})
    least = min(times.values(), default=1.0)
    rows = tuple({first.key: int(k), "ns_per_voxel": ns, "relative": ns / least} for k, ns in times.items())
    return Table(kind, title, columns, rows)


def part_table(measurements: Sequence[SpeedMeasurement]) -> Table:
    """Time of an iteration by kernel, for LNCC at the largest size."""
    chosen = [m for m in measurements if is_own_iteration(m) and m.job.metric == "lncc" and not m.failure]
    largest = max((m.job.size for m in chosen), default=0)
    columns = (
        *_PLACE,
        TableColumn("part", "kernel"),
        TableColumn("ns_per_voxel", "ns per voxel", 1),
        TableColumn("share_percent", "% of the iteration", 0),
    )
    rows: list[dict[str, Value]] = []
    for m in (m for m in chosen if m.job.size == largest):
        head: dict[str, Value] = {"place": m.job.place, "metric": m.job.metric, "optimizer": m.job.optimizer}
        total, voxels = sum(m.values["parts_seconds"].values()), m.values["voxels"]
        for name, seconds in m.values["parts_seconds"].items():
            shares = {"ns_per_voxel": 1e9 * seconds / voxels, "share_percent": 100 * seconds / total}
            rows.append({**head, "part": name, **shares})
    return Table("parts", "Parts of an iteration", columns, tuple(rows))


def start_table(measurements: Sequence[SpeedMeasurement]) -> Table:
    """Seconds before a registration begins."""
    names = {
        "import_seconds": "import the package",
        "load_seconds": "load the compiled kernels (recipe default)",
        "compile_seconds": "compile the kernels (first run only)",
    }
    values = next((m.values for m in measurements if m.job.kind == "start"), {})
    rows = tuple({"what": title, "seconds": values[name]} for name, title in names.items() if name in values)
    return Table("start", "Start-up", (TableColumn("what", "what"), TableColumn("seconds", "seconds", 2)), rows)


def pair_table(measurements: Sequence[SpeedMeasurement]) -> Table:
    """Whole registrations, from files to files."""
    columns = (
        TableColumn("place", "images"),
        TableColumn("method", "method"),
        TableColumn("seconds", "seconds", 1),
        TableColumn("faster_than_greedy", "speed-up over Greedy", 1),
        TableColumn("peak_mb", "peak MB of the process", 0),
        TableColumn("peak_bytes_per_voxel", "bytes per voxel", 1),
        TableColumn("failure", "not measured"),
    )
    rows: list[dict[str, Value]] = []
    pairs = [m for m in measurements if m.job.kind == "pair"]
    for m in pairs:
        files = m.job.fixed, m.job.moving
        peers = [o for o in pairs if o.job.method == "greedy" and (o.job.fixed, o.job.moving) == files]
        greedy = next((o for o in peers if not o.failure and o is not m), None)
        peak, seconds = m.values.get("peak_bytes"), m.values.get("seconds")
        rows.append(
            {
                "place": m.job.place,
                "method": m.job.method,
                "seconds": seconds,
                "faster_than_greedy": None if greedy is None else _divide(greedy.values["seconds"], seconds),
                "peak_mb": _divide(peak, MB),
                "peak_bytes_per_voxel": _divide(peak, m.values.get("voxels")),
                "failure": m.failure,
            }
        )
    return Table("pairs", "From files to files", columns, tuple(rows)).without_empty_columns()


def _divide(value: float | None, unit: float | None, factor: float = 1.0) -> float | None:
    return None if value is None or not unit else factor * value / unit


# Plot


def draw(measurements: Sequence[SpeedMeasurement], path: Path) -> Path | None:
    """Plot time and memory per voxel over image size, two panels per metric; None if no cube was measured."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cubes = [m for m in measurements if is_own_iteration(m) and m.job.size and m.values]
    metrics = list(dict.fromkeys(m.job.metric for m in cubes))
    if not metrics:
        return None
    figure = Figure(figsize=(4.6 * len(metrics), 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, len(metrics), squeeze=False)
    for column, metric in enumerate(metrics):
        chosen = [m for m in cubes if m.job.metric == metric]
        _draw(grid[0][column], chosen, "seconds", 1e9, f"{metric.upper()}: time", "ns per voxel and iteration")
        _draw(grid[1][column], chosen, "peak_bytes", 1.0, f"{metric.upper()}: memory", "peak bytes per voxel")
    handles, labels = grid[0][0].get_legend_handles_labels()
    add_legend(figure, dict(zip(labels, handles, strict=True)))
    return save(figure, path)


def _draw(axes: Any, chosen: Sequence[SpeedMeasurement], name: str, factor: float, title: str, unit: str) -> None:
    for number, optimizer in enumerate(dict.fromkeys(m.job.optimizer for m in chosen)):
        colour, marker = style(number)
        points = [
            (m.job.size, factor * m.values[name] / m.values["voxels"])
            for m in chosen
            if m.job.optimizer == optimizer and m.values[name] is not None
        ]
        axes.plot([x for x, _ in points], [y for _, y in points], color=colour, marker=marker, label=TITLES[optimizer])
    sizes = sorted({m.job.size for m in chosen})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    start_at_zero(axes)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("N of N x N x N voxels")
    axes.set_ylabel(unit)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def start_at_zero(axes: Any) -> None:
    """Let the y axis reach from zero to slightly above the highest point, so that no marker is cut."""
    axes.set_ylim(0, 1.08 * axes.dataLim.y1 if axes.dataLim.y1 > 0 else None)
