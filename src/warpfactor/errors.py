"""Errors that a user can cause, and notices: what speaks against an input or a result, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class WarpfactorError(Exception):
    """Base class of the errors that a user can cause and correct.

    Each message names the file or value, the problem and a remedy.

    Attributes:
        code: which kind of error it is; programs go by this, people by the message.
    """

    code = "error"


class InputError(WarpfactorError):
    """An image, mask, transform or parameter cannot be used."""

    code = "input"


class FileError(WarpfactorError):
    """A file or folder cannot be read or written."""

    code = "file"


class FolderInUseError(FileError):
    """Another run is writing to this file or folder."""

    code = "in_use"


class OutOfMemoryError(WarpfactorError, MemoryError):
    """A computation needs more memory than is available."""

    code = "memory"


class RankError(WarpfactorError):
    """One of several processes that share a registration ended too early, or could not be reached."""

    code = "rank"


class Cancelled(WarpfactorError):  # noqa: N818 - nothing went wrong
    """Raise it in `progress` or `on_read` to end a registration without a result."""

    code = "cancelled"


@dataclass(frozen=True)
class Notice:
    """A warning about an input or a result, as a code with facts.

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
