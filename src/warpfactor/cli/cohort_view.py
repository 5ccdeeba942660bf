"""What commands that run many registrations show: a live view on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from warpfactor.cli import wording
from warpfactor.cli.terminal import BAR_WIDTH, FRAMES_PER_SECOND, print_json

if TYPE_CHECKING:
    from warpfactor.cohort import CohortEvent, Outcome, PlannedRow

LAST = 5  # verdicts that stay on the screen
STYLES = {"green": "green", "amber": "yellow", "red": "red", "failed": "red", "postponed": "yellow"}
_MOST_REASONS = 5


@contextmanager
def cohort_progress(*, quiet: bool, as_json: bool) -> Iterator[Callable[[CohortEvent], None]]:
    """Yield what is to be told of every event of a run."""
    if as_json:
        yield _print_event
    elif quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        view = CohortView()
        with Live(
            get_renderable=view.render,
            console=Console(stderr=True),
            refresh_per_second=FRAMES_PER_SECOND,
            transient=True,
        ) as live:
            yield view.watcher(lambda text: live.console.print(text, markup=False, highlight=False))
    else:
        yield _print_line


def plan_lines(plan: tuple[PlannedRow, ...]) -> list[str]:
    """What a run is going to do and why, in a few lines."""
    todo = Counter(row.why for row in plan if row.needed)
    rest = [row for row in plan if not row.needed]
    failed = [row for row in rest if row.why.startswith("failed")]
    lines = [f"{wording.count(len(plan), 'row')}: {sum(todo.values())} to do, {len(rest) - len(failed)} up to date"]
    lines += [f"  {count} because: {why}" for why, count in todo.most_common(_MOST_REASONS)]
    more = len(todo) - _MOST_REASONS
    if more > 0:
        lines.append(f"  and {wording.count(more, 'other reason')}")
    if failed:
        are = "is" if len(failed) == 1 else "are"
        lines.append(f"  {len(failed)} failed before and {are} not tried again (--retry-failed does)")
    return lines


def outcome_line(outcome: Outcome, left: str = "") -> str:
    """One row that has ended, in one line, with the time left of the run."""
    what = outcome.verdict or outcome.state
    text = f"{outcome.name}: {what}, {wording.duration(outcome.seconds)}{left}"
    return f"{text}; {wording.one_line(outcome.reason)}" if outcome.reason else text


def _print_event(event: CohortEvent) -> None:
    if event.outcome is None:
        plan = [dataclasses.asdict(row) for row in event.plan]
        facts = {"rows": len(event.plan), "needed": event.needed, "workers": event.workers}
        print_json({"event": "plan", **facts, "dashboard": event.address, "plan": plan})
        return
    facts = {"ended": event.ended, "needed": event.needed, "failed": event.failed, "workers": event.workers}
    times = {"elapsed_s": event.seconds, "remaining_s": event.remaining_s}
    print_json({"event": "row", **dataclasses.asdict(event.outcome), **facts, **times})


def _print_line(event: CohortEvent) -> None:
    if event.outcome is None:
        for line in _opening(event):
            typer.echo(line, err=True)
        return
    left = "" if event.remaining_s is None else f", {wording.duration(event.remaining_s)} left"
    typer.echo(f"[{event.ended}/{event.needed}] {outcome_line(event.outcome, left)}", err=True)
    for text in event.outcome.warnings:
        typer.echo(f"  {wording.one_line(text)}", err=True)


def _opening(event: CohortEvent) -> list[str]:
    lines = plan_lines(event.plan)
    if event.workers:
        lines.append(f"  {wording.count(event.workers, 'worker')}{_dashboard(event)}")
    return lines


def _dashboard(event: CohortEvent) -> str:
    return f", dashboard {event.address}" if event.address else ""


class CohortView:
    """Rows, workers, time left and the last verdicts, redrawn several times a second."""

    def __init__(self) -> None:
        self._last: deque[tuple[str, str]] = deque(maxlen=LAST)
        self._event: CohortEvent | None = None

    def watcher(self, tell: Callable[[str], None]) -> Callable[[CohortEvent], None]:
        """What is called with every event; `tell` prints a line above the view."""

        def watch(event: CohortEvent) -> None:
            if event.outcome is None:
                for line in _opening(event):
                    tell(line)
            else:
                kind = event.outcome.verdict or event.outcome.state
                self._last.append((outcome_line(event.outcome), STYLES.get(kind, "")))
            self._event = event

        return watch

    def render(self) -> RenderableType:
        """What is on the screen now."""
        event = self._event
        if event is None:
            return Text("checking the rows, starting the workers")
        head = Table.grid(padding=(0, 1))
        left = "" if event.remaining_s is None else f"{wording.duration(event.remaining_s)} left"
        failed = f", {event.failed} failed" if event.failed else ""
        head.add_row(
            ProgressBar(total=max(event.needed, 1), completed=event.ended, width=BAR_WIDTH),
            Text(f"{event.ended} of {wording.count(event.needed, 'row')}{failed}", style="bold"),
            Text(wording.count(event.workers, "worker")),
            Text(left),
        )
        return Group(head, *(Text(f"  {line}", style=style, no_wrap=True) for line, style in self._last))
