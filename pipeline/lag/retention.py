"""`pullsim retention`: which messages groups will lose to the deletion of old files, when, and which fileReservedTime would prevent it."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lag.lag import time_in_utc
from pipeline.lag.retention_rows import FORECAST, HIDDEN, ORDER, TIMES, Forecast, RetentionQuestion, forecast, foreseen, risks
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.views import asking, create_views


def retention(broker: OpenedBroker, question: RetentionQuestion) -> tuple[Forecast, DataFrame]:
    """Return the forecast of a broker's commit log, and a row for each group and queue; docs/retention.md has the columns.

    Raises:
        LakeError: the lake has no file of the log, not the group or not the topic, or the time or the disk's size is impossible.
    """
    found = forecast(asking(broker.lake), broker.name, question)
    query = risks(broker.name, question)
    given = create_views(broker.lake, query).sql(query)
    types = dict(given.drop(*HIDDEN).dtypes) | FORECAST
    rows = given.mapInArrow(partial(foreseen, found), ", ".join(f"{name} {kind}" for name, kind in types.items()))
    return found, rows.orderBy(*(F.col(name).asc_nulls_last() for name in ORDER))


def for_people(rows: DataFrame) -> DataFrame:
    """Return the rows with their times as texts in UTC."""
    return rows.withColumns({name: time_in_utc(name) for name in TIMES})
