"""lag_history: observations of consume_lag, appended over time, so that rules can evaluate how lag changes.

Rule: an observation is new if the lake got data of the broker since the last one. Otherwise a lake without an import would look like a
group that consumes nothing.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.delta.delta_sql import literal
from pipeline.lake.lake import LakeError
from pipeline.lake.lake_writer import LakeWriter
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.views import CONSUME_LAG_TABLES, consume_lag
from pipeline.schema.lag_tables import LAG_HISTORY
from pipeline.settings.quantities import LAST_OF_YEAR_9999

_DAY = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class ObservedLag:
    """Size and lake version of an observation that was added to lag_history.

    Attributes:
        queues: number of its rows, one for each group and queue.
        lake_version: the version of the lake that made it visible.
    """

    queues: int
    lake_version: int


def observation(broker: OpenedBroker, observed_at: int) -> DataFrame:
    """Return the rows of lag_history for the present lag of each group of a broker.

    Args:
        broker: the broker.
        observed_at: time of the observation, ms since 1970.

    Raises:
        LakeError: the time is before 1970 or after the year 9999.
    """
    _require_time(observed_at)
    observed = consume_lag(broker.lake).where(broker.is_mine)
    added = {"observedAt": F.lit(observed_at).cast("BIGINT"), "lakeVersion": F.lit(broker.lake.at.version).cast("BIGINT")}
    return observed.withColumns(added).select(*LAG_HISTORY.names)


def append_observation(writer: LakeWriter, observed_at: int) -> bool:
    """Append an observation of the writer's broker, with the rows that the run has written so far; the caller commits.

    Call it once for each trigger of a stream, after its other tables are written.

    Args:
        writer: writer of the running run.
        observed_at: time of the observation, ms since 1970.

    Returns:
        Whether the observation was appended; False if the broker has one of that time already.

    Raises:
        LakeError: another run is writing to the table.
    """
    writer.prepare(LAG_HISTORY)
    if not _observed_at(writer.written(LAG_HISTORY), writer.broker, observed_at).isEmpty():
        return False
    writer.append(LAG_HISTORY, observation(OpenedBroker(writer.as_written(), writer.broker), observed_at))
    return True


def forget_before(writer: LakeWriter, before: int) -> None:
    """Delete a broker's observations before a time, and rewrite the others in few files; the caller commits.

    Args:
        writer: writer of a run that has not written to the table yet.
        before: the time, ms since 1970; an observation of this time is kept.

    Raises:
        LakeError: another run is writing to the table.
    """
    mine = f"brokerName = {literal(writer.broker)}"
    kept = writer.lake.table(LAG_HISTORY).where(mine).where(F.col("observedAt") >= before)
    writer.replace_rows(LAG_HISTORY, kept.coalesce(1), mine)


def is_new(broker: OpenedBroker, observed_at: int) -> bool:
    """Return whether the tables behind consume_lag changed since the broker's last observation, and it has none of this time."""
    history = broker.lake.table(LAG_HISTORY)
    last = history.where(broker.is_mine).agg(F.max("lakeVersion").alias("version")).first()
    if last is None or last["version"] is None:
        return True
    changed = _last_change(broker)
    return changed is not None and changed > last["version"] and _observed_at(history, broker.name, observed_at).isEmpty()


def record(broker: OpenedBroker, *, observed_at: int, keep_days: int | None, run_id: str, committed_at: dt.datetime) -> ObservedLag | None:
    """Record an observation in a commit of its own.

    Args:
        broker: the broker.
        observed_at: time of the observation, ms since 1970.
        keep_days: delete the broker's observations that are more than this number of days older; None keeps all.
        run_id: id of this run of the command.
        committed_at: wall clock for lake_version.

    Returns:
        The recorded observation; None if it is not new, and nothing was written.

    Raises:
        LakeError: another run is writing to the table, or the time is before 1970 or after the year 9999.
    """
    _require_time(observed_at)
    if not is_new(broker, observed_at):
        return None
    writer = LakeWriter(broker.lake, run_id=run_id, what="lag", broker=broker.name)
    if keep_days is not None:
        forget_before(writer, observed_at - keep_days * _DAY)
    append_observation(writer, observed_at)
    queues = _observed_at(writer.written(LAG_HISTORY), broker.name, observed_at).count()
    return ObservedLag(queues, writer.commit(committed_at))


def _require_time(observed_at: int) -> None:
    if not 0 <= observed_at <= LAST_OF_YEAR_9999:
        raise LakeError(f"expected a time of observation from 1970 to the year 9999, in ms, found {observed_at}")


def _observed_at(history: DataFrame, broker: str, observed_at: int) -> DataFrame:
    return history.where((F.col("brokerName") == broker) & (F.col("observedAt") == observed_at))


def _last_change(broker: OpenedBroker) -> int | None:
    """Return the last version of the lake in which a run of the broker changed a table that consume_lag reads."""
    read = F.struct(*(F.col("tables")[table.name].alias(table.name) for table in CONSUME_LAG_TABLES))
    versions = broker.lake.versions().where(F.col("version") <= broker.lake.at.version).withColumn("read", read)
    # lake_version has one row for each commit: small enough for one task
    compared = versions.withColumn("before", F.lag("read").over(Window.orderBy("version")))
    of_broker = compared.where(broker.is_mine & ~F.col("read").eqNullSafe(F.col("before")))
    row = of_broker.agg(F.max("version").alias("version")).first()
    return None if row is None else row["version"]
