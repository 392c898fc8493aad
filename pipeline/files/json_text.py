"""Makes JSON that UTF-8 can write, from any text of a file."""

from __future__ import annotations

import json
from typing import Any


def json_text(value: Any, *, separators: tuple[str, str] | None = None) -> str:
    """A value as JSON; half of a surrogate pair, which UTF-8 cannot write, stays an escape."""
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=separators)
    return text
