"""Reports of results, and a summary of many of them; this module is `warpfactor.report`.

`Registration.report` makes the report of a result in memory, and `Registration.save` writes it. The functions here make
it again from a result folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpfactor.checks.inputs import IMAGE_CHANGED
from warpfactor.checks.limits import AMBER, RANK
from warpfactor.errors import FileError, WarpfactorError
from warpfactor.io import atomic_path, check_free
from warpfactor.registration.case import case_of_folder, case_of_result
from warpfactor.registration.folder import read_entries, write_entries
from warpfactor.registration.provenance import changes, verdict_entry, verdict_stands
from warpfactor.show.report import Report, make_report
from warpfactor.show.report.summary import (
    REPORT,
    RESULT,
    SummaryRow,
    find_results,
    read_facts,
    render_summary,
    unreadable,
)
from warpfactor.show.verdict import HEADLINES, Verdict, WordedCheck
from warpfactor.show.wording import sentence

if TYPE_CHECKING:
    from warpfactor.registration.result import Registration

__all__ = [
    "REPORT",
    "ImageNotFoundError",
    "Report",
    "SummaryRow",
    "Verdict",
    "WordedCheck",
    "failure",
    "rebuild",
    "refresh",
    "report_of",
    "summarise",
    "summary_row",
]


CLAIMED = "The verdict is the one stored with the report; it could not be made again, because an image is missing."


class ImageNotFoundError(FileError):
    """An image that the report of a result folder shows is no longer available; the report is left unchanged."""


def report_of(result: Registration, *, extra: Mapping[str, Any] | None = None) -> Report:
    """The report of a result in memory.

    Args:
        result: what `register` returned.
        extra: more entries of its result.json, such as the scores of labels and landmarks.
    """
    return make_report(case_of_result(result, extra))


def rebuild(folder: str | Path, *, fixed: str | Path | None = None, moving: str | Path | None = None) -> Report:
    """The report of a result folder, made again from its files; nothing is written.

    Args:
        folder: what `warpfactor register` or `Registration.save` wrote.
        fixed, moving: the images, if they are no longer where result.json says; without them the page shows what the
            folder contains.
    """
    with _damage(folder):
        return make_report(case_of_folder(folder, fixed=fixed, moving=moving))


def refresh(
    folder: str | Path, *, fixed: str | Path | None = None, moving: str | Path | None = None, force: bool = False
) -> Report:
    """Make the report of a result folder again, and write it and its verdict into the folder.

    Args:
        folder, fixed, moving: as for `rebuild`.
        force: replace a report even if the new one shows fewer of the images; otherwise ImageNotFoundError is raised.
    """
    place = Path(folder)
    with _damage(folder):
        case = case_of_folder(place, fixed=fixed, moving=moving)
    if case.missing and not force and len(case.missing) > _missing_on_page(place):
        reasons = " ".join(sentence(notice) for notice in case.missing.values())
        raise ImageNotFoundError(
            f"{folder}: {reasons} The existing report shows it and was not changed; force=True (--force) replaces it."
        )
    with _damage(folder):
        report = make_report(case)
    report.save(place / REPORT, force=True)
    files = {**case.entries["files"], "report": REPORT}
    verdict = verdict_entry(report.verdict, case.entries, place)
    write_entries(place, {**case.entries, "files": files, "verdict": verdict})
    return report


@contextmanager
def _damage(folder: str | Path) -> Iterator[None]:
    """Turn what entries of a wrong kind in result.json cause into a FileError."""
    try:
        yield
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise FileError(f"{folder}: its {RESULT} has an entry that is not valid ({reason}).") from error


def summarise(
    folders: Sequence[str | Path],
    output: str | Path,
    *,
    rebuild: bool = False,
    force: bool = False,
    tell: Callable[[str], None] | None = None,
) -> list[SummaryRow]:
    """Write one page that compares many results, the worst first, and return its rows.

    Args:
        folders: result folders, and folders that contain result folders.
        output: the HTML file to write.
        rebuild: make every report again; by default only missing ones, those of an earlier version, and those whose
            files or limits have changed since.
        force: replace an existing file.
        tell: called with a sentence when a report is made or cannot be made as it was.
    """
    check_free(output, force=force)
    rows = [summary_row(place, rebuild=rebuild, tell=tell) for place in find_results(folders)]
    with atomic_path(output, force=force) as temporary:
        temporary.write_text(render_summary(rows, output), encoding="utf-8")
    return rows


def failure(folder: str | Path, error: Exception) -> str:
    """Why there is no report of a folder, as a sentence."""
    if isinstance(error, WarpfactorError):
        return str(error)
    return f"{folder}: The report could not be made ({type(error).__name__}: {error})."


def summary_row(
    folder: Path, *, rebuild: bool = False, tell: Callable[[str], None] | None = None, group: str = ""
) -> SummaryRow:
    """The facts of the report of a folder, which is made if it is missing; a damaged result has a red row.

    Args:
        folder: of the result.
        rebuild: make the report again.
        tell: called with a sentence when a report is made or cannot be made as it was.
        group: with which its figures are taken together.
    """
    say = tell or (lambda _: None)
    try:
        entries = read_entries(folder)
    except WarpfactorError as error:
        return unreadable(folder, str(error))
    changed = changes(entries, folder)
    for notice in changed:
        say(sentence(notice))
    facts = read_facts(folder)
    if rebuild or facts is None or changed or not verdict_stands(entries, folder):
        say(f"making the report of {folder}")
        try:
            refresh(folder)
        except ImageNotFoundError as error:
            say(str(error))
            return _claimed(folder, read_facts(folder), group)
        except Exception as error:  # whatever goes wrong, the other results keep their rows
            return unreadable(folder, failure(folder, error))
        facts = read_facts(folder)
    return unreadable(folder, "Its report cannot be read.") if facts is None else SummaryRow(folder, facts, group)


def _claimed(folder: Path, facts: Mapping[str, Any] | None, group: str) -> SummaryRow:
    """The row of a result whose verdict cannot be made again, because images are missing: it is marked as a claim."""
    if facts is None:
        return unreadable(folder, "Its report cannot be read.")
    verdict = facts["verdict"]
    level = max(verdict["level"], AMBER, key=RANK.__getitem__)
    headline = f"{HEADLINES[level]} (claimed: {verdict['headline'].lower()})"
    marked = {**verdict, "level": level, "headline": headline, "reasons": [CLAIMED, *verdict["reasons"]]}
    return SummaryRow(folder, {**facts, "verdict": marked}, group)


def _missing_on_page(folder: Path) -> int:
    """How many of the two images the report of a folder does not show; both if there is no report."""
    facts = read_facts(folder, any_format=True)
    checks = [] if facts is None else facts["verdict"]["checks"]
    lost = [check for check in checks if check.get("finding") != IMAGE_CHANGED]
    return 2 if facts is None else sum(check.get("code", check["name"].lower()) == "images" for check in lost)
