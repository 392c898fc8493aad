"""What a report covers: the lake, its brokers, what the command line narrows it to, and which data the lake has of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.delta.delta_sql import literal
from pipeline.lake.asking import Row
from pipeline.report.window import Window
from pipeline.settings.quantities import LAST_OF_YEAR_9999, utc_time
from store_format.errors import UnusableInputError


class ReportArgumentError(UnusableInputError, ValueError):
    """A report got an argument that it cannot use; the message names the option, the field of the address, or the argument of Python."""


def require_span(since: int | None, until: int | None, *, named: tuple[str, str]) -> None:
    """Check that both times are from 1970 to the year 9999, and that the first comes before the second.

    Args:
        since: begin of the time, ms since 1970; None if it is not given.
        until: end of the time, likewise.
        named: the names of the two times for the user.

    Raises:
        ReportArgumentError: a time is out of range, or the first does not come before the second.
    """
    for name, stamp in zip(named, (since, until), strict=True):
        if stamp is not None and not 0 <= stamp <= LAST_OF_YEAR_9999:
            found = f"{stamp} ms since 1970; leave {name} out for no limit"
            raise ReportArgumentError(f"{name}: expected a time from 1970 to the year 9999, found {found}")
    if since is not None and until is not None and since >= until:
        raise ReportArgumentError(f"{named[0]}: expected a time before that of {named[1]}, found {_text(since)} and {_text(until)}")


def _text(stamp: int) -> str:
    return f"{utc_time(stamp):%Y-%m-%d %H:%M:%S}.{stamp % 1000:03} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a report is narrowed to; None for a field that does not narrow the report.

    Attributes:
        broker: the only broker.
        group: the only consumer group.
        topic: the only topic.
        since: begin of the time of pulls, commits, observations and stored messages, ms since 1970.
        until: end of this time, ms since 1970; not in it.
    """

    broker: str | None = None
    group: str | None = None
    topic: str | None = None
    since: int | None = None
    until: int | None = None

    @property
    def is_timed(self) -> bool:
        """Whether the time is narrowed."""
        return self.since is not None or self.until is not None


@dataclass(frozen=True, slots=True)
class Scope:
    """The lake and the brokers of a report, and the data that the lake has of them.

    Attributes:
        lake: path of the lake, quoted for a shell.
        brokers: names of the reported brokers.
        only: what the report is narrowed to.
        imported: whether the lake has an imported store of one of the brokers.
        stored: time span of the messages that the store has; None without any.
        observed: time span of lag_history; None with fewer than two observations.
        captured: time span of captured pulls; None without any.
        untimed: whether pulls were captured, but all of them before 1970 or after the year 9999.
        replayed: whether the lake has a finished replay, with pulls of what the report covers.
    """

    lake: str
    brokers: Sequence[str]
    only: Filters = Filters()
    imported: bool = False
    stored: Window | None = None
    observed: Window | None = None
    captured: Window | None = None
    untimed: bool = False
    replayed: bool = False

    @property
    def source(self) -> str | None:
        """The source of pulls, as the views name it: captured pulls if there are any, else replayed ones; None if there are neither."""
        if self.captured is not None or self.untimed:
            return "CAPTURED"
        return "REPLAYED" if self.replayed else None

    def of_broker(self, word: str = "WHERE", column: str = "brokerName") -> str:
        """Return SQL with `word` (WHERE or AND) that keeps the broker's rows; "" if all brokers are reported."""
        return "" if self.only.broker is None else f"{word} {column} = {literal(self.only.broker)}"

    def rows(self, word: str = "WHERE", *, millis: str | None = None, micros: str | None = None) -> str:
        """Return SQL that keeps the report's rows of a table with brokerName, consumerGroup and topic; "" for all.

        Args:
            word: WHERE or AND.
            millis: column with the time of a row, ms since 1970; None for a row without time.
            micros: likewise in microseconds.
        """
        return _all(word, *self._names("brokerName", "consumerGroup", "topic"), *self._times(millis, micros))

    def topics(self, word: str = "WHERE", *, millis: str | None = None) -> str:
        """Return SQL like `rows` for a table with brokerName and topic: the topics on which the group has an offset."""
        consumed = []
        if self.only.group is not None:
            group = literal(self.only.group)
            consumed = [f"(brokerName, topic) IN (SELECT brokerName, topic FROM consumer_offset WHERE consumerGroup = {group})"]
        return _all(word, *self._names("brokerName", "topic"), *consumed, *self._times(millis, None))

    def groups(self, word: str = "WHERE") -> str:
        """Return SQL like `rows` for a table with brokerName and consumerGroup; a topic does not narrow it."""
        return _all(word, *self._names("brokerName", "consumerGroup"))

    def _names(self, *columns: str) -> list[str]:
        given = {"brokerName": self.only.broker, "consumerGroup": self.only.group, "topic": self.only.topic}
        return [f"{column} = {literal(name)}" for column in columns if (name := given[column]) is not None]

    def _times(self, millis: str | None, micros: str | None) -> list[str]:
        column, unit = (micros, 1000) if millis is None else (millis, 1)
        if column is None:
            return []
        since, until = self.only.since, self.only.until
        begin = [] if since is None else [f"{column} >= {since * unit}"]
        return begin + ([] if until is None else [f"{column} < {until * unit}"])

    def label(self, row: Row, *columns: str) -> str:
        """Return a row's names as one text, the broker's first if several brokers are reported."""
        names = ["brokerName"] * (len(self.brokers) > 1) + list(columns)
        return " / ".join(str(row[one]) for one in names)


def _all(word: str, *conditions: str) -> str:
    return f"{word} {' AND '.join(conditions)}" if conditions else ""
