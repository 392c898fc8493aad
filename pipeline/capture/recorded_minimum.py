"""Correct answers by the minOffset that a queue had when a captured pull was answered.

Broker source (4.9.3): DefaultMessageStore.getMessage, up to the scan; CleanCommitLogService raises the minimum.
Rule: a store shows only its present minimum, that of its first commit log file. Former minimums are only in the captured answers. Another
minimum changes an answer only where no entry is read, and then the bounds alone give the answer.
Surprise: pulls below the store's present minimum were answered from files that are deleted; such an answer cannot be computed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.embedded.relations import Relations
from pipeline.schema import tables as t
from pipeline.settings.settings import PullSettings
from udfs.sql_functions import require_functions

FILES_DELETED = "FILES_DELETED"


def from_deleted_files(relations: Relations) -> int:
    """The number of captured `pulls` whose offset their queue still had when they were answered, and lies below its minimum now.

    `relations` has the pulls, and the broker's `queues`.
    """
    (row,) = relations.rows(
        "SELECT count(*) AS pulls FROM {pulls} p JOIN {queues} q ON p.topic = q.topic AND p.queueId = q.queueId "
        "WHERE recordedMinOffset <= queueOffset AND queueOffset < minOffset"
    )
    return int(row["pulls"])


def with_recorded_minimum(answers: DataFrame, settings: PullSettings) -> DataFrame:
    """The store's answers, as they are with `recordedMinOffset` as the minimum of the queue where it is not NULL."""
    require_functions(answers.sparkSession)
    role = f"'{settings.broker_role}', {str(settings.offset_check_in_slave).upper()}"
    known = F.col("recordedMinOffset").isNotNull() & F.col("status").isNotNull()
    of_bounds = F.expr("pull_status(queueOffset, recordedMinOffset, maxOffset)")
    corrected = F.expr(f"correct_offset(queueOffset, recordedMinOffset, maxOffset, {role})")
    without_scan = known & of_bounds.isNotNull()
    gone = F.coalesce(known & of_bounds.isNull() & (F.col("queueOffset") < F.col("minOffset")), F.lit(False))
    values = {
        "status": of_bounds,
        "code": F.expr(f"response_code(pull_status(queueOffset, recordedMinOffset, maxOffset), queueOffset, {role})"),
        "nextBeginOffset": corrected,
        **dict.fromkeys(("messageCount", "bufferTotalSize", "msgCount4Commercial"), F.lit(0)),
        "suggestPullingFromSlave": F.lit(False),
        "diskFallBehind": F.lit(None),
        "entries": F.array().cast(t.ENTRIES_TYPE),
        "bodySha256": F.lit(None),
    }
    columns = {name: F.when(without_scan, value).otherwise(F.col(name)) for name, value in values.items()}
    columns = {name: F.when(~gone, column) for name, column in columns.items()}
    minimum = F.when(known, F.col("recordedMinOffset")).otherwise(F.col("minOffset"))
    error = F.when(gone, FILES_DELETED).otherwise(F.col("error"))
    return answers.withColumns({**columns, "minOffset": minimum, "error": error})
