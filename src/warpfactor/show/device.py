"""The check of a device as one page of text that a user can send."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from warpfactor.checks.device.check import BackendCheck, KernelCheck

MOST_FAILURES = 20  # lines


def device_page(title: str, versions: Mapping[str, str], checks: Sequence[BackendCheck]) -> str:
    """The page.

    Args:
        title: the device's name.
        versions: of everything that can change numbers.
        checks: one per backend.
    """
    lines = [f"Check of the device {checks[0].device} ({title})", ""]
    lines += [f"{name:<12}{version}" for name, version in versions.items()]
    for check in checks:
        lines += ["", *_backend(check)]
    return "\n".join(lines)


def _backend(check: BackendCheck) -> Iterator[str]:
    passed = sum(each.passed for each in check.checks)
    yield f"Backend {check.backend}: {passed} of {len(check.checks)} checks passed"
    shapes = {each.shapes[0] for each in check.checks}
    types = sorted({each.images for each in check.checks})
    yield f"Shapes {', '.join('x'.join(map(str, shape)) for shape in sorted(shapes))}; images {', '.join(types)}"
    if check.bandwidth:
        yield f"A copy of a displacement field moves {check.bandwidth / 1e9:.1f} GB/s"
    yield ""
    yield f"{'operation':<22}{'checks':>8}{'error':>9}{'ms':>10}{'GB/s':>9}{'of copy':>9}"
    times = {each.operation: each for each in check.times}
    for operation, group in groupby(check.checks, key=lambda each: each.problem.operation):
        each = list(group)
        line = f"{operation:<22}{f'{sum(c.passed for c in each)}/{len(each)}':>8}{max(c.error for c in each):>9.2f}"
        timed = times.get(operation)
        if timed is not None and math.isfinite(timed.seconds):
            rate = timed.bytes_moved / timed.seconds
            line += f"{1e3 * timed.seconds:>10.3f}{rate / 1e9:>9.1f}{rate / check.bandwidth:>9.0%}"
        yield line
    yield ""
    yield "error: the largest error, divided by the tolerance; GB/s: the least memory traffic, divided by the time"
    yield from _failures([each for each in check.checks if not each.passed])


def _failures(failed: Sequence[KernelCheck]) -> Iterator[str]:
    if not failed:
        return
    yield ""
    yield "Not passed:"
    for each in failed[:MOST_FAILURES]:
        shapes = " and ".join("x".join(map(str, shape)) for shape in each.shapes)
        yield f"  {each.problem.title}, {shapes}, {each.images}: {each.trouble or f'error {each.error:.3g}'}"
    if len(failed) > MOST_FAILURES:
        yield f"  and {len(failed) - MOST_FAILURES} more"
