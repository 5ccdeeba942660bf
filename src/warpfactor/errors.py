"""Errors that a user can cause, and notices: what speaks against an input or a result, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class WarpfactorError(Exception):
    """Base class of errors caused by the input. Each message names the file or value, the problem and a remedy."""


class InputError(WarpfactorError):
    """An image, mask, transform or parameter that cannot be used."""


class FileError(WarpfactorError):
    """A file or folder that cannot be read or written."""


@dataclass(frozen=True)
class Notice:
    """Something that speaks against an input or a result.

    Notices travel between the parts of the package; `show.wording.sentence` turns one into a sentence for people.

    Attributes:
        code: which notice it is; the module that makes it defines the code.
        facts: the numbers and names that belong to it, as plain data.
    """

    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The notice as result.json stores it."""
        return {"code": self.code, "facts": dict(self.facts)}
