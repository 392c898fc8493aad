"""Make answers and rows of bad_request from the rows of a batch: on Spark or, if the rows are few, on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.lake import Lake
from pipeline.replay.driver_answers import require_driver_answers
from pipeline.replay.driver_held_pulls import answers_woken_here
from pipeline.replay.driver_replay import MOST_ENTRIES, answers_here
from pipeline.replay.held_pulls import TIMEOUT_NEEDED, lacks_timeout_here
from pipeline.replay.replay import broker_store
from pipeline.replay.replay_job import answer, answer_woken, response_rows
from pipeline.replay.replay_run import ReplayOptions
from pipeline.replay.response_files import DIGEST_CHARACTERS, request_ids, responses
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.capture_tables import BAD_REQUEST
from pipeline.schema.tables import PULL_RESPONSE
from pipeline.settings.settings import PullSettings
from pipeline.stream.batch_contents import Contents, file_number
from pipeline.stream.frame_answers import ANSWERED, answered_frames
from pipeline.stream.request_stream import LINES_A_FILE
from pipeline.stream.stream_run import StreamRun

# most rows of a batch that the driver answers: about 60 MB
MOST_ROWS = 1 << 18
# most characters of the filters and configurations of these rows
_MOST_TEXTS = 1 << 26
NO_TIMEOUT: Final = f"%s, line %s: expected {TIMEOUT_NEEDED}, found none"
NO_TIME: Final = '%s, line %s: expected a "timestamp" in ms in the request, for --at request-time, found none'


class BatchRows(Protocol):
    """The rows of a batch."""

    def answers(self, lake: Lake, contents: Contents) -> DataFrame | pa.Table:
        """Rows of pull_response: the answers to the requests.

        Raises:
            NoSessionError: the driver cannot answer them; Spark can.
        """
        ...

    def bad(self, contents: Contents) -> DataFrame | pa.Table:
        """Rows of bad_request: the bad lines, and each request of a file whose settings are refused."""
        ...


@dataclass(frozen=True, slots=True)
class SparkRows:
    """Rows of STREAM_SCHEMA with a requestId, and with a wokenMillis if pulls are held."""

    run: StreamRun
    rows: DataFrame

    def answers(self, lake: Lake, contents: Contents) -> DataFrame:
        """As BatchRows says."""
        parts = []
        broker = self.run.opened(lake)
        same_segments = broker_store(broker).entries_a_file == contents.entries_a_file  # False if an import in between changed it
        for config, (settings, found) in contents.settings.items():
            pull, profile = settings.pull_settings(), found if same_segments else replace(found, touched=None)
            requests = self.rows.where(F.col("error").isNull() & F.col("config").eqNullSafe(F.lit(config)))
            options = ReplayOptions(at=self.run.at)
            if config in contents.framed:
                frames, requests = requests.where("frame IS NOT NULL"), requests.where("frame IS NULL")
                parts.append(answered_frames(broker, frames, options=options, settings=settings))
                if not contents.framed[config]:
                    continue
            answer_requests = answer_woken if self.run.hold else answer
            answers = answer_requests(broker, requests, options=options, settings=pull, profile=profile)
            parts.append(response_rows(self._with_ids(answers, requests, contents)).select(*ANSWERED))
        named = {"brokerName": F.lit(self.run.broker), "runId": F.lit(self.run.run_id)}
        return reduce(DataFrame.unionByName, parts).withColumns(named)

    def _with_ids(self, answers: DataFrame, requests: DataFrame, contents: Contents) -> DataFrame:
        """Add to answers the requestId of their requests.

        Without holding, `seq` gives the file and the line. With holding, requests were numbered again, so they are joined.
        """
        if self.run.hold:
            return answers.join(requests.select("seq", "requestId"), "seq")
        return answers.withColumn("requestId", request_id(_digest_of_file(contents.digests)))

    def bad(self, contents: Contents) -> DataFrame:
        """As BatchRows says."""
        bad = self.rows.where("error IS NOT NULL")
        for config, error in contents.refused.items():
            of_file = self.rows.where(F.col("error").isNull() & (F.col("config") == config))
            bad = bad.unionByName(of_file.withColumn("error", F.lit(error)))
        return bad.withColumn("brokerName", F.lit(self.run.broker))


def line() -> Column:
    """The number of a row's line in its file, as text."""
    return (F.col("seq") % LINES_A_FILE).cast("STRING")


def request_id(digest: Column) -> Column:
    """The requestId of a row, the same as in a replay of its file."""
    return F.concat_ws("-", F.substring(digest, 1, DIGEST_CHARACTERS), line())


def _digest_of_file(digests: Mapping[int, str]) -> Column:
    """The digest of a row's file, looked up by the file's number in the batch."""
    listed = (digests.get(number, "") for number in range(max(digests, default=-1) + 1))
    return F.get(F.split(F.lit(",".join(listed)), ","), file_number().cast("INT"))


@dataclass(frozen=True, slots=True)
class DriverRows:
    """Rows of STREAM_SCHEMA with a requestId on the driver, without frames and heartbeats; of held pulls only those that are due."""

    run: StreamRun
    rows: pa.Table

    @classmethod
    def of(cls, run: StreamRun, batch: DataFrame) -> DriverRows | None:
        """The rows of a batch without heartbeats; None if Spark has to answer: they are many, or frames are among them.

        If pulls are held, Spark keeps the batch and computes all of it, since its tasks write the state of the stream.
        """
        if run.hold and not _is_small(batch):
            return None
        found = (batch if run.hold else batch.limit(MOST_ROWS + 1)).toArrow()
        if len(found) > MOST_ROWS or found["frame"].null_count < len(found):
            return None
        rows = found.filter(pc.or_(pc.is_valid(found["topic"]), pc.is_valid(found["error"])))
        ids = request_ids(rows["sourceDigest"], pc.bit_wise_and(rows["seq"], pa.scalar(LINES_A_FILE - 1)))
        checked = _checked(rows, run).append_column("requestId", ids)
        return cls(run, checked)

    def require_answers(self, contents: Contents) -> None:
        """Check that the driver answers under the settings of the batch.

        Raises:
            NoSessionError: only Spark can answer under these settings.
        """
        for settings, _ in contents.settings.values():
            require_driver_answers(ReplayOptions(at=self.run.at), settings.pull_settings())

    def answers(self, lake: Lake, contents: Contents) -> pa.Table:
        """As BatchRows says."""
        answered, entries = [arrow_schema(PULL_RESPONSE).empty_table()], 0
        good = self.rows.filter(pc.is_null(self.rows["error"]))
        for config, (settings, _) in contents.settings.items():
            pull = settings.pull_settings()
            requests = good.filter(has_config(good, config))
            answers = self._answers(lake, requests, pull, MOST_ENTRIES - entries)
            entries += pc.sum(answers["messageCount"]).as_py() or 0
            answered += [pa.Table.from_batches([self._responses(batch, requests)]) for batch in answers.to_batches()]
        return pa.concat_tables(answered)

    def _answers(self, lake: Lake, requests: pa.Table, settings: PullSettings, most_entries: int) -> pa.Table:
        broker = self.run.opened(lake)
        if self.run.hold:
            return answers_woken_here(broker, requests, settings=settings, with_entries=True, most_entries=most_entries)
        return answers_here(broker, requests, at=self.run.at, settings=settings, with_entries=True, most_entries=most_entries)

    def _responses(self, answers: pa.RecordBatch, requests: pa.Table) -> pa.RecordBatch:
        rows = pc.index_in(answers.column("seq"), requests["seq"].combine_chunks())
        ids = requests["requestId"].combine_chunks().take(rows)
        return responses(answers, ids, broker=self.run.broker, run_id=self.run.run_id)

    def bad(self, contents: Contents) -> pa.Table:
        """As BatchRows says."""
        errors = self.rows["error"]
        for config, error in contents.refused.items():
            of_file = pc.and_(pc.is_null(errors), has_config(self.rows, config))
            errors = pc.if_else(of_file, error, errors)
        bad = _with_errors(self.rows, errors).filter(pc.is_valid(errors))
        names = [name for name in BAD_REQUEST.names if name != "brokerName"]
        return bad.select(names).append_column("brokerName", pa.repeat(self.run.broker, len(bad))).select(BAD_REQUEST.names)


def _is_small(batch: DataFrame) -> bool:
    """Whether a batch that Spark keeps is small enough for the driver; a batch with few new requests may release many older ones."""
    texts = [F.coalesce(F.length(name), F.lit(0)) for name in ("expression", "config")]
    found = batch.agg(F.count("*").alias("rows"), F.sum(texts[0] + texts[1]).alias("texts")).first()
    return found is not None and found["rows"] <= MOST_ROWS and (found["texts"] or 0) <= _MOST_TEXTS


def _checked(rows: pa.Table, run: StreamRun) -> pa.Table:
    """Add an error to each request that lacks a time which the run needs."""
    if run.at == "request-time":
        rows = _with_errors_where(rows, pc.is_null(rows["timestamp"]), NO_TIME)
    return _with_errors_where(rows, lacks_timeout_here(rows), NO_TIMEOUT) if run.hold else rows


def _with_errors_where(rows: pa.Table, lacks: pa.ChunkedArray, error: str) -> pa.Table:
    """Add an error to the rows for which `lacks` is true, unless they have one. `error` is a format for the source and the line."""
    wrong = pc.and_(pc.is_null(rows["error"]), lacks).to_numpy()
    errors = rows["error"].to_pylist()
    for row in np.flatnonzero(wrong):
        errors[row] = error % (rows["source"][row].as_py(), rows["seq"][row].as_py() % LINES_A_FILE)
    return _with_errors(rows, pa.array(errors, pa.string()))


def _with_errors(rows: pa.Table, errors: pa.Array | pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.column_names.index("error"), "error", errors)


def has_config(rows: pa.Table, config: str | None) -> pa.ChunkedArray:
    """Whether each row is of a file with this configuration in its header; None stands for no header."""
    configs = rows["config"]
    return pc.is_null(configs) if config is None else pc.fill_null(pc.equal(configs, config), fill_value=False)
