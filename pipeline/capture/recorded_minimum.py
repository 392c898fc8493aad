"""Correct answers by the minOffset that a queue had when a captured pull was answered.

Broker source (4.9.3): DefaultMessageStore.getMessage, up to the scan; CleanCommitLogService raises the minimum.
Rule: a store shows only its present minimum, that of its first commit log file. Former minimums are only in the captured answers. Another
minimum changes an answer only if no entry is read, and then the bounds alone give the answer.
Surprise: pulls below the store's present minimum were answered from files that are deleted; such an answer cannot be computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from pipeline.embedded.relations import Relations
from pipeline.schema import tables as t
from pipeline.settings.settings import PullSettings
from udfs.sql_functions import require_functions

FILES_DELETED = "FILES_DELETED"
MINIMUM_FUNCTIONS = ("pull_status", "correct_offset", "response_code")


def from_deleted_files(relations: Relations) -> int:
    """The number of captured `pulls` whose offset was in their queue when they were answered, but is below its minimum now.

    `relations` has the pulls, and the broker's `queues`.
    """
    (row,) = relations.rows(
        "SELECT count(*) AS pulls FROM {pulls} p JOIN {queues} q ON p.topic = q.topic AND p.queueId = q.queueId "
        "WHERE recordedMinOffset <= queueOffset AND queueOffset < minOffset"
    )
    return int(row["pulls"])


def with_recorded_minimum(answers: DataFrame, settings: PullSettings) -> DataFrame:
    """The store's answers, corrected as if `recordedMinOffset` were the queue's minimum, if it is not NULL."""
    require_functions(answers.sparkSession)
    return answers.selectExpr(*minimum_columns(answers.columns, settings))


def minimum_columns(names: Sequence[str], settings: PullSettings) -> list[str]:
    """The columns of `with_recorded_minimum` in Spark's SQL, which call MINIMUM_FUNCTIONS.

    Args:
        names: the columns of the answers.
        settings: of the broker.
    """
    role = f"'{settings.broker_role}', {str(settings.offset_check_in_slave).upper()}"
    known = "(recordedMinOffset IS NOT NULL AND status IS NOT NULL)"
    of_bounds = "pull_status(queueOffset, recordedMinOffset, maxOffset)"
    without_scan = f"{known} AND {of_bounds} IS NOT NULL"
    gone = f"coalesce({known} AND {of_bounds} IS NULL AND queueOffset < minOffset, FALSE)"
    values = {
        "status": of_bounds,
        "code": f"response_code({of_bounds}, queueOffset, {role})",
        "nextBeginOffset": f"correct_offset(queueOffset, recordedMinOffset, maxOffset, {role})",
        **dict.fromkeys(("messageCount", "bufferTotalSize", "msgCount4Commercial"), "0"),
        "suggestPullingFromSlave": "FALSE",
        "diskFallBehind": "NULL",
        "entries": f"CAST(array() AS {t.ENTRIES_TYPE})",
        "bodySha256": "NULL",
    }
    columns = {
        name: f"CASE WHEN NOT {gone} THEN CASE WHEN {without_scan} THEN {value} ELSE {name} END END" for name, value in values.items()
    }
    columns["minOffset"] = f"CASE WHEN {known} THEN recordedMinOffset ELSE minOffset END"
    columns["error"] = f"CASE WHEN {gone} THEN '{FILES_DELETED}' ELSE error END"
    return [f"{columns.get(name, name)} AS {name}" for name in names]
