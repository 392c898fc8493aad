"""The minimum of a queue as it was when a captured pull was answered.

Broker source (4.9.3): DefaultMessageStore.getMessage, as far as it needs no entries; CleanCommitLogService moves the minimum.
Rule: the minimum is not stored anywhere: a store has the one of its first commit log file, and the answers of a capture are the only
history of those before. With another minimum the store answers otherwise only where no entry is read; that follows from the bounds alone.
Surprise: what lay below the store's own minimum was answered from files that are gone; nobody can make that answer again.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.schema import tables as t
from pipeline.settings.settings import PullSettings

FILES_DELETED = "FILES_DELETED"


def with_recorded_minimum(answers: DataFrame, settings: PullSettings) -> DataFrame:
    """Answers as the store gives them with the recorded minimum of the queue.

    Args:
        answers: of the store, with `recordedMinOffset`, NULL where there is none.
        settings: of the broker.
    """
    role = f"'{settings.broker_role}', {str(settings.offset_check_in_slave).upper()}"
    known = F.col("recordedMinOffset").isNotNull() & F.col("status").isNotNull()
    of_bounds = F.expr("pull_status(queueOffset, recordedMinOffset, maxOffset)")
    corrected = F.expr(f"correct_offset(queueOffset, recordedMinOffset, maxOffset, {role})")
    without_scan = known & of_bounds.isNotNull()
    gone = known & of_bounds.isNull() & (F.col("queueOffset") < F.col("minOffset"))
    nothing = {
        "messageCount": F.lit(0),
        "bufferTotalSize": F.lit(0),
        "msgCount4Commercial": F.lit(0),
        "suggestPullingFromSlave": F.lit(False),
    }
    values = {
        "status": of_bounds,
        "code": F.expr(f"response_code(pull_status(queueOffset, recordedMinOffset, maxOffset), queueOffset, {role})"),
        "nextBeginOffset": corrected,
        **nothing,
        "diskFallBehind": F.lit(None),
        "entries": F.array().cast(t.ENTRIES_TYPE),
        "bodySha256": F.lit(None),
    }
    columns = {name: F.when(without_scan, value).otherwise(F.col(name)) for name, value in values.items()}
    columns = {name: F.when(~F.coalesce(gone, F.lit(False)), column) for name, column in columns.items()}
    minimum = F.when(known, F.col("recordedMinOffset")).otherwise(F.col("minOffset"))
    error = F.when(F.coalesce(gone, F.lit(False)), FILES_DELETED).otherwise(F.col("error"))
    return answers.withColumns({**columns, "minOffset": minimum, "error": error})
