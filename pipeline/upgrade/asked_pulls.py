"""The pulls that both versions answer: the pulls of a file, captured pulls, or pulls made for each group and queue of the lake."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.capture.captured_requests import captured_requests
from pipeline.capture.driver_captures import captured_pulls_here, captured_requests_here, checked_here
from pipeline.delta.delta_sql import literal
from pipeline.embedded.database import EmbeddedLake
from pipeline.embedded.opened_tables import NotSupportedError
from pipeline.embedded.translation import parsed
from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.views import ask
from pipeline.replay.driver_answers import requests_by_chunks
from pipeline.replay.replay import REQUEST_COLUMNS, At, RequestProfile
from pipeline.replay.replay_job import check_timestamps
from pipeline.replay.replay_run import ReplayOptions
from pipeline.requests.request_file import RequestFile
from pipeline.requests.request_lines import REQUEST_ARROW
from pipeline.requests.request_source import read_requests
from pipeline.schema import capture_tables as ct
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.work import NoSessionError
from pipeline.upgrade.compared_pulls import ComparedPulls, RuleSets, compare_pulls, compare_pulls_here

# the number of a made pull is a digest of these columns, cut to the hex digits that fit a BIGINT
_KEY = ("consumerGroup", "topic", "queueId", "queueOffset")
_DIGITS = 15
# DefaultMQPushConsumer.pullBatchSize
_PULL_BATCH_SIZE = 32
# Pulls of each group on each queue of its topics: at its committed offset, at 0, min - 1, max and max + 1, with the group's filter. A
# filter of a Java class, which only the client has, counts as none.
_MADE = """
SELECT consumerGroup, topic, queueId, queueOffset, filterType, expression FROM (
  SELECT g.consumerGroup, g.topic, q.queueId, f.filterType, f.expression,
    array_distinct(array(c.consumerOffset, CAST(0 AS BIGINT), q.minOffset - 1, q.maxOffset, q.maxOffset + 1)) AS offsets
  FROM (SELECT DISTINCT consumerGroup, topic FROM consumer_offset WHERE brokerName = {broker}) g
  JOIN (SELECT topic, queueId, minOffset, maxOffset FROM queue WHERE brokerName = {broker}) q ON g.topic = q.topic
  LEFT JOIN (SELECT consumerGroup, topic, queueId, consumerOffset FROM consumer_offset WHERE brokerName = {broker}) c
    ON g.consumerGroup = c.consumerGroup AND g.topic = c.topic AND q.queueId = c.queueId
  LEFT JOIN (
    SELECT consumerGroup, topic, expressionType AS filterType, expression FROM group_filter
    WHERE NOT classFilterMode AND brokerName = {broker}
  ) f ON g.consumerGroup = f.consumerGroup AND g.topic = f.topic
) LATERAL VIEW explode(offsets) listed AS queueOffset
WHERE queueOffset >= 0
"""
# a pull of each group on each queue at its committed offset
_COMMITTED = """
SELECT consumerGroup, topic, queueId, consumerOffset AS queueOffset, CAST(NULL AS STRING) AS filterType, CAST(NULL AS STRING) AS expression
FROM consumer_offset WHERE brokerName = {broker} AND consumerOffset >= 0
"""


class Source(Enum):
    """The origin of the pulls."""

    FILE = "file"
    CAPTURED = "captured"
    MADE = "made"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPulls:
    """Pulls to answer.

    Attributes:
        source: the origin of the pulls.
        at: which part of the store the pulls see.
        compared: compares the answers of two rule sets to the pulls.
    """

    source: Source
    at: At
    compared: Callable[[RuleSets], ComparedPulls]


def asked_pulls(broker: OpenedBroker, file: RequestFile | None, settings: BrokerSettings, at: At | None) -> AskedPulls:
    """The pulls of a file; without a file the captured pulls of the broker; without captured pulls made ones.

    Args:
        broker: the broker whose store answers.
        file: the request file; None without one.
        settings: of the broker.
        at: which part of the store the pulls see; by default captured pulls see the store as of their time, others all of it.

    Raises:
        RequestError: a line of the file lacks the time that `at` needs.
        LakeError: `at` needs times, and the pulls are made.
        NoSessionError: there is no session, and only Spark reads a table that is needed.
    """
    source = Source.FILE if file is not None else Source.CAPTURED if _are_captured(broker) else Source.MADE
    if source is Source.MADE and at not in {None, "snapshot"}:
        raise LakeError(f"--at {at}: expected pulls with times, found no captured pulls of broker {broker.name!r}; give --requests FILE")
    at = at or ("request-time" if source is Source.CAPTURED else "snapshot")
    compare = _compared_on_spark if broker.lake.has_session else _compared_here
    return AskedPulls(source=source, at=at, compared=compare(broker, file, source, settings, at))


def _are_captured(broker: OpenedBroker) -> bool:
    if broker.lake.has_session:
        return not broker.table(ct.PULL_REQUEST).isEmpty()
    return len(broker.rows_with(ct.PULL_REQUEST, {}, ["brokerName"])) > 0


def _compared_on_spark(
    broker: OpenedBroker, file: RequestFile | None, source: Source, settings: BrokerSettings, at: At
) -> Callable[[RuleSets], ComparedPulls]:
    profile = RequestProfile(far=False)
    if file is not None:
        requests = read_requests(broker.lake.spark, file)
        check_timestamps(requests, file, ReplayOptions(at=at))
        profile = RequestProfile(into_messages=file.has_other_filters, far=file.has_large_max, about=file.lines)
    elif source is Source.CAPTURED:
        requests, profile = captured_requests(broker, settings), RequestProfile()
    else:
        requests = _numbered(ask(broker.lake, _of(broker, _MADE)))
    return lambda rules: compare_pulls(rules, broker, requests, at=at, profile=profile)


def _compared_here(
    broker: OpenedBroker, file: RequestFile | None, source: Source, settings: BrokerSettings, at: At
) -> Callable[[RuleSets], ComparedPulls]:
    def requests() -> Iterator[pa.Table]:
        if file is not None:
            yield from (some for _, some in requests_by_chunks(file, ReplayOptions(at=at)))
        elif source is Source.CAPTURED:
            pulls = captured_pulls_here(broker)
            yield captured_requests_here(pulls, checked_here(broker, pulls, settings))
        else:
            yield _numbered_here(broker, _MADE)

    return lambda rules: compare_pulls_here(rules, broker, requests(), at=at)


def committed_pulls(broker: OpenedBroker) -> DataFrame:
    """A pull of each group on each queue at its committed offset, without a filter, as rows that `replay` takes."""
    return _numbered(ask(broker.lake, _of(broker, _COMMITTED)))


def committed_pulls_here(broker: OpenedBroker) -> pa.Table:
    """As `committed_pulls`, on the driver: rows of request_lines.SCHEMA."""
    return _numbered_here(broker, _COMMITTED)


def _of(broker: OpenedBroker, query: str) -> str:
    return query.format(broker=literal(broker.name))


def _numbered(pulls: DataFrame) -> DataFrame:
    """Made pulls as requests. The number `seq` is a digest, so that no sort of all pulls is needed."""
    key = F.md5(F.concat_ws("\0", *_KEY).cast("BINARY"))
    seq = F.conv(F.substring(key, 1, _DIGITS), 16, 10).cast("BIGINT")
    none = {name: F.lit(None).cast("BIGINT") for name in ("timestamp", "recordedMaxOffset")}
    every = {"seq": seq, "maxMsgNums": F.lit(_PULL_BATCH_SIZE), "registered": F.lit(False)}
    return pulls.withColumns(every | none).select(*REQUEST_COLUMNS, "filterType", "registered")


def _numbered_here(broker: OpenedBroker, query: str) -> pa.Table:
    """As `_numbered`, for the pulls of a query on the driver.

    Raises:
        NoSessionError: only Spark reads a table of the lake.
    """
    try:
        rows = EmbeddedLake(broker.lake.root, broker.lake.at).table(parsed(_of(broker, query))).to_pylist()
    except NotSupportedError as error:
        raise NoSessionError(str(error)) from error
    for row in rows:
        key = "\0".join(str(row[name]) for name in _KEY).encode()
        row["seq"] = int(hashlib.md5(key, usedforsecurity=False).hexdigest()[:_DIGITS], 16)
        row |= {"maxMsgNums": _PULL_BATCH_SIZE, "registered": False}
    return pa.Table.from_pylist(rows, REQUEST_ARROW)
