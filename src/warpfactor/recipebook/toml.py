"""TOML: reading by the standard library, and a writer for what settings consist of."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ParseError = tomllib.TOMLDecodeError
parse = tomllib.loads


def write(data: Mapping[str, Any]) -> str:
    """TOML text of nested dictionaries, lists of dictionaries and plain values; None is left out."""
    return "\n".join(_table(data, "")).strip() + "\n"


def _table(data: Mapping[str, Any], path: str) -> Iterator[str]:
    tables = {key: value for key, value in data.items() if isinstance(value, Mapping) or _is_list_of_tables(value)}
    for key, value in data.items():
        if key not in tables and value is not None:
            yield f"{key} = {_value(value)}"
    for key, value in tables.items():
        name = f"{path}.{key}" if path else key
        for entry in value if isinstance(value, list) else [value]:
            yield f"\n[[{name}]]" if isinstance(value, list) else f"\n[{name}]"
            yield from _table(entry, name)


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
