"""What a command shows while it runs: a live view on a terminal, plain lines elsewhere, JSON for programs; and tables.

The remaining time is that of the deformable stage, which takes most of a run. An iteration costs in proportion to the
voxels of its level (`Event.done` counts them). The time per voxel is measured at the current level, because fine levels
do not fit into the processor's caches and coarse levels are dominated by overhead.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from warpfactor.cli import wording

if TYPE_CHECKING:
    from warpfactor.stages.stage import Event, Progress

BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-~=+*#"
CURVE_WIDTH, BAR_WIDTH = 48, 24  # columns
FRAMES_PER_SECOND = 8
TABLE_WIDTH = 160  # columns of a table that is not printed on a terminal
COMPILE_SECONDS = 30  # all kernels of a registration, on two cores, with Numba 0.68


class ProgressView(Protocol):
    """What shows a run."""

    @property
    def callback(self) -> Progress | None:
        """The `progress` argument of `register`; None if nothing is shown."""

    def phase(self, text: str) -> None:
        """Name what is done after the iterations."""

    def note(self, text: str) -> None:
        """Show a message at once; safe to call from a signal handler."""


@contextmanager
def progress(*, quiet: bool, as_json: bool) -> Iterator[ProgressView]:
    """Show a registration for the duration of a block; pass the view's `callback` to `register`."""
    announce_compilation(quiet=quiet or as_json)
    try:
        if quiet or as_json:
            yield EventView(_print_event if as_json else None)
        elif sys.stderr.isatty():
            with live_view(Console(stderr=True)) as view:
                announce_compilation(quiet=False, tell=view.tell)  # typer.echo would print into the live view
                yield view
        else:
            lines = LineView()
            yield lines
            lines.close()
    finally:
        announce_compilation(quiet=True)


def announce_compilation(*, quiet: bool, tell: Callable[[str], None] | None = None) -> None:
    """Print a message when the next kernel has to be compiled, once; on stderr, or with `tell`."""
    from warpfactor.kernels.numba._compile.compilation import tell_once

    say = tell or partial(typer.echo, err=True)
    tell_once(None if quiet else lambda: say(_compilation()))


def _compilation() -> str:
    from warpfactor.kernels.numba._compile.cache import holdings

    if any(holdings().values()):
        return wording.COMPILING_SOME
    return wording.COMPILING_ALL.format(seconds=COMPILE_SECONDS)


def print_json(entry: dict[str, Any]) -> None:
    """Print one JSON object on one line of stdout; NaN and infinity become null."""
    from warpfactor.io.jsontext import without_nan

    typer.echo(json.dumps(without_nan(entry), allow_nan=False))


def _print_event(event: Event) -> None:
    print_json({"event": "iteration", **dataclasses.asdict(event)})


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text, as wide as its content unless a terminal limits it."""
    made = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        made.add_row(*row)
    width = Console().width if sys.stdout.isatty() else TABLE_WIDTH
    stream = io.StringIO()
    Console(width=width, file=stream).print(made, markup=False, highlight=False)
    return stream.getvalue()


@dataclass(frozen=True)
class EventView:
    """A view for programs: `callback` gets every event, and nothing else is shown."""

    callback: Progress | None

    def phase(self, text: str) -> None:
        """Programs see iterations and the result only."""

    def note(self, text: str) -> None:
        """Programs know which signal they sent."""


@dataclass
class LevelProgress:
    """The events of one level of one stage.

    Attributes:
        began: seconds on the stage's clock when the previous level ended.
        costs: of the accepted iterations, in order.
        rejected: number of rejected iterations.
        first, last: events; None before the first one.
    """

    began: float = 0.0
    costs: list[float] = field(default_factory=list)
    rejected: int = 0
    first: Event | None = None
    last: Event | None = None

    def add(self, event: Event) -> None:
        self.first = self.first or event
        self.last = event
        if event.accepted:
            self.costs.append(event.cost)
        else:
            self.rejected += 1

    def holds(self, event: Event) -> bool:
        """Whether an event belongs to this level."""
        last = self.last
        return last is None or (last.stage, last.level, last.metric) == (event.stage, event.level, event.metric)

    def line(self) -> str:
        """The level in one line, once it has ended."""
        last = self.last
        if last is None:
            return ""
        costs = self.costs or [last.cost]
        change = f"{_metric(last)}cost {wording.number(costs[0], 4)} -> {wording.number(costs[-1], 4)}"
        rejected = f", {self.rejected} rejected" if self.rejected else ""
        times = f"{_count(last)} of {last.limit}{rejected}"
        row = f"{last.stage:<11} level {last.level:<3g} {change:<27} {times:<22} {last.seconds - self.began:5.1f} s"
        return f"{row}  ({_parts(last)})" if last.parts else row


@dataclass
class Pace:
    """Seconds per unit of `Event.done`, at the current level."""

    rate: float | None = None

    def remaining(self, level: LevelProgress) -> float | None:
        """Seconds to the end of the deformable stage; None while unknown."""
        first, last = level.first, level.last
        if first is None or last is None or last.stage != "deformable":
            return None
        if last.done > first.done:
            self.rate = (last.seconds - first.seconds) / (last.done - first.done)
        return None if self.rate is None else self.rate * (1.0 - last.done)


class LineView:
    """One line on stderr at the end of every level."""

    def __init__(self) -> None:
        self.level = LevelProgress()

    @property
    def callback(self) -> Progress:
        return self.update

    def update(self, event: Event) -> None:
        if not self.level.holds(event):
            self.close()
            self.level = LevelProgress(_clock_before(self.level, event))
        self.level.add(event)

    def phase(self, text: str) -> None:
        """Finish the line of the last level."""
        self.close()
        self.level = LevelProgress()

    def note(self, text: str) -> None:
        with suppress(RuntimeError):  # the signal interrupted another write to stderr
            typer.echo(text, err=True)

    def close(self) -> None:
        """Print the line of the current level."""
        if self.level.last is not None:
            self.tell(self.level.line())

    def tell(self, text: str) -> None:
        typer.echo(text, err=True)


class LiveView(LineView):
    """The current level, redrawn several times a second, below the lines of the levels that have ended."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._blocks = ASCII_BLOCKS if console.options.ascii_only else BLOCKS
        self._spinner = Spinner("line" if console.options.ascii_only else "dots")
        self._pace = Pace()
        self._phase = wording.STARTING
        self._note = ""

    def update(self, event: Event) -> None:
        super().update(event)
        self._phase = wording.FINISHING if event.done >= 1 else ""

    def phase(self, text: str) -> None:
        super().phase(text)
        self._phase = text

    def note(self, text: str) -> None:
        self._note = text  # printing here could deadlock: another thread draws the view and may hold its lock

    def tell(self, text: str) -> None:
        self._console.print(Text(text, style="dim"), no_wrap=True, overflow="crop", crop=True)

    def render(self) -> RenderableType:
        """What is on the screen now."""
        last, note = self.level.last, [_detail(self._note)] if self._note else []
        if self._phase or last is None:
            return Group(_row(self._spinner, Text(self._phase)), *note)
        return Group(self._head(last), *(_detail(text) for text in self._details(last)), *note)

    def _head(self, last: Event) -> Table:
        remaining = self._pace.remaining(self.level)
        return _row(
            self._spinner,
            Text(f"{last.stage}, {_metric(last)}level {last.level:g}, {_count(last)} of {last.limit}", style="bold"),
            ProgressBar(total=1.0, completed=last.done, width=BAR_WIDTH),
            Text("" if remaining is None else f"{wording.duration(remaining)} left"),
        )

    def _details(self, last: Event) -> Iterator[str]:
        level = self.level
        step = "" if last.step_vox is None else f"step {last.step_vox:.2f} voxels   "
        yield f"cost {wording.number(last.cost, 4)}  {curve(level.costs, CURVE_WIDTH, self._blocks)}"
        yield f"{step}damping {last.damping:.3g}   {len(level.costs)} accepted, {level.rejected} rejected"
        if last.parts:
            yield _parts(last)


@contextmanager
def live_view(console: Console) -> Iterator[LiveView]:
    """A live view for the duration of a block; only the lines of the levels remain."""
    view = LiveView(console)
    live = Live(
        get_renderable=view.render, console=console, transient=True, refresh_per_second=FRAMES_PER_SECOND, screen=False
    )
    with live:
        yield view
        view.close()


def curve(values: Sequence[float], width: int, blocks: str = BLOCKS) -> str:
    """Values as a row of at most `width` blocks of different height; neighbours are averaged if there are more."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round((mean - low) * scale)] for mean in means)


def _count(last: Event) -> int:
    """Iterations so far; the event that judges the last step of a level comes after the limit."""
    return min(last.iteration + 1, last.limit)


def _metric(last: Event) -> str:
    """The metric of a linear stage, which may try several; nothing for a deformable one."""
    return f"{last.metric.upper()} " if last.metric else ""


def _parts(last: Event) -> str:
    """The costs of the terms by themselves."""
    return ", ".join(f"{name} {wording.number(cost, 4)}" for name, cost in last.parts)


def _clock_before(level: LevelProgress, event: Event) -> float:
    """The stage's clock when `level` ended; 0 if the event belongs to another stage, which has its own clock."""
    last = level.last
    if last is None or last.stage != event.stage:
        return 0.0
    return last.seconds if last.seconds <= event.seconds else 0.0


def _row(*cells: RenderableType) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_row(*cells)
    return row


def _detail(text: str) -> Text:
    return Text(f"  {text}", no_wrap=True, overflow="crop")
