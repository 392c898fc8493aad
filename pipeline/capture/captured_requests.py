"""Captured pulls as pull requests: those that pass the broker's checks, with the filter that the broker gives to the store."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.capture.captured_pulls import PROCESSED_AT, captured_pulls
from pipeline.capture.driver_captures import captured_pulls_here, captured_requests_here, checked_here, request_object
from pipeline.capture.pull_checks import checked
from pipeline.capture.replay_captured import request_json
from pipeline.files.output_file import OutputFile, output_file, write_here, write_lines
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.answer_texts import json_object
from pipeline.replay.entry_colocation import rows_of
from pipeline.requests.request_lines import SCHEMA
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.computed_once import kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How many pulls a request file has, and how many captured pulls were left out because the broker never asked its store."""

    requests: int
    left_out: int


def captured_requests(broker: OpenedBroker, settings: BrokerSettings) -> DataFrame:
    """Return the captured pulls of a broker that reach its store, as rows of a request file; `line` is the line of such a file.

    Args:
        broker: the broker; its topics and groups are those of the import.
        settings: of the broker, for its checks.

    Raises:
        LakeError: no traffic of the broker was captured.
    """
    pulls = captured_pulls(broker)
    joined = pulls.withColumn("timestamp", F.expr(PROCESSED_AT)).join(checked(broker, pulls, settings), "seq")
    passed = joined.where("refusedCode IS NULL AND checkError IS NULL")
    rows = passed.withColumns({"registered": F.lit(False), "line": _line()})
    return rows.selectExpr(*[f"CAST({name} AS {kind}) AS {name}" for name, kind in (column.split(" ") for column in SCHEMA.split(", "))])


def _line() -> Column:
    return F.concat(F.lit('{"request":'), request_json(), F.lit("}"))


def write_captured_requests(broker: OpenedBroker, settings: BrokerSettings, path: str) -> Written:
    """Write the captured pulls that reach the store as a request file, in the order of the capture; returns the counts.

    Raises:
        LakeError: no traffic of the broker was captured.
        OutputError: the file cannot be written.
    """
    with output_file(path) as out:
        if not broker.lake.has_session:
            return _write_here(broker, settings, out)
        with kept(captured_requests(broker, settings)) as rows:
            count = rows.count()
            write_lines(rows.orderBy("seq").select(F.col("line").alias("value")), out)
    return Written(requests=count, left_out=captured_pulls(broker).count() - count)


def _write_here(broker: OpenedBroker, settings: BrokerSettings, out: OutputFile) -> Written:
    """As `write_captured_requests`, on the driver."""
    pulls = captured_pulls_here(broker)
    requests = captured_requests_here(pulls, checked_here(broker, pulls, settings))
    lines = (json_object({"request": request_object(row)}) + "\n" for row in rows_of(iter(requests.to_batches())))
    write_here((line.encode() for line in lines), out)
    return Written(requests=len(requests), left_out=len(pulls) - len(requests))
