"""Errors that a user can cause, and notices: what speaks against an input or a result, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class WarpfactorError(Exception):
    """Base class of errors that are not errors of this package.

    Each message names the file or value, the problem and a remedy.

    Attributes:
        code: which kind of error it is; programs go by this, people by the message.
    """

    code = "error"


class InputError(WarpfactorError):
    """An image, mask, transform or parameter that cannot be used."""

    code = "input"


class FileError(WarpfactorError):
    """A file or folder that cannot be read or written."""

    code = "file"


class FolderInUseError(FileError):
    """A file or folder that another run is writing."""

    code = "in_use"


class OutOfMemoryError(WarpfactorError, MemoryError):
    """Work that needs more memory than there is."""

    code = "memory"


class RankError(WarpfactorError):
    """A process of a registration on several ended before the registration did, or could not be reached."""

    code = "rank"


class Cancelled(WarpfactorError):  # noqa: N818 - nothing went wrong
    """Raise it in `progress` or `on_read` to end a registration without a result."""

    code = "cancelled"


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
