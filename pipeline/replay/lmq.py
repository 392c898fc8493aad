"""The limit on the number of light message queues (LMQ): when it is reached, the store answers null.

Broker source (4.9.3): DefaultMessageStore.getMessage, isLmqConsumeQueueNumExceeded, findConsumeQueue and putConsumeQueue.
A broker 5.5.0 has no such limit for pulls.
Surprise: at the start, the broker counts the topics that begin with %LMQ%. Each pull of a queue that does not exist adds one to the count,
so a pull can change the answers to later pulls.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import tables as t
from pipeline.settings.settings import PullSettings
from store_format.layout import LMQ_PREFIX

_REQUEST_COLUMNS = frozenset({"seq", "topic", "queueId", "consumerGroup", "queueOffset", "maxMsgNums"})


def has_lmq_limit(settings: PullSettings) -> bool:
    """Whether the number of light message queues is limited for pulls."""
    return settings.rules.light_queues_are_limited and settings.enable_lmq and settings.enable_multi_dispatch


def beyond_lmq_limit(broker: OpenedBroker, requests: DataFrame, settings: PullSettings) -> Callable[[DataFrame], DataFrame] | None:
    """A function that replaces the answers to pulls over the LMQ limit by null answers; None if no pull is over the limit."""
    if not has_lmq_limit(settings):
        return None
    of_lmq = F.col("topic").startswith(LMQ_PREFIX)
    known = broker.table(t.QUEUE).where(of_lmq).select("topic", "queueId")
    loaded = known.select("topic").distinct().count()
    room = settings.max_lmq_consume_queue_num - loaded
    last_seq = -1
    if room >= 0:
        unknown = requests.where(of_lmq).join(known, ["topic", "queueId"], "left_anti")
        created = unknown.groupBy("topic", "queueId").agg(F.min("seq").alias("seq"))
        row = created.orderBy("seq").limit(room + 1).agg(F.count("*"), F.max("seq")).first()
        if row is None or row[0] <= room:
            return None
        last_seq = row[1]

    def to_null(answers: DataFrame) -> DataFrame:
        beyond = of_lmq & (F.col("seq") > last_seq)
        return answers.select(
            *[F.col(name) if name in _REQUEST_COLUMNS else F.when(~beyond, F.col(name)).alias(name) for name in answers.columns]
        )

    return to_null
