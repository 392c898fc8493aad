"""`pullsim retention`: which messages groups will lose to the deletion of old files, when, and which fileReservedTime would prevent it.

This module needs no Spark: either engine runs its queries.

The driver forecasts the deletion of each file of the commit log (one for each GiB). A row for each group and queue, with the queue's
messages in each file, then gets its loss. Columns that need no forecast come from the view retention_risk.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from pipeline.delta.delta_sql import literal
from pipeline.lag.lag_sql import check_names
from pipeline.lake.asking import AskAll, Row, names_with
from pipeline.lake.lake_errors import LakeError
from pipeline.settings.quantities import LAST_OF_YEAR_9999
from pipeline.settings.settings import BrokerSettings, camel_case
from udfs.cleaning.clean_commit_log import HOUR, CleanSettings
from udfs.cleaning.log_retention import Deletion, Disk, LogFile, Outlook, Share, aged_from, file_deletions, loss_of

NOT_DELETED, NO_RATE, IN_TIME, NO_FILE = "NOT_DELETED", "NO_RATE", "IN_TIME", "NO_FILE"
_RISKS = """
WITH risk AS (
  SELECT
    brokerName, consumerGroup, topic, queueId, consumerOffset, minOffset, brokerOffset, lostMessages, {rate} AS consumedPerHour,
    CASE WHEN reason IN ('NO_OFFSET', 'NO_QUEUE', 'NOTHING_WAITS') THEN reason END AS whyNot,
    greatest(consumerOffset, minOffset) AS nextOffset
  FROM retention_risk
  WHERE {condition}
), wanted AS (
  SELECT r.brokerName, r.topic, r.queueId, min(r.nextOffset) AS nextOffset, max(b.mappedFileSizeCommitLog) AS fileSize
  FROM risk r JOIN broker b ON b.brokerName = r.brokerName
  WHERE r.whyNot IS NULL
  GROUP BY r.brokerName, r.topic, r.queueId
), share AS (
  SELECT
    e.topic, e.queueId, e.physicOffset - e.physicOffset % w.fileSize AS from_offset,
    min(e.queueOffset) AS first, max(e.queueOffset) + 1 AS end, CAST(sum(e.size) AS BIGINT) AS size
  FROM consume_queue e
  JOIN wanted w
    ON e.brokerName = w.brokerName AND e.topic = w.topic AND e.queueId = w.queueId AND e.queueOffset >= w.nextOffset
  WHERE e.size < 2147483647
  GROUP BY ALL
), shares AS (
  SELECT topic, queueId, array_sort(collect_list(struct(from_offset, first, end, size))) AS shares
  FROM share
  GROUP BY topic, queueId
)
SELECT r.*, s.shares
FROM risk r
LEFT JOIN shares s ON s.topic = r.topic AND s.queueId = r.queueId"""
# columns by which rows are sorted, NULL last
_ORDER = ("lossAt", "deletedAt", "brokerName", "consumerGroup", "topic", "queueId")
# columns of `_risks` that the rows have too, and those that the forecast adds
_KNOWN = (
    "brokerName",
    "consumerGroup",
    "topic",
    "queueId",
    "consumerOffset",
    "minOffset",
    "brokerOffset",
    "lostMessages",
    "consumedPerHour",
)
_FORECAST = ("nextFile", "deletedAt", "cause", "lossAt", "lossMessages", "lossBytes", "minOffsetThen", "neededReservedHours", "reason")
COLUMNS: Final = (*_KNOWN, *_FORECAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionQuestion:
    """The arguments of a forecast of deletions.

    Attributes:
        settings: settings of the broker.
        zone: time zone of the broker's clock.
        group: only this group; None for all.
        topic: only this topic; None for all.
        at: start of the forecast, ms; None for the time of the store's last message.
        rate: messages a second that each group consumes of each queue; None for the rates in lag_history.
        growth: growth of the log, bytes a second; None for the growth in its last day.
        disk_size: bytes of the disk; None for a disk that is never full.
        disk_used: used bytes of the disk; None for the bytes of the store.
    """

    settings: BrokerSettings
    zone: dt.tzinfo
    group: str | None = None
    topic: str | None = None
    at: int | None = None
    rate: float | None = None
    growth: float | None = None
    disk_size: int | None = None
    disk_used: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The forecast of a broker's commit log.

    Attributes:
        outlook: input of the forecast.
        deletions: first offset of a file -> its deletion.
        aging: first offset of a file -> when it begins to age.
        is_by_messages: whether the times of messages replace those of files, because a copy did not keep the files' times.
        kept_for: age of the oldest message, ms, if older ones were deleted although it is younger than fileReservedTime; else None.
        grew_for: time in which the growth of the log was measured, ms; None if the growth was given, or there are no messages.
    """

    outlook: Outlook
    deletions: Mapping[int, Deletion]
    aging: Mapping[int, int | None]
    is_by_messages: bool
    kept_for: int | None
    grew_for: int | None


def retention(ask: AskAll, broker: str, question: RetentionQuestion) -> tuple[Forecast, list[Row]]:
    """Return the forecast of a broker's commit log, and rows of COLUMNS for each group and queue; docs/retention.md explains the columns.

    Args:
        ask: runs queries on the lake.
        broker: name of the broker, which the lake has.
        question: the arguments of the forecast.

    Raises:
        LakeError: the lake has no file of the log, not the group or not the topic, or the time or the disk's size is impossible.
    """
    found = _forecast(ask, broker, question)
    [risks] = ask([_risks(broker, question)])
    rows = [{name: row[name] for name in _KNOWN} | dict.fromkeys(_FORECAST) | _loss(found, row) for row in risks]
    return found, first_losses_first(rows)


# broker, group, topic, queue
QueueOfGroup = tuple[str, str, str, int]


def skipped_offsets(ask: AskAll, brokers: Sequence[str], question: RetentionQuestion) -> dict[QueueOfGroup, int]:
    """How many offsets of each queue captured pulls of a group were moved past, because their messages or files were gone.

    The messages at these offsets no longer wait.
    """
    listed = ", ".join(map(literal, brokers))
    conditions = ["source = 'CAPTURED'", f"brokerName IN ({listed})", *_of_names(question)]
    names = "brokerName, consumerGroup, topic, queueId"
    query = f"SELECT {names}, try_sum(lostOffsets) AS skipped FROM offset_correction WHERE {' AND '.join(conditions)} GROUP BY {names}"
    [rows] = ask([query])
    return {(row["brokerName"], row["consumerGroup"], row["topic"], row["queueId"]): row["skipped"] for row in rows if row["skipped"]}


def _of_names(question: RetentionQuestion) -> list[str]:
    """The conditions for the rows of the question's group and topic."""
    asked = {"consumerGroup": question.group, "topic": question.topic}
    return [f"{name} = {literal(value)}" for name, value in asked.items() if value is not None]


def first_losses_first(rows: Iterable[Row]) -> list[Row]:
    """Rows of COLUMNS by the time of their loss, then by that of the deletion, then by name."""
    return sorted(rows, key=lambda row: [(row[name] is None, row[name]) for name in _ORDER])


def _forecast(ask: AskAll, broker: str, question: RetentionQuestion) -> Forecast:
    mine = f"brokerName = {literal(broker)}"
    queries = [
        f"SELECT maxStoreTimestamp, maxPhyOffset FROM broker WHERE {mine}",
        f"""SELECT f.fromOffset, f.mtimeMs, f.length, d.modified
FROM store_file f LEFT JOIN log_file_deletion d ON d.brokerName = f.brokerName AND d.fromOffset = f.fromOffset
WHERE f.{mine} AND f.kind = 'commitlog' ORDER BY f.fromOffset""",
        f"SELECT max(growth) AS growth, max(growthMillis) AS millis FROM log_file_deletion WHERE {mine}",
        f"SELECT CAST(sum(length) AS BIGINT) AS used FROM store_file WHERE {mine}",
        f"SELECT min(minStoreTimestamp) AS oldest FROM commit_log_segment WHERE {mine} AND minStoreTimestamp > 0",
        f"SELECT max(minOffset) AS least FROM queue WHERE {mine}",
    ]
    check_names("", names_with(ask), group=question.group, topic=question.topic, broker=None)
    [known], log, [found], [stored], [kept], [queues] = ask(queries)
    last = known["maxStoreTimestamp"]
    since = last if question.at is None else question.at
    if since is None:
        raise LakeError(f"expected a message of broker {broker!r}, whose time is looked ahead from, found none; give a time with --at")
    if not 0 <= since <= LAST_OF_YEAR_9999:
        raise LakeError(
            f"broker {broker!r}: expected a time from 1970 to the year 9999 to look ahead from, in ms, found {since}; give one with --at"
        )
    if not log:
        raise LakeError(f"expected files of the commit log of broker {broker!r} in store_file, found none; import the store")
    files = [LogFile(row["fromOffset"], _modified(row, since), row["length"]) for row in log]
    growth = found["growth"] if question.growth is None else question.growth
    room = files[-1].from_offset + files[-1].length - known["maxPhyOffset"]
    outlook = Outlook(
        since=since,
        zone=question.zone,
        settings=CleanSettings(**{field.name: question.settings.value(camel_case(field.name)) for field in fields(CleanSettings)}),
        growth=growth,
        fills_at=since + int(room * 1000 / growth) if growth > 0 else None,
        disk=None if question.disk_size is None else _disk(question.disk_size, question.disk_used, stored["used"] or 0),
    )
    age = last - kept["oldest"] if last is not None and kept["oldest"] is not None and (queues["least"] or 0) > 0 else None
    return Forecast(
        outlook=outlook,
        deletions=dict(zip((file.from_offset for file in files), file_deletions(files, outlook), strict=False)),
        aging=aged_from(files, outlook),
        is_by_messages=any(row["modified"] is not None and (row["mtimeMs"] or 0) > row["modified"] for row in log[:-1]),
        kept_for=age if age is not None and age < outlook.settings.file_reserved_time * HOUR else None,
        grew_for=found["millis"] if question.growth is None else None,
    )


def _modified(file: Row, since: int) -> int:
    """When a file of the log was last written to, ms. A file that the broker created at its start has no time; `since` is used for it."""
    if (file["mtimeMs"] or 0) <= 0:
        return since
    return int(file["mtimeMs"] if file["modified"] is None else file["modified"])


def _disk(size: int, used: int | None, stored: int) -> Disk:
    used = stored if used is None else used
    if used > size:
        raise LakeError(
            f"--disk-size: expected {used:,} bytes or more, as so many are used, found {size:,}; give the size of the whole disk"
        )
    return Disk(size, used)


def _risks(broker: str, question: RetentionQuestion) -> str:
    """Return the query for a row for each group and queue, with what `_loss` needs."""
    conditions = [f"brokerName = {literal(broker)}", *_of_names(question)]
    rate = "consumerOffsetPerHour" if question.rate is None else f"CAST('{question.rate * 3600!r}' AS DOUBLE)"
    return _RISKS.format(rate=rate, condition=" AND ".join(conditions))


def _loss(forecast: Forecast, row: Row) -> dict[str, Any]:
    if row["whyNot"]:
        return {"reason": row["whyNot"]}
    mine = [Share(**share) for share in row["shares"] or () if share["end"] > row["nextOffset"]]
    if not mine:
        return {"reason": NO_FILE}
    rate = None if row["consumedPerHour"] is None else row["consumedPerHour"] / 3600
    loss = loss_of(mine, row["nextOffset"], rate, forecast.outlook, forecast.deletions, forecast.aging, row["minOffset"])
    return {
        "nextFile": loss.next_file,
        "deletedAt": loss.deletion.time if loss.deletion else None,
        "cause": loss.deletion.cause if loss.deletion else None,
        "lossAt": loss.loss_at,
        "lossMessages": loss.messages,
        "lossBytes": loss.size,
        "minOffsetThen": loss.min_offset,
        "neededReservedHours": loss.needed_reserved_hours,
        "reason": NO_RATE if rate is None else None if loss.loss_at is not None else IN_TIME if loss.deletion else NOT_DELETED,
    }
