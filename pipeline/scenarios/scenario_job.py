"""`pullsim answer`: the scenarios of a file -> the same lines with results, and the tables of their events.

A scenario is a line of the file, and has its own broker. A task takes some lines and holds one at a time. One job answers all scenarios.
Scenarios that begin with the same settings share a commit log, in the order of the file. Only a scenario that reads offsets of the log
depends on earlier ones. The job calculates the log before that scenario from the records that the others appended, and answers it again.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.files.output_file import OutputFile, output_file, write_lines
from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import LakeWriter
from pipeline.requests.request_file import Chunk, RequestFile, scan_file
from pipeline.requests.request_lines import RequestError
from pipeline.scenarios.scenario_file import Scenario, read_chunk, scenario_of
from pipeline.scenarios.scenario_settings import memory_settings
from pipeline.scenarios.scenario_steps import take_steps
from pipeline.schema.arrow_types import arrow_of
from pipeline.schema.scenario_tables import ANSWERED_SCENARIOS, BROKER_HISTORY, OFFSET_MOVED_EVENT, SCENARIO_STEP
from pipeline.settings.settings import Value
from pipeline.tasks.computed_once import kept
from pipeline.tasks.work import spark_parallelism
from store_format.broker_version import BrokerVersion
from udfs.broker.memory_broker import EPOCH_MS, MemoryBroker
from udfs.broker.memory_store import LogExtent

_LINES = "line BIGINT, text STRING, logStart BIGINT, logEnd BIGINT"
_LINES_ARROW = arrow_of(_LINES)
_LOGS = "line BIGINT, logStart BIGINT, logEnd BIGINT"
# A row of kind "line" is a scenario with its results, a row of kind "step" is a step, any other row is a change of state in a step.
_EVENTS = (
    "line BIGINT, scenario STRING, brokerName STRING, step INT, at BIGINT, kind STRING, row STRING, base STRING, looksAtLog BOOLEAN, "
    "appended ARRAY<INT>"
)
_EVENTS_ARROW = arrow_of(_EVENTS)
_BATCH_ROWS = 4096
_LOOK_AT_LOG = {"deleteCommitLogHead"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredScenarios:
    """The numbers of answered scenarios and steps, and the output file."""

    scenarios: int
    steps: int
    out: str


@dataclass(frozen=True, slots=True)
class Source:
    """The file of scenarios, and the version whose rules hold; None for the version in each scenario's brokerBase."""

    path: str
    rules: BrokerVersion | None


def run_answer(
    lake: Lake,
    cases: str,
    out: str,
    *,
    rules: BrokerVersion | None = None,
    run_id: str,
    now: Callable[[], dt.datetime],
    progress: Callable[[str], None],
) -> AnsweredScenarios:
    """Answer the scenarios of a file by the rules of a version, by default the version in each scenario's brokerBase.

    Raises:
        RequestError: a line is no valid scenario; nothing was written.
        OutputError: the file for the results cannot be written.
    """
    progress(f"reading {cases}")
    file = scan_file(cases)
    if file.is_parquet:
        raise RequestError(file.path, 1, "scenarios, a JSON object a line", "a Parquet file")
    with output_file(out) as written:
        lines = _lines(lake, file)
        source = Source(file.path, rules)
        with kept(_answered(lines, source)) as events:
            told = _anew(events, lines, source)
            counted = {row["kind"]: row["count"] for row in told.groupBy("kind").count().collect()}
            progress("writing")
            _to_tables(lake, told, run_id, now)
            _write(told, written)
    return AnsweredScenarios(scenarios=counted.get("line", 0), steps=counted.get("step", 0), out=out)


def _lines(lake: Lake, file: RequestFile) -> DataFrame:
    """Return the lines of the file, spread over the cluster."""
    chunks = [(one.start, one.end, one.first_line, one.crc) for one in file.chunks]
    frame = lake.spark.createDataFrame(chunks, "start BIGINT, end BIGINT, firstLine BIGINT, crc BIGINT")
    read = frame.mapInArrow(partial(_read, file.path), _LINES)
    return read.repartition(spark_parallelism(lake.spark), "line")


def _read(path: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            chunk = Chunk(start=row["start"], end=row["end"], first_line=row["firstLine"], crc=row["crc"])
            lines = [{"line": number, "text": text, "logStart": 0, "logEnd": 0} for number, text in read_chunk(path, chunk)]
            yield pa.RecordBatch.from_pylist(lines, schema=_LINES_ARROW)


def _answered(lines: DataFrame, source: Source) -> DataFrame:
    return lines.mapInArrow(partial(_answer_lines, source), _EVENTS)


def _answer_lines(source: Source, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            events = _events_of(scenario_of(source.path, row["line"], row["text"], source.rules), LogExtent(row["logStart"], row["logEnd"]))
            for first in range(0, len(events), _BATCH_ROWS):
                yield pa.RecordBatch.from_pylist(events[first : first + _BATCH_ROWS], schema=_EVENTS_ARROW)


def _events_of(scenario: Scenario, log: LogExtent) -> list[dict[str, Any]]:
    """Return the events of a scenario in order; the last one is its line with the results."""
    base = json.dumps(scenario.base, sort_keys=True)
    whose = {"line": scenario.line, "scenario": scenario.name, "brokerName": str(scenario.base.get("brokerName", "broker-a"))}
    events: list[dict[str, Any]] = []
    appended: list[int] = []
    number = 0

    def note(at: int, kind: str, row: dict[str, Any]) -> None:
        if kind in {"message", "commit_log_head"}:
            appended.append(row["storeSize"])
        events.append({**whose, "step": number, "at": at, "kind": kind, "row": json.dumps(row)})

    steps = take_steps(scenario, note, log)
    at, number = EPOCH_MS, 1
    for at, step in steps:
        request = {name: value for name, value in step.items() if name != "result"}
        result = json.dumps(step["result"]) if "result" in step else None
        row = {"op": step["op"], "asked": json.dumps(request), "result": result}
        events.append({**whose, "step": number, "at": at, "kind": "step", "row": json.dumps(row)})
        number += 1
    looks = any(step["op"] in _LOOK_AT_LOG for step in scenario.steps)
    line = {"kind": "line", "row": json.dumps(scenario.content), "base": base, "looksAtLog": looks, "appended": appended}
    return [*events, {**whose, "step": number, "at": at, **line}]


# where a scenario's log begins --------------------------------------------------------------------------------------------------------


def _anew(events: DataFrame, lines: DataFrame, source: Source) -> DataFrame:
    """Return the events; scenarios that read the log are answered again, with the log that earlier scenarios left."""
    looking = events.where("looksAtLog").select("base").distinct()
    if looking.isEmpty():
        return events
    written = events.where("kind = 'line'").select("base", "line", "looksAtLog", "appended").join(F.broadcast(looking), "base")
    in_order = written.repartition("base").sortWithinPartitions("base", "line")
    logs = in_order.mapInArrow(_logs, _LOGS)
    anew = lines.select("line", "text").join(F.broadcast(logs), "line").select("line", "text", "logStart", "logEnd")
    others = events.join(F.broadcast(logs.select("line")), "line", "left_anti")
    return others.unionByName(_answered(anew, source))


def _logs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the log before each scenario that reads it; the scenarios come in the order of their settings and lines."""
    base, log = None, LogExtent()
    for batch in batches:
        found = []
        for row in batch.to_pylist():
            if row["base"] != base:
                base, log = row["base"], LogExtent()
            if row["looksAtLog"]:
                found.append({"line": row["line"], "logStart": log.start, "logEnd": log.end})
            log = log_after(json.loads(row["base"]), row["appended"], log)
        yield pa.RecordBatch.from_pylist(found, schema=arrow_of(_LOGS))


def log_after(base: Mapping[str, Value], appended: Sequence[int], log: LogExtent) -> LogExtent:
    """Return the log of a broker with these settings after the records that a scenario appended, as `LogExtent.after`."""
    settings = memory_settings(base)
    file_size = MemoryBroker(settings=settings, note=lambda *_: None).store.commit_log_file_size
    return log.after(appended, file_size, settings.rules.files_deleted_at_once)


# results ------------------------------------------------------------------------------------------------------------------------------


def _write(events: DataFrame, out: OutputFile) -> None:
    lines = events.where("kind = 'line'").select("line", "row").repartitionByRange("line").sortWithinPartitions("line")
    write_lines(lines.select("row"), out)


def _to_tables(lake: Lake, events: DataFrame, run_id: str, now: Callable[[], dt.datetime]) -> None:
    """Append the events to the tables of scenarios."""
    writer = LakeWriter(lake, run_id=run_id, what="answer", broker="")
    for table in ANSWERED_SCENARIOS:
        writer.prepare(table, "clustered")
    rows = events.withColumn("runId", F.lit(run_id))
    steps = rows.where("kind = 'step'").withColumn("told", F.from_json("row", "op STRING, asked STRING, result STRING"))
    writer.append(SCENARIO_STEP, steps.select("*", "told.*"))
    moved = rows.where("kind = 'offset_moved_event'")
    fields = "consumerGroup STRING, topic STRING, queueId INT, offsetRequest BIGINT, offsetNew BIGINT"
    writer.append(OFFSET_MOVED_EVENT, moved.withColumn("event", F.from_json("row", fields)).select("*", "event.*"))
    changed = rows.where("kind NOT IN ('step', 'line', 'offset_moved_event')")
    writer.append(BROKER_HISTORY, changed.withColumns(_history_columns()))
    writer.commit(now())


def _history_columns() -> dict[str, Column]:
    fields = "name STRING, topic STRING, consumerGroup STRING, queueId INT, queueOffset BIGINT, consumerOffset BIGINT"
    row = F.from_json("row", fields)
    return {
        "name": F.coalesce(row["name"], row["consumerGroup"], row["topic"]),
        "topic": row["topic"],
        "queueId": row["queueId"],
        "queueOffset": F.coalesce(row["consumerOffset"], row["queueOffset"]),
    }
