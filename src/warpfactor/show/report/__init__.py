"""The report: one self-contained page about a registration, with a verdict in words.

`make_report` makes it from a Case; `Registration.report` and `warpfactor.report` are the ways to it from outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from warpfactor.checks.case import Case
from warpfactor.checks.examine import conclude, region_of
from warpfactor.checks.regularity import inverse_error_of, jacobian_of, measure
from warpfactor.io import atomic_path
from warpfactor.show.report.page import render
from warpfactor.show.report.views import make_views
from warpfactor.show.verdict import Verdict


@dataclass(frozen=True)
class Report:
    """A page about a registration, and the verdict on it.

    Attributes:
        html: the page, a single file that loads nothing.
        verdict: all checks, and the worst of them.
    """

    html: str
    verdict: Verdict

    def __repr__(self) -> str:
        return f"Report({self.verdict.level}: {self.verdict.sentence})"

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the page to a file, which appears complete or not at all.

        Args:
            path: the file, usually report.html.
            force: replace an existing file.
        """
        with atomic_path(path, force=force) as temporary:
            temporary.write_text(self.html, encoding="utf-8")
        return Path(path)


def make_report(case: Case) -> Report:
    """Check a case and draw its page."""
    with _one_torch_thread():
        region = region_of(case)
        jacobian, inverse = jacobian_of(case.warp, case.ops), inverse_error_of(case)
        views = make_views(case, region, jacobian, inverse and inverse.errors_mm)
        regularity = measure(case, region, jacobian, inverse)
        del jacobian, inverse
        found = conclude(case, region, regularity)
        verdict = Verdict.of(found.checks)
        return Report(render(case, views, found.alignment, regularity, verdict), verdict)


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Limit PyTorch to one thread: the tensors here are small, and threads would cost more than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
