"""The value of a setting from the text that a user wrote."""

from __future__ import annotations

import json
from typing import Any


def parse_value(text: str) -> Any:
    """JSON if it is that, a list if there are commas, the text itself otherwise; the recipe converts and checks it."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [parse_value(part.strip()) for part in text.split(",")] if "," in text else text
