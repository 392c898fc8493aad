"""Updates of the table consumer_offset: offsets that groups commit in traffic replace the offsets of the import."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.lake_writer import LakeWriter
from pipeline.schema.tables import CONSUMER_OFFSET

_KEY = ("consumerGroup", "topic", "queueId")


def merge_offsets(writer: LakeWriter, commits: DataFrame, *, order: str) -> None:
    """Let groups commit offsets to the writer's broker; the caller commits the run.

    Broker source (4.9.3): ConsumerOffsetManager.commitOffset. The last offset that comes in stays, even one that is less.

    Args:
        writer: a run that goes on.
        commits: a row a committed offset: consumerGroup, topic, queueId, consumerOffset, and what `order` names. Rows without an offset
            (a query that found none) change nothing.
        order: column that grows from commit to commit of a queue, as the sequence of offset_history does.

    Raises:
        LakeError: another run is writing to the table.
    """
    last = commits.where(F.col("consumerOffset").isNotNull()).groupBy(*_KEY).agg(F.max_by("consumerOffset", order).alias("consumerOffset"))
    writer.prepare(CONSUMER_OFFSET)
    writer.merge(CONSUMER_OFFSET, last.withColumn("brokerName", F.lit(writer.broker)), ("brokerName", *_KEY))
