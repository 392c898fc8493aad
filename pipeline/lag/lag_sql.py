"""The queries of `pullsim lag`, which Spark and the embedded engine run, and the line below the table. This module needs no Spark.

Broker source (4.9.3): ConsumerProgressSubCommand.execute of the tools, AdminBrokerProcessor.getConsumeStats.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.delta.delta_sql import literal
from pipeline.lake.lake_errors import UnknownNameError, require_among
from pipeline.settings.quantities import LAST_OF_YEAR_9999
from pipeline.settings.settings import nearest
from udfs.broker.system_groups import CID_RMQ_SYS_PREFIX, SYSTEM_GROUPS

_LAGS = """
SELECT
  brokerName, consumerGroup, topic, queueId, minOffset, brokerOffset, consumerOffset, lag, lagBytes, {millis} AS lagMillis,
  lastConsumedTimestamp, asOf, reason
FROM consume_lag
WHERE {condition}
"""
QUEUE_ORDER: Final = "brokerName, consumerGroup, topic, queueId"
_CONSUMER_PROGRESS = f"""
SELECT
  consumerGroup AS `Group`, topic AS `Topic`, brokerName AS `Broker Name`, queueId AS `QID`, brokerOffset AS `Broker Offset`,
  consumerOffset AS `Consumer Offset`, lag AS `Diff`,
  coalesce(
    CASE
      WHEN lastConsumedTimestamp <= {LAST_OF_YEAR_9999} THEN date_format(timestamp_millis(lastConsumedTimestamp), 'yyyy-MM-dd HH:mm:ss')
    END,
    'N/A'
  ) AS `LastTime`,
  CAST(lagMillis / 1000 AS DECIMAL(20, 3)) AS `Lag Seconds`, lagBytes AS `Lag Bytes`, coalesce(reason, '') AS `Reason`
FROM ({{lags}})
"""
# column, the word for its names, tables of the store with this column, and tables of traffic: a client may ask for any name
_GROUPS: Final = (
    "consumerGroup",
    "consumer group",
    ("consumer_offset", "subscription_group"),
    ("subscription", "offset_history", "pull_request"),
)
_TOPICS: Final = ("topic", "topic", ("consumer_offset", "queue", "topic_config"), ("offset_history", "pull_request"))
# the condition of group_status for a group that is in trouble
IN_TROUBLE: Final = "status IN ('STOP', 'STALL', 'REWIND')"
# the condition of a group that the broker did not make itself
OF_USERS: Final = f"""\
NOT startswith(consumerGroup, {literal(CID_RMQ_SYS_PREFIX)}) AND consumerGroup NOT IN ({", ".join(map(literal, SYSTEM_GROUPS))})"""
# sort key of a status of group_status; the worst status has the least number
WORST_FIRST: Final = "CASE status WHEN 'REWIND' THEN 0 WHEN 'STALL' THEN 1 WHEN 'STOP' THEN 2 WHEN 'WARN' THEN 3 ELSE 4 END"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedLag:
    """The rows of consume_lag that `pullsim lag` shows.

    Attributes:
        broker: only this broker; None for all.
        group: only this consumer group; None for all.
        topic: only this topic; None for all.
        queue: only the queues with this number; None for all.
        until: end of waiting times; None for the time of the store's last message.
        least: only queues in which at least this many messages wait; None for all.
        order: how the rows are sorted, as SQL after ORDER BY, by columns of consume_lag.
    """

    broker: str | None = None
    group: str | None = None
    topic: str | None = None
    queue: int | None = None
    until: dt.datetime | None = None
    least: int | None = None
    order: str = QUEUE_ORDER

    @property
    def queue_lags(self) -> str:
        """The query for the rows of consume_lag."""
        return f"{self._lags}ORDER BY {self.order}"

    @property
    def consumer_progress(self) -> str:
        """The query for the same rows with the column names of mqadmin consumerProgress."""
        return f"{_CONSUMER_PROGRESS.format(lags=self._lags)}ORDER BY {self.order}"

    @property
    def deleted(self) -> str:
        """The query for the number of messages that lag counts and that were deleted before their group consumed them."""
        lost = "greatest(minOffset - greatest(consumerOffset, 0L), 0L)"
        return f"SELECT CAST(coalesce(sum(CASE WHEN lag IS NOT NULL THEN {lost} END), 0) AS BIGINT) AS deleted FROM ({self._lags})"

    @property
    def count(self) -> str:
        """The query for the number of rows."""
        return f"SELECT count(*) AS queues FROM ({self._lags})"

    @property
    def _lags(self) -> str:
        names = {"brokerName": self.broker, "consumerGroup": self.group, "topic": self.topic}
        conditions = [f"{column} = {literal(name)}" for column, name in names.items() if name is not None]
        if self.queue is not None:
            conditions.append(f"queueId = {self.queue}")
        if self.least is not None:
            conditions.append(f"lag >= {self.least}")
        millis = "lagMillis"
        if self.until is not None:
            waited = f"try_add(lagMillis, try_subtract({int(self.until.timestamp() * 1000)}L, asOf))"
            millis = f"CASE WHEN lag = 0 THEN lagMillis ELSE {waited} END"
        return _LAGS.format(millis=millis, condition=" AND ".join(conditions) or "true")


def groups_with_lag(least: int, *columns: str) -> str:
    """The condition that at least `least` messages wait in the queues with the same values of some columns of consume_lag.

    A queue whose offset lies past the end counts as 0; in the sums lag and groupDiff of the views it hides messages of other queues.
    """
    key = ", ".join(columns)
    waiting = "coalesce(try_sum(greatest(lag, 0L)), 9223372036854775807)"
    return f"({key}) IN (SELECT {key} FROM consume_lag GROUP BY {key} HAVING {waiting} >= {least})"


def check_names(
    root: str, known: Callable[[str, Sequence[str]], Sequence[str]], *, group: str | None, topic: str | None, broker: str | None
) -> None:
    """Check that a lake has a consumer group, a topic and a broker; None for no check.

    Args:
        root: path of the lake.
        known: returns the sorted names in a column of tables.
        group: name of a consumer group.
        topic: name of a topic.
        broker: name of a broker.

    Raises:
        UnknownNameError: the lake lacks one of them; the message has the most similar names of the store, else of traffic.
    """
    if broker is not None:
        require_among(root, broker, known("brokerName", ("broker",)))
    for given, (column, what, stored, asked) in ((group, _GROUPS), (topic, _TOPICS)):
        if given is not None and given not in known(column, (*stored, *asked)):
            near = ", ".join(map(repr, nearest(given, known(column, stored) or known(column, asked))))
            hint = f"the nearest known: {near}" if near else f"it knows no {what} at all"
            raise UnknownNameError(f"the lake knows no {what} {given!r}; {hint}")


def diff_total(diffs: Sequence[int | None], deleted: int = 0) -> str:
    """Return the line below the table: the sum of known lags, how much of it is deleted, and how many queues have unknown or negative lag.

    Args:
        diffs: lag of each queue, None if it is unknown.
        deleted: messages that the lags count and that were deleted before their group consumed them.
    """
    known = [diff for diff in diffs if diff is not None]
    below = [diff for diff in known if diff < 0]
    notes = []
    if not diffs:
        notes.append("no stored offset matches")
    if deleted:
        notes.append(f"{deleted} of them deleted before they were consumed, see pullsim retention")
    if len(known) < len(diffs):
        notes.append(f"{len(diffs) - len(known)} of {len(diffs)} queues left out: their lag is not known")
    if below:
        notes.append(f"{len(below)} of {len(diffs)} queues below zero take {-sum(below)} off")
    return f"Diff Total: {sum(known)}" + (f" ({'; '.join(notes)})" if notes else "")
