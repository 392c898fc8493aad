"""Answers few captured pulls on the driver, without Spark; `replay_captured` gives the same answers on Spark."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.capture.answer_bodies import encoded_batches
from pipeline.capture.captured_pulls import OF_REQUEST, PROCESSED_AT, answered_query
from pipeline.capture.comparison import CapturedComparison, compare_captured, judged_query
from pipeline.capture.driver_captures import captured_pulls_here, captured_requests_here, checked_here, request_object
from pipeline.capture.recorded_minimum import MINIMUM_FUNCTIONS, minimum_columns
from pipeline.embedded.relations import DriverRelations
from pipeline.files.output_file import OutputFile, write_here
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.answer_texts import answer_texts, json_object
from pipeline.replay.driver_answers import require_driver_answers
from pipeline.replay.driver_replay import answers_here
from pipeline.replay.entry_colocation import Row
from pipeline.replay.replay_run import ReplayOptions, ReplayRun
from pipeline.rows.log_records import RECORD_COLUMNS
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_schema
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.work import NoSessionError
from udfs.pull.pull_rules import DEFAULT_RULES

_ASKED = (
    f"SELECT p.*, {PROCESSED_AT} AS timestamp, refusedCode, checkError, filterType, expression "
    "FROM {pulls} p JOIN {checked} c ON p.seq = c.seq"
)
# answers whose entries are objects of Python at once: as objects, entries take ten times their memory
_ANSWERS_AT_ONCE = 1000
# most bytes of messages that the driver keeps in memory
_MOST_BYTES = 128 << 20


def answer_captured_here(
    run: ReplayRun, *, options: ReplayOptions, out: OutputFile | None, now: Callable[[], dt.datetime]
) -> tuple[dict[str | None, int], CapturedComparison | None]:
    """Answer the captured pulls of a broker, write the answers to a file or to pull_response, and compare them if `options.compare`.

    Returns:
        The number of answers by error, and the comparison or None.

    Raises:
        LakeError: no traffic of the broker was captured.
        NoSessionError: only Spark can answer, or read and write the tables; nothing was written.
    """
    require_driver_answers(options, run.settings.pull_settings())
    pulls = captured_pulls_here(run.broker)
    answered = answered_captured_here(run.broker, pulls, options=options, settings=run.settings)
    comparison = None
    if options.compare:
        judged = DriverRelations(answered=answered, pulls=pulls).table(judged_query(options.at))
        comparison = compare_captured(DriverRelations(judged=judged))
    if out is not None:
        write_here(_lines(run.broker, answered, with_messages=options.messages), out)
    else:
        writer = run.writer()
        if writer.file_writer(t.PULL_RESPONSE) is None:
            raise NoSessionError(f"only Spark writes the table {t.PULL_RESPONSE.name}")
        writer.append(t.PULL_RESPONSE, _responses(run, answered))
        run.commit(writer, now)
    return dict(Counter(answered["error"].to_pylist())), comparison


def answered_captured_here(broker: OpenedBroker, pulls: pa.Table, *, options: ReplayOptions, settings: BrokerSettings) -> pa.Table:
    """As `replay_captured.answered_captured`, in the order of `seq`."""
    pull = settings.pull_settings()
    checked = options.chosen_here(checked_here(broker, pulls, settings))
    requests = captured_requests_here(pulls, checked)
    given = answers_here(broker, requests, at=options.at, settings=pull, with_entries=True)
    given = given.append_column("bodySha256", body_sha256_here(broker, given["entries"]))
    own = "CAST(NULL AS BIGINT)" if options.at == "snapshot" else "p.recordedMinOffset"
    names = given.column_names
    with_own = DriverRelations(given=given, pulls=pulls).table(
        f"SELECT {', '.join(f'g.{name}' for name in names)}, {own} AS recordedMinOffset FROM {{given}} g JOIN {{pulls}} p ON g.seq = p.seq"
    )
    columns = ", ".join(minimum_columns(names, pull))
    of_minimum = DriverRelations(MINIMUM_FUNCTIONS, given=with_own).table(f"SELECT {columns} FROM {{given}}")
    asked = DriverRelations(pulls=pulls, checked=checked).table(_ASKED)
    return DriverRelations(asked=asked, given=of_minimum).table(f"{answered_query(names)} ORDER BY p.seq")


def body_sha256_here(broker: OpenedBroker, entries: pa.ChunkedArray) -> pa.Array:
    """As `answer_bodies.with_body_sha256`, for lists of entries.

    Raises:
        NoSessionError: the messages of all answers are too long together.
    """
    listed = pa.table([entries.combine_chunks().flatten().field(name) for name in ("physicOffset", "size")], ["offset", "size"])
    sizes = listed.group_by("offset").aggregate([("size", "max")])
    if (pc.sum(sizes["size_max"]).as_py() or 0) > _MOST_BYTES:
        raise NoSessionError(f"the messages of all answers have more than {_MOST_BYTES >> 20} MiB")
    offsets = sizes["offset"].to_pylist()
    records = broker.rows_with(t.COMMIT_LOG, {"physicOffset": offsets}, RECORD_COLUMNS)
    row = broker.row()
    found = encoded_batches(0 if row is None else row["mappedFileSizeCommitLog"], iter(records.to_batches()))
    of_entries = {(one["physicOffset"], one["size"]): one["record"] for batch in found for one in batch.to_pylist()}
    few = (entries.slice(start, _ANSWERS_AT_ONCE).to_pylist() for start in range(0, len(entries), _ANSWERS_AT_ONCE))
    return pa.array([_sha256(of_entries, listed) for answers in few for listed in answers], pa.string())


def _sha256(records: Mapping[tuple[int, int], bytes], entries: list[Row] | None) -> str | None:
    body = [records.get((entry["physicOffset"], entry["size"])) for entry in entries or ()]
    if not body or None in body:
        return None
    digest = hashlib.sha256()
    for record in body:
        digest.update(record or b"")
    return digest.hexdigest()


def _responses(run: ReplayRun, answered: pa.Table) -> pa.Table:
    """The answers as rows of pull_response."""
    given: dict[str, Any] = {name: answered[name] for name in answered.column_names}
    given |= {"brokerName": pa.repeat(run.broker.name, len(answered)), "runId": pa.repeat(run.run_id, len(answered))}
    schema = arrow_schema(t.PULL_RESPONSE)
    return pa.table([given.get(field.name, pa.nulls(len(answered), field.type)) for field in schema], schema.names).cast(schema)


def _lines(broker: OpenedBroker, answered: pa.Table, *, with_messages: bool) -> Iterator[bytes]:
    """The answers as lines of the file that `replay --out` writes."""
    texts = answer_texts(broker, answered, DEFAULT_RULES, with_messages=with_messages)
    fields = answered.select(["requestId", "status", "error", "code", "bodySha256", *OF_REQUEST]).to_pylist()
    for (_, text, _), row in zip(texts, fields, strict=True):
        response = text.decode()
        if row["error"] is None:
            more = json_object({name: row[name] for name in ("code", "bodySha256") if row[name] is not None})
            response = more if row["status"] is None else f"{response[:-1]},{more[1:]}"
        identified = json_object({"requestId": row["requestId"], "request": request_object(row)})
        yield f'{identified[:-1]},"response":{response}}}\n'.encode()
