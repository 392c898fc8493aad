"""lag_history: observations of consume_lag, appended over time, so that rules can evaluate how lag changes.

Rule: an observation is new if the lake got data of the broker since the last one. Otherwise a lake without an import would look like a
group that consumes nothing.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.delta.delta_sql import literal
from pipeline.embedded.database import EmbeddedLake
from pipeline.embedded.questions import ask_table
from pipeline.files.store_files import is_uri
from pipeline.lake.asking import AskAll
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.lake_writer import LakeWriter
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.views import CONSUME_LAG_TABLES, asking, consume_lag
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.lag_tables import LAG_HISTORY
from pipeline.schema.tables import LAKE_VERSION
from pipeline.settings.quantities import LAST_OF_YEAR_9999
from pipeline.tasks.work import NoSessionError

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


def is_new(ask: AskAll, version: int, broker: str, observed_at: int) -> bool:
    """Return whether the tables that consume_lag reads changed since the broker's last observation, and there is none of this time.

    Args:
        ask: runs queries on the lake.
        version: version of the lake that the queries read.
        broker: name of the broker.
        observed_at: time of the observation, ms since 1970.
    """
    mine = f"brokerName = {literal(broker)}"
    changed = " OR ".join(f"NOT tables[{literal(one.name)}] <=> before[{literal(one.name)}]" for one in CONSUME_LAG_TABLES)
    [last], [same], [news] = ask(
        [
            f"SELECT max(lakeVersion) AS version FROM lag_history WHERE {mine}",
            f"SELECT count(*) AS times FROM lag_history WHERE {mine} AND observedAt = {observed_at}",
            f"""SELECT max(version) AS version
FROM (SELECT version, brokerName, tables, lag(tables) OVER (ORDER BY version) AS before FROM lake_version WHERE version <= {version}) told
WHERE {mine} AND ({changed})""",
        ]
    )
    if last["version"] is None:
        return True
    return same["times"] == 0 and news["version"] is not None and news["version"] > last["version"]


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
    if not is_new(asking(broker.lake), broker.lake.at.version, broker.name, observed_at):
        return None
    writer = LakeWriter(broker.lake, run_id=run_id, what="lag", broker=broker.name)
    _forget(writer, observed_at, keep_days)
    append_observation(writer, observed_at)
    queues = _observed_at(writer.written(LAG_HISTORY), broker.name, observed_at).count()
    return ObservedLag(queues, writer.commit(committed_at))


def record_here(
    lake: EmbeddedLake, broker: str, *, observed_at: int, keep_days: int | None, run_id: str, committed_at: dt.datetime
) -> ObservedLag | None:
    """Record an observation without Spark; arguments and errors as in `record`.

    Raises:
        NoSessionError: only Spark can write a table of the lake; nothing of this run is visible then.
        NotSupportedError: only Spark can read a table of the lake.
    """
    _require_time(observed_at)
    if is_uri(lake.root):
        raise NoSessionError("the lake is no local folder")
    if not is_new(lake.asked, lake.at.version, broker, observed_at):
        return None
    added = {"observedAt": observed_at, "lakeVersion": lake.at.version}
    columns = ", ".join(f"CAST({added[name]} AS BIGINT) AS {name}" if name in added else name for name in LAG_HISTORY.names)
    rows = ask_table(lake, f"SELECT {columns} FROM consume_lag WHERE brokerName = {literal(broker)}")
    written = Lake(None, lake.root)
    written.at = lake.at  # a commit of another run since that version is a conflict
    writer = LakeWriter(written, run_id=run_id, what="lag", broker=broker)
    if not writer.commits_without_spark:
        raise NoSessionError(f"only Spark writes the table {LAKE_VERSION.name} of this lake")
    _forget(writer, observed_at, keep_days)
    writer.prepare(LAG_HISTORY)
    writer.append(LAG_HISTORY, rows.cast(arrow_schema(LAG_HISTORY)))
    return ObservedLag(len(rows), writer.commit(committed_at))


def _forget(writer: LakeWriter, observed_at: int, keep_days: int | None) -> None:
    """Delete the broker's observations more than `keep_days` older, and join small files; None keeps all. The caller commits."""
    if keep_days is not None:
        writer.prepare(LAG_HISTORY)
        writer.delete_rows(LAG_HISTORY, f"observedAt < {observed_at - keep_days * _DAY}")
        writer.compact(LAG_HISTORY)


def _require_time(observed_at: int) -> None:
    if not 0 <= observed_at <= LAST_OF_YEAR_9999:
        raise LakeError(f"expected a time of observation from 1970 to the year 9999, in ms, found {observed_at}")


def _observed_at(history: DataFrame, broker: str, observed_at: int) -> DataFrame:
    return history.where((F.col("brokerName") == broker) & (F.col("observedAt") == observed_at))
