"""A digest of the kernels' source files, under which compiled kernels are stored (cache.py).

Any kernel may have parts of other files compiled into it, so there is one digest for all files. A file that is saved
while a process imports the kernels would be stored under the wrong digest: later, old machine code would meet a new
caller, and might read or write beyond the end of an array. The digest is therefore taken before any other module of
this package is imported, and compared when all of them are.
"""

import functools
import hashlib
from pathlib import Path

SOURCES = Path(__file__).parents[2]  # the folder of all kernels
OTHERS = "triton"  # a folder in it that no kernel of this package imports


def source_digest() -> str:
    """SHA-256 of the names and contents of all source files that kernels can contain, as hexadecimal text."""
    found = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.py")):  # none, if the package is installed without its sources
        if path.relative_to(SOURCES).parts[0] == OTHERS:
            continue
        try:
            content = path.read_bytes()
        except OSError:  # the file is being saved, or is an editor's link to a file that does not exist
            content = b"unreadable"
        found.update(path.relative_to(SOURCES).as_posix().encode() + content)
    return found.hexdigest()


IMPORTED = source_digest()  # the digest of the sources that this process has imported


@functools.cache
def sources_are_unchanged() -> bool:
    """Whether the source files were the same before and after the kernels were imported.

    The package asks this when its import ends; later calls return the same answer.
    """
    return source_digest() == IMPORTED
