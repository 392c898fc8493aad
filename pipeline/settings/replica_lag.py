"""Slave lag as users write it: the bytes of the log that the slave lacks, or the age of its copy.

Broker source (4.9.3): HAService; a slave has a prefix of its master's log, and dispatches the messages in it that are whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.settings.quantities import duration_in_seconds, size_in_bytes

_MOST: Final = 1 << 62  # more bytes than any log has
_SECONDS_MAX: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """Slave lag in bytes or in time; both are 0 where the slave has all that its master has.

    Attributes:
        bytes: at the end of the master's log.
        millis: since the moment that the slave has the store of.
    """

    bytes: int = 0
    millis: int = 0

    @classmethod
    def of(cls, text: str) -> Behind:
        """The slave lag of a text: a size such as 64M, or a time such as 500ms, 2s or 5m.

        Raises:
            ValueError: neither.
        """
        try:
            if (seconds := duration_in_seconds(text)) is not None and seconds <= _SECONDS_MAX:
                return cls(millis=round(seconds * 1000))
            return cls(bytes=min(size_in_bytes(text), _MOST))
        except ValueError:
            message = f"expected bytes such as 64M (of 1024), or a time such as 500ms or 2s, found {text!r}"
            raise ValueError(message) from None

    def as_texts(self) -> dict[str, str]:
        """What a run keeps of it beside its settings."""
        told = [f"{count} {unit}" for count, unit in ((self.bytes, "bytes"), (self.millis, "ms")) if count]
        return {"behind": told[0]} if told else {}


NOT_BEHIND: Final = Behind()
