"""Answers to the requests of a small file, made by the driver without Spark: to a file or the table pull_response, and compared."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.files.output_file import OutputFile, write_here
from pipeline.replay.answer_texts import answer_texts, texts_without_messages
from pipeline.replay.answered_requests import Comparison, lines_with_answers, write_and_compare_here
from pipeline.replay.driver_held_pulls import answers_woken_here, held_here, when_woken_here, with_woken
from pipeline.replay.driver_replay import MOST_ENTRIES, answers_here
from pipeline.replay.held_pulls import TIMEOUT_NEEDED, lacks_timeout_here
from pipeline.replay.lmq import has_lmq_limit
from pipeline.replay.replay_run import ReplayOptions, ReplayRun
from pipeline.replay.response_files import ResponseFiles
from pipeline.requests.request_file import RequestFile
from pipeline.requests.request_lines import REQUEST_ARROW, RequestError
from pipeline.requests.request_source import TIME_NEEDED, read_chunk
from pipeline.schema import tables as t
from pipeline.settings.settings import PullSettings
from pipeline.settings.slave_lag import NO_SLAVE_LAG
from pipeline.tasks.running import one_by_one
from pipeline.tasks.work import NoSessionError

# entries of all answers whose messages the driver writes as texts: it does so in about the time that Spark takes
_MOST_TEXT_ENTRIES = 1_000_000
# chunks of a file whose requests are answered at once: about 250,000 requests
_CHUNKS_AT_ONCE = 4


def answer_file_here(
    run: ReplayRun, file: RequestFile, *, options: ReplayOptions, out: OutputFile | None, now: Callable[[], dt.datetime]
) -> tuple[dict[str | None, int], Comparison | None]:
    """Answer the requests of a file, write the answers to a file or to pull_response, and compare them if `options.compare`.

    Returns:
        The number of answers by error, and the comparison or None.

    Raises:
        RequestError: a line is no request, or lacks a time that the options need; nothing was written.
        NoSessionError: only Spark can answer, or read and write the tables; nothing was written.
    """
    settings = run.settings.pull_settings()
    require_driver_answers(options, settings)
    if out is None and not options.compare:
        return _write_answers(run, file, options, now), None
    if out is not None and not options.compare and not options.messages:
        return _write_lines(run, file, options, out), None
    requests, most = options.chosen_here(file_requests_here(file, options)), _MOST_TEXT_ENTRIES if options.messages else MOST_ENTRIES
    answers = _answers(run, requests, options, most)
    texts = answer_texts(run.broker, answers, settings.rules, with_messages=options.messages)
    errors, comparison = write_and_compare_here(file, texts, out, with_comparison=options.compare)
    if out is None:
        _write(run, file, iter(answers.to_batches()), now)
    return errors, comparison


def _answered_chunks(run: ReplayRun, file: RequestFile, options: ReplayOptions) -> Iterator[tuple[RequestFile, pa.Table]]:
    """Yield the file in parts of _CHUNKS_AT_ONCE chunks, each part as a file of its own, with the answers to its requests."""
    for some, requests in requests_by_chunks(file, options):
        yield some, _answers(run, requests, options)


def _answers(run: ReplayRun, requests: pa.Table, options: ReplayOptions, most_entries: int = MOST_ENTRIES) -> pa.Table:
    """Rows of ANSWER_SCHEMA, with heldMillis and wokenMillis if pulls are held, in no order."""
    broker, pull, with_entries = run.broker, run.settings.pull_settings(), options.messages
    if not options.hold:
        return answers_here(broker, requests, at=options.at, settings=pull, with_entries=with_entries, most_entries=most_entries)
    held = requests.filter(pc.is_in(requests["seq"], held_here(broker, requests, settings=pull)))
    woken = when_woken_here(broker, held, settings=run.settings)
    asked = with_woken(requests, woken)
    return answers_woken_here(broker, asked, settings=pull, with_entries=with_entries, most_entries=most_entries)


def _write_answers(run: ReplayRun, file: RequestFile, options: ReplayOptions, now: Callable[[], dt.datetime]) -> dict[str | None, int]:
    """Answer the requests, and write the answers to pull_response; gives the number of answers by error.

    Raises:
        NoSessionError: as for `_write`, or there are too many answers; files that are already written then belong to no version of the
            table.
    """
    errors: Counter[str | None] = Counter()

    def answers() -> Iterator[pa.RecordBatch]:
        for _, found in _answered_chunks(run, file, options):
            errors.update(found["error"].to_pylist())
            yield from found.to_batches()

    _write(run, file, answers(), now)
    return dict(errors)


def _write_lines(run: ReplayRun, file: RequestFile, options: ReplayOptions, out: OutputFile) -> dict[str | None, int]:
    """Answer the requests, and write their lines with the answers, without messages; gives the number of answers by error."""
    rules = run.settings.pull_settings().rules
    errors: Counter[str | None] = Counter()

    def lines() -> Iterator[bytes]:
        for some, found in _answered_chunks(run, file, options):
            in_order = found.drop_columns(["entries"]).sort_by("seq")
            errors.update(in_order["error"].to_pylist())
            yield from lines_with_answers(some, in_order["seq"].combine_chunks(), texts_without_messages(in_order, rules))

    write_here(lines(), out)
    return dict(errors)


def _write(run: ReplayRun, file: RequestFile, answers: Iterator[pa.RecordBatch], now: Callable[[], dt.datetime]) -> None:
    """Write the answers and the run to their tables.

    Raises:
        NoSessionError: only Spark writes the tables.
    """
    writer = run.writer()
    files_of = writer.file_writer(t.PULL_RESPONSE)
    if files_of is None:
        raise NoSessionError(f"only Spark writes the table {t.PULL_RESPONSE.name}")
    finish = ResponseFiles(broker=run.broker.name, run_id=run.run_id, source_digest=file.sha256, writer=files_of)
    writer.append_files(t.PULL_RESPONSE, [row for rows in finish.batches(answers) for row in rows.to_pylist()])
    run.commit(writer, now)


def only_spark_answers(options: ReplayOptions) -> str | None:
    """The reason why only Spark can answer with `options`; None if the driver can answer too."""
    return "a slave is behind its master" if options.slave_lag != NO_SLAVE_LAG else None


def require_driver_answers(options: ReplayOptions, settings: PullSettings) -> None:
    """Check that the driver can answer with these options and settings.

    Raises:
        NoSessionError: only Spark can.
    """
    if reason := only_spark_answers(options) or ("the number of light message queues is limited" if has_lmq_limit(settings) else None):
        raise NoSessionError(reason)


def requests_by_chunks(file: RequestFile, options: ReplayOptions) -> Iterator[tuple[RequestFile, pa.Table]]:
    """Yield the file in parts of _CHUNKS_AT_ONCE chunks, each part as a file of its own, with its requests that the options choose.

    Raises:
        RequestError: as for `file_requests_here`.
    """
    for start in one_by_one(range(0, len(file.chunks), _CHUNKS_AT_ONCE)):
        some = replace(file, chunks=file.chunks[start : start + _CHUNKS_AT_ONCE])
        yield some, options.chosen_here(file_requests_here(some, options))


def file_requests_here(file: RequestFile, options: ReplayOptions) -> pa.Table:
    """The requests of a file, as rows of request_lines.SCHEMA.

    Raises:
        RequestError: a line is no request, or lacks a time that the options need.
    """
    requests = pa.Table.from_batches((batch for chunk in file.chunks for batch in read_chunk(file.path, chunk)), REQUEST_ARROW)
    if options.at == "request-time":
        _require_each(file, requests, pc.is_null(requests["timestamp"]), options, TIME_NEEDED)
    if options.hold:
        _require_each(file, requests, lacks_timeout_here(requests), options, TIMEOUT_NEEDED)
    return requests


def _require_each(file: RequestFile, requests: pa.Table, lacks: pa.ChunkedArray, options: ReplayOptions, needed: str) -> None:
    """Check that each request that the options choose has what is `needed`; `lacks` marks the requests that lack it.

    Raises:
        RequestError: a chosen request lacks it; the error names the first one.
    """
    lacking = options.chosen_here(requests.filter(lacks))
    if len(lacking):
        raise RequestError(file.path, lacking["seq"][0].as_py(), needed, "none")
