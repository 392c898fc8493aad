"""Which texts are blank in Java.

Source: StringUtils.isBlank and UtilAll.isBlank, which call Character.isWhitespace for each char.
Surprise: U+0085 and the spaces that do not break a line (U+00A0, U+2007, U+202F) are blanks in Python, but not in Java.
"""

from __future__ import annotations

from typing import Final

_NO_BLANKS_IN_JAVA: Final = "\x85\xa0\u2007\u202f"


def is_blank(text: str | None) -> bool:
    """Return whether a text is None, empty or of blanks only."""
    return not text or all(char.isspace() and char not in _NO_BLANKS_IN_JAVA for char in text)
