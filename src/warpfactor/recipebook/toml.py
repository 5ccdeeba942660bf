"""Reading and writing of TOML."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import tomli_w

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ParseError = tomllib.TOMLDecodeError
parse = tomllib.loads

# tomli-w writes every element of a list on its own line, indented; only lists are written like this.
_LIST = re.compile(r"\[\n((?: {4}.*,\n)+)\]")


def write(data: Mapping[str, Any]) -> str:
    """Return nested dictionaries as TOML text, each list on one line. TOML has no null, so None is left out."""
    return _LIST.sub(_on_one_line, tomli_w.dumps(_without_none(data)))


def _on_one_line(found: re.Match[str]) -> str:
    return "[" + ", ".join(line.strip().removesuffix(",") for line in found[1].splitlines()) + "]"


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(entry) for key, entry in value.items() if entry is not None}
    return [_without_none(entry) for entry in value] if isinstance(value, (list, tuple)) else value
