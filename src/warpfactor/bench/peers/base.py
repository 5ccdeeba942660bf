"""Peer: another tool, how to run it, and whether it is here."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from warpfactor.bench.run.outcome import Outcome, Task
from warpfactor.errors import InputError


@dataclass(frozen=True)
class Peer:
    """Another registration tool.

    Attributes:
        name: as a method.
        description: one line.
        module: what is imported.
        package: what is installed, and named in messages.
        settings: defaults; a method may change them by name.
        run: registers; called in a process of its own.
        takes_masks: whether it can.
    """

    name: str
    description: str
    module: str
    package: str
    settings: Mapping[str, Any]
    run: Callable[[Task], Outcome]
    takes_masks: bool = True

    def check(self) -> None:
        """InputError if the tool is not installed."""
        if importlib.util.find_spec(self.module) is None:
            raise InputError(
                f"Method {self.name!r} needs {self.package}, which is not installed; "
                "in the clone: pip install '.[peers]'."
            )

    def version(self) -> str:
        return importlib.metadata.version(self.package)


def load(module: str) -> Any:
    """A module of a peer; their functions carry no types."""
    return importlib.import_module(module)
