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

from warpfactor.io.atomic import atomic_path
from warpfactor.register.result import Registration
from warpfactor.report.case import Case, from_folder, from_registration, inputs_entry
from warpfactor.report.checks import judge
from warpfactor.report.coarse import Region
from warpfactor.report.likeness import align
from warpfactor.report.page import render
from warpfactor.report.regularity import jacobian_of, measure
from warpfactor.report.verdict import Check, Verdict
from warpfactor.report.views import show

REPORT = "report.html"

__all__ = ["REPORT", "Check", "Report", "Verdict", "build", "inputs_entry", "rebuild"]


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
    found: Registration, *, fixed: Any, moving: Any, fixed_mask: Any = None, extra: Mapping[str, Any] | None = None
) -> Report:
    """The report of a registration.

    Args:
        found: what `register` returned.
        fixed, moving, fixed_mask: as they were given to `register`.
        extra: more entries of its result.json: labels, landmarks, command.
    """
    return _report(from_registration(found, fixed=fixed, moving=moving, fixed_mask=fixed_mask, extra=extra))


def rebuild(folder: str | Path, *, fixed: str | Path | None = None, moving: str | Path | None = None) -> Report:
    """The report of a result folder, from its files.

    Args:
        folder: that `warpfactor register` or `Registration.save` wrote.
        fixed, moving: the images, if they are no longer where result.json says; without them the page shows what the
            folder holds.
    """
    return _report(from_folder(folder, fixed=fixed, moving=moving))


def _report(case: Case) -> Report:
    with _one_torch_thread():
        image = case.fixed if case.fixed is not None else case.warped
        region = Region.whole(case.fixed_grid) if image is None else Region.of(image, case.fixed_mask)
        jacobian = jacobian_of(case.warp)
        views = show(case, region, jacobian)
        regularity = measure(case, region, jacobian)
        alignment = align(case)
        verdict = judge(case, alignment, regularity)
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
