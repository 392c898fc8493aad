"""The known names nearest to one that is not known, for what is said of it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """So many known names, the nearest first, however far they are; none where none is known. Upper and lower case are one."""
    spelled = {one.lower(): one for one in known}
    return [spelled[one] for one in get_close_matches(name.lower(), spelled, n=count, cutoff=0.0)]
