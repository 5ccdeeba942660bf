"""Where the images of a registration were, so that its report can be made again from files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def sources_of(**given: Any) -> dict[str, Path]:
    """The absolute paths among what `register` was given, by name; of several channels that of the first."""
    first = {name: _first(source) for name, source in given.items()}
    return {name: Path(source).absolute() for name, source in first.items() if isinstance(source, (str, Path))}


def inputs_entry(folder: str | Path, **paths: str | Path | None) -> dict[str, Any]:
    """The entry "inputs" of result.json: where each image was, absolute and seen from the result folder.

    Args:
        folder: of the result, where it will be in the end.
        paths: by name: "fixed", "moving", "fixed_mask", "moving_mask"; None is left out.
    """
    return {name: _place(Path(folder), Path(path)) for name, path in paths.items() if path is not None}


def _first(source: Any) -> Any:
    return source[0] if isinstance(source, (list, tuple)) and source else source


def _place(folder: Path, path: Path) -> dict[str, str | None]:
    absolute = path.absolute()
    try:
        relative = Path(os.path.relpath(absolute, folder.absolute())).as_posix()
    except ValueError:  # another drive
        relative = None
    return {"path": str(absolute), "path_from_result": relative}
