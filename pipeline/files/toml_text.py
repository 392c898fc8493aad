"""TOML that people write, read in a time that grows with its length."""

from __future__ import annotations

import re
import tomllib
from typing import Any

# parts of a dotted key: the time of tomllib grows with their square, and no file here has more than five
_PARTS_MAX = 100
_LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_PARTS_MAX}}}""")


def parsed_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        ValueError: the text is no TOML, or has a key of more than _PARTS_MAX parts; the message says where.
        RecursionError: it is nested too deeply.
    """
    if found := _LONG_KEY.search(text):
        raise ValueError(f"a key of more than {_PARTS_MAX} parts (at line {text.count(chr(10), 0, found.start()) + 1})")
    return tomllib.loads(text)
