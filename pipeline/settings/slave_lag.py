"""Slave lag: the bytes of the master's log that a slave does not have yet, or the age of its copy.

Broker source (4.9.3): HAService; a slave has a prefix of its master's log, and dispatches the complete messages in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.settings.quantities import duration_in_seconds, size_in_bytes

_MOST: Final = 1 << 62  # more bytes than any log has
_SECONDS_MAX: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveLag:
    """Slave lag in bytes or in time; both are 0 if the slave has all that its master has.

    Attributes:
        bytes: length of the end of the master's log that the slave does not have.
        millis: age of the slave's copy: it has what the master had this long ago.
    """

    bytes: int = 0
    millis: int = 0

    @classmethod
    def of(cls, text: str) -> SlaveLag:
        """The slave lag that a text gives: a size like 64M, or a time like 500ms, 2s or 5m.

        Raises:
            ValueError: the text is neither a size nor a time.
        """
        try:
            if (seconds := duration_in_seconds(text)) is not None and seconds <= _SECONDS_MAX:
                return cls(millis=round(seconds * 1000))
            return cls(bytes=min(size_in_bytes(text), _MOST))
        except ValueError:
            message = f"expected bytes such as 64M (of 1024), or a time such as 500ms or 2s, found {text!r}"
            raise ValueError(message) from None

    def as_texts(self) -> dict[str, str]:
        """The lag as an entry of a run's settings (replay_run.settings); empty if there is no lag."""
        texts = [f"{count} {unit}" for count, unit in ((self.bytes, "bytes"), (self.millis, "ms")) if count]
        return {"behind": texts[0]} if texts else {}


NO_SLAVE_LAG: Final = SlaveLag()
