"""Forked processes: what a child has to put right before it computes.

`fork` copies one thread of a process. The worker threads of PyTorch do not exist in the child, whose first parallel
operation would wait for them forever. So a forked child computes with one PyTorch thread; the kernels, which do nearly
all of the work, start threads of their own again.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_state = {"forked": False}


def is_forked() -> bool:
    """Whether this process was forked after this package was imported."""
    return _state["forked"]


def renew_after_fork(lock: Any) -> None:
    """Have a lock free in forked children, whichever thread of the parent held it."""
    if hasattr(os, "register_at_fork") and hasattr(lock, "_at_fork_reinit"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)


def _put_right() -> None:
    _state["forked"] = True
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_put_right)
