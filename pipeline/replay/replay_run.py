"""What every replay has in common, whatever its requests come from: what can be chosen, what it writes, and what it tells."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.lake_writer import LakeWriter
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.replay import At
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_schema
from pipeline.settings.replica_lag import NOT_BEHIND, Behind
from pipeline.settings.settings import BrokerSettings, SettingsError

ComparisonT = TypeVar("ComparisonT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What of a replay can be chosen.

    Attributes:
        at: what of the store a request sees.
        filters: kinds of filters to answer: null, TAG, SQL92; requests with another are left out. None answers all.
        messages: give the messages of each answer.
        compare: hold the answers against the recorded ones.
        out: file for the answers; None writes them to the table pull_response.
        hold: let pulls with the suspend bit wait where they find nothing; `at` is request-time then.
        behind: how far a slave that answers is behind the store.
    """

    at: At = "snapshot"
    filters: frozenset[str] | None = None
    messages: bool = True
    compare: bool = False
    out: str | None = None
    hold: bool = False
    behind: Behind = NOT_BEHIND

    def chosen(self, requests: DataFrame) -> DataFrame:
        """The requests, or their checks, whose kind of filter is to be answered."""
        if self.filters is None:
            return requests
        return requests.where(F.coalesce("filterType", F.lit("null")).isin(sorted(self.filters)))

    def behind_of(self, broker_role: str) -> Behind:
        """How far a broker of this role is behind the store: a master is not."""
        return self.behind if broker_role == "SLAVE" else NOT_BEHIND

    def check_roles(self, *roles: str) -> None:
        """Whether one of those who answer is a slave, if a slave is to be behind.

        Raises:
            SettingsError: none is.
        """
        if self.behind != NOT_BEHIND and "SLAVE" not in roles:
            hint = "only a slave is behind its master: give --set brokerRole=SLAVE --set brokerId=1"
            raise SettingsError("--behind", "brokerRole", "SLAVE", roles[0], hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRun:
    """One run, as replay_run tells it; `source` names the requests and `source_digest` is that of their file."""

    broker: OpenedBroker
    run_id: str
    source: str
    source_digest: str | None
    settings: BrokerSettings
    at: At
    started: dt.datetime
    behind: Behind = NOT_BEHIND

    def writer(self) -> LakeWriter:
        """A writer that has the tables of answers and of runs ready."""
        writer = LakeWriter(self.broker.lake, run_id=self.run_id, what="replay", broker=self.broker.name)
        for table in t.REPLAYED:
            writer.prepare(table)
        return writer

    def write(self, answers: DataFrame, now: Callable[[], dt.datetime]) -> DataFrame:
        """Append the answers, and the run, to their tables; gives the table of answers."""
        writer = self.writer()
        writer.append(t.PULL_RESPONSE, answers.withColumns({"brokerName": F.lit(self.broker.name), "runId": F.lit(self.run_id)}))
        self.commit(writer, now)
        return writer.written(t.PULL_RESPONSE)

    def commit(self, writer: LakeWriter, now: Callable[[], dt.datetime]) -> None:
        """Append the run to its table, and make it visible with its answers."""
        writer.append(t.REPLAY_RUN, self.row(now()))
        writer.commit(now())

    def row(self, finished: dt.datetime | None) -> pa.Table:
        """Its row of replay_run."""
        times = (self.started, finished)
        given = self.settings.as_texts() | self.behind.as_texts()
        run = (self.broker.name, self.run_id, self.source, self.source_digest, given, self.at, self.broker.lake.at.version, *times)
        return pa.Table.from_pylist([dict(zip(t.REPLAY_RUN.names, run, strict=True))], arrow_schema(t.REPLAY_RUN))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed(Generic[ComparisonT]):
    """What a replay did; `unanswered` requests by error code."""

    run_id: str
    requests: int
    unanswered: dict[str, int]
    comparison: ComparisonT | None
    out: str | None


def count_by_error(answers: DataFrame) -> dict[str | None, int]:
    """How many answers there are for each error code; None for those without an error."""
    return {row["error"]: row["count"] for row in answers.groupBy("error").count().collect()}


def replayed(run_id: str, errors: dict[str | None, int], comparison: ComparisonT | None, options: ReplayOptions) -> Replayed[ComparisonT]:
    """What a replay did, of the counts of its answers by error."""
    unanswered = {error: count for error, count in errors.items() if error is not None}
    return Replayed(run_id=run_id, requests=sum(errors.values()), unanswered=unanswered, comparison=comparison, out=options.out)
