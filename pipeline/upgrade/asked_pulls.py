"""The pulls that are answered by both versions: those of a file, those captured, or pulls made for each group and queue of the lake."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.capture.captured_requests import captured_requests
from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.views import ask
from pipeline.replay.replay import At, RequestProfile
from pipeline.replay.replay_job import check_timestamps
from pipeline.replay.replay_run import ReplayOptions
from pipeline.requests.request_file import RequestFile
from pipeline.requests.request_source import read_requests
from pipeline.schema import capture_tables as ct
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings

# DefaultMQPushConsumer.pullBatchSize
_PULL_BATCH_SIZE = 32
# the columns of a request that `replay` reads; a pull that is made has no time and no recorded answer
_REQUEST = (
    *("seq", "consumerGroup", "topic", "queueId", "queueOffset"),
    f"CAST({_PULL_BATCH_SIZE} AS INT) AS maxMsgNums",
    *("filterType", "expression", "FALSE AS registered"),
    *("CAST(NULL AS BIGINT) AS timestamp", "CAST(NULL AS BIGINT) AS recordedMaxOffset"),
)


class Source(Enum):
    """Where the pulls come from."""

    FILE = "file"
    CAPTURED = "captured"
    MADE = "made"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPulls:
    """Pulls to answer.

    Attributes:
        source: where they come from.
        requests: rows as `replay` takes them.
        at: which part of the store they see.
        profile: of the requests.
    """

    source: Source
    requests: DataFrame
    at: At
    profile: RequestProfile


def asked_pulls(broker: OpenedBroker, file: RequestFile | None, settings: BrokerSettings, at: At | None) -> AskedPulls:
    """The pulls of a file, else the captured ones of the broker, else made ones.

    Args:
        broker: the broker whose store answers.
        file: the request file; None without one.
        settings: of the broker.
        at: which part of the store the pulls see; by default captured pulls see it as of their time, others all of it.

    Raises:
        RequestError: a line of the file lacks the time that `at` needs.
        LakeError: `at` needs times, and the pulls are made.
    """
    if file is not None:
        requests = read_requests(broker.lake.spark, file)
        check_timestamps(requests, file, ReplayOptions(at=at or "snapshot"))
        profile = RequestProfile(into_messages=file.has_other_filters, far=file.has_large_max, about=file.lines)
        return AskedPulls(source=Source.FILE, requests=requests, at=at or "snapshot", profile=profile)
    if not broker.table(ct.PULL_REQUEST).isEmpty():
        captured = captured_requests(broker, settings)
        return AskedPulls(source=Source.CAPTURED, requests=captured, at=at or "request-time", profile=RequestProfile())
    if at not in {None, "snapshot"}:
        raise LakeError(f"--at {at}: expected pulls with times, found no captured pulls of broker {broker.name!r}; give --requests FILE")
    return AskedPulls(source=Source.MADE, requests=made_pulls(broker), at="snapshot", profile=RequestProfile(far=False))


def made_pulls(broker: OpenedBroker) -> DataFrame:
    """Pulls of each group on each queue of its topics: at its committed offset, at 0, min - 1, max and max + 1, with the group's filter.

    `seq` numbers them by group, topic, queue and offset. A filter of a Java class, which only the client has, counts as none.
    """
    committed = broker.table(t.CONSUMER_OFFSET).select("consumerGroup", "topic", "queueId", "consumerOffset")
    queues = broker.table(t.QUEUE).select("topic", "queueId", "minOffset", "maxOffset")
    filters = ask(broker.lake, "SELECT * FROM group_filter WHERE NOT classFilterMode").where(broker.is_mine)
    wanted = filters.select("consumerGroup", "topic", F.col("expressionType").alias("filterType"), "expression")
    of_group = committed.select("consumerGroup", "topic").distinct().join(queues, "topic")
    offsets = F.array("consumerOffset", F.lit(0).cast("BIGINT"), F.expr("minOffset - 1"), "maxOffset", F.expr("maxOffset + 1"))
    every = (
        of_group.join(committed, ["consumerGroup", "topic", "queueId"], "left")
        .join(wanted, ["consumerGroup", "topic"], "left")
        .withColumn("queueOffset", F.explode(F.array_distinct(F.filter(offsets, lambda offset: offset >= 0))))
    )
    return _numbered(every)


def committed_pulls(broker: OpenedBroker) -> DataFrame:
    """A pull of each group on each queue at its committed offset, without a filter, in the form of `made_pulls`."""
    committed = broker.table(t.CONSUMER_OFFSET).withColumn("queueOffset", F.col("consumerOffset"))
    none = F.lit(None).cast("STRING")
    return _numbered(committed.where("queueOffset >= 0").withColumns({"filterType": none, "expression": none}))


def _numbered(pulls: DataFrame) -> DataFrame:
    # the number is a hash, so that no sort of all pulls is needed
    key = F.xxhash64("consumerGroup", "topic", "queueId", "queueOffset")
    return pulls.withColumn("seq", key).selectExpr(*_REQUEST)
