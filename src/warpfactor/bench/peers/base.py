"""Description of another registration tool."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from warpfactor.bench.run.task import Task, TaskResult
from warpfactor.errors import InputError


@dataclass(frozen=True)
class Peer:
    """Another registration tool.

    Attributes:
        name: Name as a method.
        description: Description in one line.
        module: Module to import.
        package: Package to install.
        settings: Default settings, which a method may change by name.
        run: Performs the registration; called in a process of its own.
        takes_masks: Whether the tool supports masks.
    """

    name: str
    description: str
    module: str
    package: str
    settings: Mapping[str, Any]
    run: Callable[[Task], TaskResult]
    takes_masks: bool = True

    def check(self) -> None:
        """Raise an InputError if the tool is not installed."""
        if importlib.util.find_spec(self.module) is None:
            raise InputError(
                f"Method {self.name!r} needs {self.package}, which is not installed; "
                "install it in the clone with: pip install '.[peers]'."
            )

    def version(self) -> str:
        """Installed version of the package."""
        return importlib.metadata.version(self.package)


def load(module: str) -> Any:
    """Import a module that has no type annotations."""
    return importlib.import_module(module)
