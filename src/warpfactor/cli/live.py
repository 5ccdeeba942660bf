"""The course of a registration on the screen: a live view on a terminal, one line a level elsewhere.

The time left is that of the deformable stage, which takes most of a run. An iteration costs in proportion to the voxels
of its level (`Update.done` counts them); how long a voxel takes is measured at the current level, since fine levels
leave the processor's caches and coarse ones have overhead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from warpfactor.stages.stage import Progress as Callback
    from warpfactor.stages.stage import Update

BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-~=+*#"
SPARKS, BAR = 48, 24  # columns
FRAMES_PER_SECOND = 8
BEGINNING, FINISHING = "preparing the images, trying starts", "inverse and figures"


class View(Protocol):
    """What shows a run: `callback` is for `register`, None if nobody looks; `phase` names what comes after it.

    `note` says something meanwhile; a handler of signals may call it.
    """

    @property
    def callback(self) -> Callback | None: ...

    def phase(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...


def number(value: float, digits: int) -> str:
    """Text with so many digits after the point, and no minus before a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def sparkline(values: Sequence[float], width: int, blocks: str = BLOCKS) -> str:
    """Values as a row of at most `width` blocks, the largest highest; of each group of neighbours the mean."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round((mean - low) * scale)] for mean in means)


@dataclass
class LevelCourse:
    """What was told about one level of one stage.

    Attributes:
        costs: of the transforms that were kept, in order.
        rejected: how many were not.
        began: seconds of the stage's clock when the level before it ended.
        first, last: updates; None before there is one.
    """

    began: float = 0.0
    costs: list[float] = field(default_factory=list)
    rejected: int = 0
    first: Update | None = None
    last: Update | None = None

    def add(self, update: Update) -> None:
        self.first = self.first or update
        self.last = update
        if update.accepted:
            self.costs.append(update.cost)
        else:
            self.rejected += 1

    def holds(self, update: Update) -> bool:
        """Whether an update belongs to this level."""
        last = self.last
        return last is None or (last.stage, last.level) == (update.stage, update.level)

    def sentence(self) -> str:
        """The level in one line, once it has ended."""
        last = self.last
        if last is None:
            return ""
        costs = self.costs or [last.cost]
        change = f"cost {number(costs[0], 4)} -> {number(costs[-1], 4)}"
        rejected = f", {self.rejected} rejected" if self.rejected else ""
        times = f"{_count(last)} of {last.limit}{rejected}"
        return f"{last.stage:<11} level {last.level:<3g} {change:<23} {times:<23} {last.seconds - self.began:5.1f} s"


@dataclass
class Pace:
    """Seconds per unit of `Update.done`, at the level that runs."""

    rate: float | None = None

    def left(self, level: LevelCourse) -> float | None:
        """Seconds to the end of the deformable stage; None while nothing is known."""
        first, last = level.first, level.last
        if first is None or last is None or last.stage != "deformable":
            return None
        if last.done > first.done:
            self.rate = (last.seconds - first.seconds) / (last.done - first.done)
        return None if self.rate is None else self.rate * (1.0 - last.done)


class Lines:
    """One line on stderr at the end of every level."""

    def __init__(self) -> None:
        self.level = LevelCourse()

    @property
    def callback(self) -> Callback:
        return self.update

    def update(self, update: Update) -> None:
        if not self.level.holds(update):
            self.close()
            self.level = LevelCourse(_clock_before(self.level, update))
        self.level.add(update)

    def phase(self, text: str) -> None:
        """The iterations are over; lines say no more than that."""
        self.close()
        self.level = LevelCourse()

    def note(self, text: str) -> None:
        with suppress(RuntimeError):  # the signal came while something was printed
            typer.echo(text, err=True)

    def close(self) -> None:
        """Say how the last level went."""
        if self.level.last is not None:
            self.tell(self.level.sentence())

    def tell(self, sentence: str) -> None:
        typer.echo(sentence, err=True)


class Screen(Lines):
    """The level that runs, drawn anew several times a second, below the lines of those that have ended."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._blocks = ASCII_BLOCKS if console.options.ascii_only else BLOCKS
        self._spinner = Spinner("line" if console.options.ascii_only else "dots")
        self._pace = Pace()
        self._phase = BEGINNING
        self._note = ""

    def update(self, update: Update) -> None:
        super().update(update)
        self._phase = FINISHING if update.done >= 1 else ""

    def phase(self, text: str) -> None:
        super().phase(text)
        self._phase = text

    def note(self, text: str) -> None:
        self._note = text  # to print it here could wait for ever: the view is drawn by another thread

    def tell(self, sentence: str) -> None:
        self._console.print(Text(sentence, style="dim"), no_wrap=True, overflow="crop", crop=True)

    def render(self) -> RenderableType:
        """What is on the screen now."""
        last, note = self.level.last, [_detail(self._note)] if self._note else []
        if self._phase or last is None:
            return Group(_row(self._spinner, Text(self._phase)), *note)
        return Group(self._head(last), *(_detail(text) for text in self._details(last)), *note)

    def _head(self, last: Update) -> Table:
        left = self._pace.left(self.level)
        return _row(
            self._spinner,
            Text(f"{last.stage}, level {last.level:g}, {_count(last)} of {last.limit}", style="bold"),
            ProgressBar(total=1.0, completed=last.done, width=BAR),
            Text("" if left is None else f"{duration(left)} left"),
        )

    def _details(self, last: Update) -> Iterator[str]:
        level = self.level
        step = "" if last.step_vox is None else f"step {last.step_vox:.2f} voxels   "
        yield f"cost {number(last.cost, 4)}  {sparkline(level.costs, SPARKS, self._blocks)}"
        yield f"{step}damping {last.damping:.3g}   {len(level.costs)} kept, {level.rejected} rejected"


@contextmanager
def screen(console: Console) -> Iterator[Screen]:
    """A live view for the time of a block; only its lines stay."""
    view = Screen(console)
    live = Live(
        get_renderable=view.render, console=console, transient=True, refresh_per_second=FRAMES_PER_SECOND, screen=False
    )
    with live:
        yield view
        view.close()


def duration(seconds: float) -> str:
    """Seconds for people: "8 s", "2 min 5 s"."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def _count(last: Update) -> int:
    """Iterations so far; the last word on the last of them is told after the limit."""
    return min(last.iteration + 1, last.limit)


def _clock_before(level: LevelCourse, update: Update) -> float:
    """What the clock said when `level` ended; 0 if the update is of a stage with a clock of its own."""
    last = level.last
    if last is None or (last.stage == "deformable") != (update.stage == "deformable"):
        return 0.0
    return last.seconds if last.seconds <= update.seconds else 0.0


def _row(*cells: RenderableType) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_row(*cells)
    return row


def _detail(text: str) -> Text:
    return Text(f"  {text}", no_wrap=True, overflow="crop")
