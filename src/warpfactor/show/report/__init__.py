"""The report: one self-contained page about a registration, with a verdict in words; and a page over many results.

import warpfactor as wf

result = wf.register("fixed.nii.gz", "moving.nii.gz")
page = wf.report.build(result, fixed="fixed.nii.gz", moving="moving.nii.gz")
page.verdict.level  # "green", "amber" or "red"
page.save("report.html")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from warpfactor.checks.case import Case, from_folder, from_registration
from warpfactor.checks.coarse import Region
from warpfactor.checks.judge import judge
from warpfactor.checks.likeness import align
from warpfactor.checks.regularity import jacobian_of, measure, return_of
from warpfactor.checks.verdict import Check, Verdict
from warpfactor.errors import FileError
from warpfactor.io.atomic import atomic_path
from warpfactor.registration.result import RESULT, Registration, json_text
from warpfactor.registration.sources import inputs_entry
from warpfactor.show.report.page import render
from warpfactor.show.report.summary import REPORT, read_facts
from warpfactor.show.report.views import show

__all__ = ["REPORT", "Check", "PoorerError", "Report", "Verdict", "build", "inputs_entry", "rebuild", "refresh"]


class PoorerError(FileError):
    """An image that the page of a result folder was made with is not to be found; the page stays as it is."""


@dataclass(frozen=True)
class Report:
    """A page and the verdict on it.

    Attributes:
        html: the page, one file that needs nothing else.
        verdict: what was checked and what came out.
    """

    html: str
    verdict: Verdict

    def __repr__(self) -> str:
        return f"Report({self.verdict.level}: {self.verdict.sentence})"

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the page; it appears complete or not at all."""
        with atomic_path(path, force=force) as temporary:
            temporary.write_text(self.html, encoding="utf-8")
        return Path(path)


def build(
    found: Registration,
    *,
    fixed: Any,
    moving: Any,
    fixed_mask: Any = None,
    moving_mask: Any = None,
    extra: Mapping[str, Any] | None = None,
) -> Report:
    """The report of a registration.

    Args:
        found: what `register` returned.
        fixed, moving, fixed_mask, moving_mask: as they were given to `register`.
        extra: more entries of its result.json: labels, landmarks, command.
    """
    images = {"fixed": fixed, "moving": moving, "fixed_mask": fixed_mask, "moving_mask": moving_mask}
    return _report(from_registration(found, **images, extra=extra))


def rebuild(folder: str | Path, *, fixed: str | Path | None = None, moving: str | Path | None = None) -> Report:
    """The report of a result folder, from its files.

    Args:
        folder: that `warpfactor register` or `Registration.save` wrote.
        fixed, moving: the images, if they are no longer where result.json says; without them the page shows what the
            folder holds.
    """
    return _report(from_folder(folder, fixed=fixed, moving=moving))


def refresh(
    folder: str | Path, *, fixed: str | Path | None = None, moving: str | Path | None = None, force: bool = False
) -> Report:
    """Make the report of a result folder again, write it there, and its verdict into result.json.

    Args:
        folder, fixed, moving: as for `rebuild`.
        force: replace a page by one that shows fewer of the images; PoorerError without.
    """
    case = from_folder(folder, fixed=fixed, moving=moving)
    if case.missing and not force and len(case.missing) > _missing_on_page(Path(folder)):
        raise PoorerError(
            f"{folder}: {' '.join(case.missing.values())} The report that is there has it, and was left as it is; "
            "--force replaces it."
        )
    page = _report(case)
    page.save(Path(folder) / REPORT, force=True)
    _write_verdict(Path(folder), case.entries, page.verdict)
    return page


def _missing_on_page(folder: Path) -> int:
    """How many of the two images the page of a folder does without; both if there is no page."""
    facts = read_facts(folder)
    return 2 if facts is None else sum(check["name"] == "Images" for check in facts["verdict"]["checks"])


def _write_verdict(folder: Path, entries: Mapping[str, Any], verdict: Verdict) -> None:
    files = {**entries["files"], "report": REPORT}
    with atomic_path(folder / RESULT, force=True) as temporary:
        text = json_text({**entries, "files": files, "verdict": verdict.to_dict()})
        temporary.write_text(text, encoding="utf-8")


def _report(case: Case) -> Report:
    with _one_torch_thread():
        image = case.fixed if case.fixed is not None else case.warped
        region = Region.whole(case.fixed_grid) if image is None else Region.of(image, case.fixed_mask, case.ops)
        jacobian, back = jacobian_of(case.warp, case.ops), return_of(case)
        views = show(case, region, jacobian, back and back.errors_mm)
        regularity = measure(case, region, jacobian, back)
        del jacobian, back
        alignment = align(case, case.ops)
        verdict = judge(case, alignment, regularity, object_mm=region.size_mm(case.fixed_grid))
        return Report(render(case, views, alignment, regularity, verdict), verdict)


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """The tensors here are small: threads would cost more than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
