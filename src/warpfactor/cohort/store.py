"""The folder of a cohort: where results, failures and claims are.

OUT/<name>/              the result of a row, as `register` leaves it
OUT/.cohort/failed/      a record of every row that failed
OUT/.cohort/claims/      who is working on a row, and how many workers have died over it
"""

from __future__ import annotations

import glob
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfactor.cohort.identity import Identity
from warpfactor.errors import FileError, WarpfactorError
from warpfactor.io import atomic_path
from warpfactor.io.claims import claimed
from warpfactor.io.jsontext import json_text
from warpfactor.registration.folder import read_entries

OWN = ".cohort"
ENTRY = "cohort"  # of result.json
DERIVATIVES = "bids"


@dataclass(frozen=True)
class Store:
    """The output folder of a cohort.

    Attributes:
        folder: what the user named.
    """

    folder: Path

    def result(self, name: str) -> Path:
        """Result folder of a row."""
        return self.folder / name

    def failure_file(self, name: str) -> Path:
        """Record of a row that failed."""
        return self.folder / OWN / "failed" / f"{name}.json"

    def prepare(self) -> None:
        """Make the folders; FileError if that cannot be done."""
        claims = self.folder / OWN / "claims"
        try:
            claims.mkdir(parents=True, exist_ok=True)
            self.failure_file("x").parent.mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(f"{self.folder}: the folder cannot be created ({error.strerror or error}).") from error

    @contextmanager
    def claim(self, name: str) -> Iterator[None]:
        """Hold a row, so that no other process works on it; wait while another one does.

        What a killed process has left of the row under temporary names is removed.
        """
        with claimed(self.folder / OWN / "claims" / name, lambda: False):
            self._sweep(name)
            yield

    @contextmanager
    def tried(self, name: str) -> Iterator[None]:
        """Count a try of a row; the count stays only if the process dies before the end of the block."""
        count = self._count_file(name)
        with suppress(OSError):  # a full disk is no reason not to try
            count.write_text(str(self.deaths(name) + 1), encoding="ascii")
        try:
            yield
        finally:
            count.unlink(missing_ok=True)

    def deaths(self, name: str) -> int:
        """How many workers have died while they were at work on a row."""
        try:
            return int(self._count_file(name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    def forget_deaths(self, name: str) -> None:
        """Begin to count anew."""
        self._count_file(name).unlink(missing_ok=True)

    def _count_file(self, name: str) -> Path:
        return self.folder / OWN / "claims" / f"{name}.tries"

    def finished(self, name: str) -> Identity | None:
        """What the result of a row was made of; None if there is no complete result of a cohort."""
        try:
            entries = read_entries(self.result(name))
        except WarpfactorError:
            return None
        return Identity.from_dict(entries.get(ENTRY, {}))

    def failure(self, name: str) -> dict[str, Any] | None:
        """The record of a row that failed; None if there is none."""
        try:
            found: dict[str, Any] = json.loads(self.failure_file(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found

    def write_failure(self, name: str, entries: Mapping[str, Any]) -> None:
        """Record that a row failed."""
        with atomic_path(self.failure_file(name), force=True) as temporary:
            temporary.write_text(json_text(entries), encoding="utf-8")

    def forget_failure(self, name: str) -> None:
        """Remove the record of a failure."""
        self.failure_file(name).unlink(missing_ok=True)

    def _sweep(self, name: str) -> None:
        left = re.compile(rf"\.[0-9a-f]{{8}}-{re.escape(name)}")
        for place in self.folder.glob(f".*-{glob.escape(name)}"):
            if left.fullmatch(place.name):
                shutil.rmtree(place, ignore_errors=True)
