"""How serious something is, and the tone of each status: the colours of the page mean this, and nothing else."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Tone(StrEnum):
    """How serious a sentence, a status or an ending is."""

    BAD = "bad"
    WARN = "warn"
    GOOD = "good"
    PLAIN = "plain"


# the statuses of group_status, and the states of client
_OF_STATUS: Final = {
    "OK": Tone.GOOD,
    "WARN": Tone.WARN,
    "STOP": Tone.BAD,
    "STALL": Tone.BAD,
    "REWIND": Tone.BAD,
}
# the endings of pull_outcome; any other is a refusal
_OF_OUTCOME: Final = {
    "FOUND": Tone.GOOD,
    "OFFSET_OVERFLOW_ONE": Tone.PLAIN,
    "NO_MESSAGE_IN_QUEUE": Tone.PLAIN,
    "NO_MATCHED_MESSAGE": Tone.PLAIN,
    "NO_ANSWER": Tone.PLAIN,
    "OFFSET_TOO_SMALL": Tone.BAD,
    "OFFSET_OVERFLOW_BADLY": Tone.BAD,
    "OFFSET_FOUND_NULL": Tone.BAD,
    "MESSAGE_WAS_REMOVING": Tone.BAD,
}


def status_tone(status: str) -> Tone:
    """Return the tone of a status of group_status; PLAIN for one that is not known."""
    return _OF_STATUS.get(status, Tone.PLAIN)


def outcome_tone(outcome: str) -> Tone:
    """Return the tone of an ending of pull_outcome: BAD if the broker moved the offset, WARN for a refusal."""
    return _OF_OUTCOME.get(outcome, Tone.WARN)
