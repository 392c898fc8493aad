"""Answers the pulls of frames in request files in the same way as captured pulls."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.capture.replay_captured import answered_captured
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.replay_run import ReplayOptions
from pipeline.schema import tables as t
from pipeline.schema.capture_tables import PULL_REQUEST
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.computed_once import computed_once

# columns of pull_response without brokerName and runId
ANSWERED: Final = tuple(name for name in t.PULL_RESPONSE.names if name not in {"brokerName", "runId"})


def answered_frames(broker: OpenedBroker, rows: DataFrame, *, options: ReplayOptions, settings: BrokerSettings) -> DataFrame:
    """Answer rows of STREAM_SCHEMA that have a `frame` and a `requestId`; gives the columns ANSWERED."""
    known = rows.select("*", "frame.*")
    lacking = {
        column.name: F.lit(None).cast(column.type) for column in PULL_REQUEST.columns if column.name not in known.columns
    }  # columns of recorded answers and of registrations
    pulls = known.withColumns(lacking | {"held": F.lit(False)}).select("seq", *PULL_REQUEST.names)
    with answered_captured(broker, pulls, options=options, settings=settings) as answered:
        return computed_once(answered.select(*ANSWERED))
