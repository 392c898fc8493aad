"""Options, result rows and result of a replay, the same for requests from files, captures and streams."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.lake_writer import LakeWriter
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.replay import At
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_schema
from pipeline.settings.settings import BrokerSettings, SettingsError
from pipeline.settings.slave_lag import NO_SLAVE_LAG, SlaveLag
from store_format.errors import without_credentials

ComparisonT = TypeVar("ComparisonT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Options of a replay.

    Attributes:
        at: which part of the store a request sees.
        filters: kinds of filters to answer: null, TAG, SQL92; requests with other kinds are skipped. None answers all requests.
        messages: whether an answer contains its messages.
        compare: whether to compare the answers with the recorded answers.
        out: file for the answers; None writes them to the table pull_response.
        hold: whether a pull with the suspend bit that finds no message waits; this needs `at` = request-time.
        slave_lag: lag of the broker that answers, if it is a slave.
    """

    at: At = "snapshot"
    filters: frozenset[str] | None = None
    messages: bool = True
    compare: bool = False
    out: str | None = None
    hold: bool = False
    slave_lag: SlaveLag = NO_SLAVE_LAG

    def chosen(self, requests: DataFrame) -> DataFrame:
        """The rows of `requests` (or of their checks) whose kind of filter is in `filters`."""
        if self.filters is None:
            return requests
        return requests.where(F.coalesce("filterType", F.lit("null")).isin(sorted(self.filters)))

    def chosen_here(self, requests: pa.Table) -> pa.Table:
        """As `chosen`, for requests on the driver."""
        if self.filters is None:
            return requests
        kinds = pc.fill_null(requests["filterType"], "null")
        return requests.filter(pc.is_in(kinds, pa.array(sorted(self.filters), pa.string())))

    def slave_lag_of(self, broker_role: str) -> SlaveLag:
        """The slave lag of a broker with this role; a master has none."""
        return self.slave_lag if broker_role == "SLAVE" else NO_SLAVE_LAG

    def check_roles(self, *roles: str) -> None:
        """Check that one of the answering brokers is a slave if a slave lag is given.

        Args:
            roles: brokerRole of each broker that answers.

        Raises:
            SettingsError: a slave lag is given, and no broker is a slave.
        """
        if self.slave_lag != NO_SLAVE_LAG and "SLAVE" not in roles:
            hint = "only a slave has a slave lag: give --set brokerRole=SLAVE --set brokerId=1"
            raise SettingsError("--behind", "brokerRole", "SLAVE", roles[0], hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRun:
    """One replay, as its row of replay_run describes it.

    Attributes:
        broker: whose store answers.
        run_id: of the replay.
        source: name of the file or table of requests.
        source_digest: SHA-256 of the request file; None if the requests are not in one file.
        settings: of the broker.
        at: which part of the store a request sees.
        started: when the replay was started.
        slave_lag: lag of the broker, if it is a slave.
    """

    broker: OpenedBroker
    run_id: str
    source: str
    source_digest: str | None
    settings: BrokerSettings
    at: At
    started: dt.datetime
    slave_lag: SlaveLag = NO_SLAVE_LAG

    def writer(self) -> LakeWriter:
        """A lake writer for which the tables of answers and of runs are prepared."""
        writer = LakeWriter(self.broker.lake, run_id=self.run_id, what="replay", broker=self.broker.name)
        for table in t.REPLAYED:
            writer.prepare(table)
        return writer

    def write(self, answers: DataFrame, now: Callable[[], dt.datetime], writer: LakeWriter | None = None) -> DataFrame:
        """Append the answers to pull_response and the run to replay_run, commit both, and return pull_response."""
        writer = writer or self.writer()
        writer.append(t.PULL_RESPONSE, answers.withColumns({"brokerName": F.lit(self.broker.name), "runId": F.lit(self.run_id)}))
        self.commit(writer, now)
        return writer.written(t.PULL_RESPONSE)

    def commit(self, writer: LakeWriter, now: Callable[[], dt.datetime]) -> None:
        """Append the run to replay_run, and commit it together with its answers."""
        writer.append(t.REPLAY_RUN, self.row(now()))
        writer.commit(now())

    def row(self, finished: dt.datetime | None) -> pa.Table:
        """The run's row of replay_run; `finished` is None while the run goes on."""
        times = (self.started, finished)
        given = self.settings.as_texts() | self.slave_lag.as_texts()
        source = without_credentials(self.source)
        run = (self.broker.name, self.run_id, source, self.source_digest, given, self.at, self.broker.lake.at.version, *times)
        return pa.Table.from_pylist([dict(zip(t.REPLAY_RUN.names, run, strict=True))], arrow_schema(t.REPLAY_RUN))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed(Generic[ComparisonT]):
    """Result of a replay.

    Attributes:
        run_id: of the replay.
        requests: number of requests.
        unanswered: number of requests without an answer, by error code.
        comparison: of the answers with the recorded answers; None if they were not compared.
        out: file of the answers; None if they are in pull_response.
    """

    run_id: str
    requests: int
    unanswered: dict[str, int]
    comparison: ComparisonT | None
    out: str | None


def count_by_error(answers: DataFrame) -> dict[str | None, int]:
    """The number of answers for each error code; the code None counts answers without an error."""
    return {row["error"]: row["count"] for row in answers.groupBy("error").count().collect()}


def replayed(run_id: str, errors: dict[str | None, int], comparison: ComparisonT | None, options: ReplayOptions) -> Replayed[ComparisonT]:
    """The result of a replay, from the numbers of its answers by error code (`count_by_error`)."""
    unanswered = {error: count for error, count in errors.items() if error is not None}
    return Replayed(run_id=run_id, requests=sum(errors.values()), unanswered=unanswered, comparison=comparison, out=options.out)
