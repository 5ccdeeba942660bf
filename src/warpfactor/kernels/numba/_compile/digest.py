"""What the kernels' sources were when the first of them was imported, and whether all that was imported is of them.

Compiled kernels are kept under a digest of the sources (cache.py). A file that is saved while a process imports would
go with the wrong digest: old machine code would meet a new caller, which may read and write outside of an array.
So the digest is taken before any other module of this package is read, and compared once all of them are.
"""

import functools
import hashlib
from pathlib import Path

SOURCES = Path(__file__).parents[2]  # all kernels


def digest() -> str:
    """Of the sources of all kernels: each may have others compiled into it."""
    found = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.py")):  # none if installed without sources: the version has to do
        try:
            content = path.read_bytes()
        except OSError:  # just being saved, or an editor's link to nowhere
            content = b"unreadable"
        found.update(path.name.encode() + content)
    return found.hexdigest()


IMPORTED = digest()


@functools.cache
def are_steady() -> bool:
    """Whether the sources were the same before and after the kernels were imported; asked when they are."""
    return digest() == IMPORTED
