"""JSON as text: readable, and without the NaN and infinity that JSON does not have."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any


def json_text(data: Mapping[str, Any]) -> str:
    """Indented JSON with each list of plain values on one line; NaN and infinity become null."""
    text = json.dumps(without_nan(data), indent=1, allow_nan=False)
    return re.sub(r"\[\n\s+([^\[\]{}]*?)\n\s+\]", lambda m: "[" + re.sub(r"\n\s+", " ", m[1]) + "]", text) + "\n"


def without_nan(value: Any) -> Any:
    """Plain data with None in place of NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): without_nan(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
