"""Sizes as people write them on the command line."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(?P<number>\d{1,18}(?:\.\d{1,6})?)(?P<unit>[KMGTP]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {unit: 1024**power for power, unit in enumerate(("", "K", "M", "G", "T", "P"))}


def size_in_bytes(text: str) -> int:
    """Bytes of a text such as 500G, 1.5T or 64KiB; units are powers of 1024.

    Raises:
        ValueError: it is no size.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        message = f"expected bytes such as 500G or 1.5T (of 1024), found {text!r}"
        raise ValueError(message)
    return int(float(found["number"]) * _UNITS[found["unit"].upper()])
