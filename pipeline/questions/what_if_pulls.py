"""The pulls that `pullsim whatif` answers, of a file or captured, and their answers under two sets of settings, on either engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.capture.captured_pulls import captured_pulls
from pipeline.capture.captured_requests import captured_requests
from pipeline.capture.driver_captures import captured_pulls_here, captured_requests_here, checked_here, request_objects
from pipeline.capture.pull_checks import checked
from pipeline.embedded.relations import DriverRelations, Relations, SparkRelations
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.questions.drain import SIDES
from pipeline.replay.answer_lines import ANSWER_FIELDS
from pipeline.replay.driver_answers import file_requests_here, require_driver_answers
from pipeline.replay.driver_replay import answers_here
from pipeline.replay.replay import RequestProfile
from pipeline.replay.replay_job import answer, check_timestamps
from pipeline.replay.replay_run import ReplayOptions
from pipeline.requests.parquet_requests import request_of
from pipeline.requests.request_file import RequestFile
from pipeline.requests.request_source import read_requests
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings, PullSettings
from pipeline.tasks.computed_once import kept

# fields that are compared if both sides have a status
FIELDS: Final = (*(name for name in ANSWER_FIELDS if name != "status"), "messages")
_NUMBERS: Final = ("exception", "error", *(name for name in FIELDS if name != "messages"), "messagesOnDisk")
_SIDE: Final = (
    "named_struct('outcome', coalesce(status, exception, error, 'null'), "
    + ", ".join(f"'{name}', {name}" for name in _NUMBERS)
    + ", 'messages', transform(entries, entry -> entry.queueOffset))"
)
_BOTH_ANSWER: Final = " AND ".join(f"`{side}`.nextBeginOffset IS NOT NULL" for side in SIDES)


def _differs(field: str) -> str:
    return f"NOT (`{SIDES[0]}`.{field} <=> `{SIDES[1]}`.{field})"


_DIFFERING: Final = ", ".join(
    [
        f"CASE WHEN {_differs('outcome')} THEN 'status' END",
        *(f"CASE WHEN {_BOTH_ANSWER} AND {_differs(field)} THEN '{field}' END" for field in FIELDS),
    ]
)
# seq, a struct of the fields of each side's answer, and the names of the fields in which the sides differ
_COMPARED: Final = (
    f"SELECT *, filter(array({_DIFFERING}), name -> name IS NOT NULL) AS fields FROM "
    + " JOIN ".join(f"(SELECT seq, {_SIDE} AS `{side}` FROM {{{side}}})" for side in SIDES)
    + " USING (seq)"
)


class WhatIfPulls(Protocol):
    """The pulls that are answered."""

    @property
    def captured(self) -> Relations | None:
        """Captured `pulls`, their checks (`checked`), and the broker's `queues`; None if the pulls are of a file."""
        ...

    def count(self) -> int:
        """The number of pulls that reach the store."""
        ...

    def objects(self, seqs: Sequence[int]) -> dict[int, Any]:
        """The request objects of some pulls, as in a request file."""
        ...

    def compared(self, settings: Sequence[PullSettings]) -> AbstractContextManager[Relations]:
        """The answers under two sets of settings as the relation `compared`: `seq`, a struct for each of SIDES, and differing `fields`."""
        ...


def what_if_pulls(broker: OpenedBroker, file: RequestFile | None, settings: BrokerSettings, options: ReplayOptions) -> WhatIfPulls:
    """Return the pulls of a file, or the captured pulls if `file` is None.

    Args:
        broker: the broker whose store answers.
        file: the file.
        settings: of the broker, for its checks of captured pulls.
        options: `at`, `filters` and `slave_lag` of a replay.

    Raises:
        RequestError: a line is no request, or lacks its time.
        LakeError: no pulls were captured.
        NoSessionError: there is no session, and only Spark can answer.
    """
    kind: type[SparkPulls | DriverPulls] = SparkPulls if broker.lake.has_session else DriverPulls
    return kind.of(broker, file, settings, options)


@dataclass(frozen=True, slots=True)
class SparkPulls:
    """Pulls in a session of Spark."""

    broker: OpenedBroker
    requests: DataFrame
    profile: RequestProfile
    options: ReplayOptions
    captured: SparkRelations | None

    @classmethod
    def of(cls, broker: OpenedBroker, file: RequestFile | None, settings: BrokerSettings, options: ReplayOptions) -> SparkPulls:
        """As `what_if_pulls` says."""
        spark = broker.lake.spark
        if file is not None:
            requests = read_requests(spark, file)
            check_timestamps(requests, file, options)
            profile = RequestProfile(into_messages=file.has_other_filters, far=file.has_large_max, about=file.lines)
            return cls(broker, requests, profile, options, None)
        pulls = captured_pulls(broker)
        relations = SparkRelations(spark, pulls=pulls, checked=checked(broker, pulls, settings), queues=broker.table(t.QUEUE))
        return cls(broker, captured_requests(broker, settings).persist(), RequestProfile(), options, relations)

    def count(self) -> int:
        """As WhatIfPulls says."""
        return self.requests.count()

    def objects(self, seqs: Sequence[int]) -> dict[int, Any]:
        """As WhatIfPulls says."""
        rows = self.requests.where(F.col("seq").isin([*seqs])).collect()
        return {row["seq"]: request_of(row.asDict()) for row in rows}

    @contextmanager
    def compared(self, settings: Sequence[PullSettings]) -> Iterator[SparkRelations]:
        """As WhatIfPulls says."""
        answers = {
            side: answer(self.broker, self.requests, options=self.options, settings=one, profile=self.profile)
            for side, one in zip(SIDES, settings, strict=True)
        }
        spark = self.broker.lake.spark
        with (
            SparkRelations(spark, **answers) as both,
            kept(both.frame(_COMPARED)) as rows,
            SparkRelations(spark, compared=rows) as compared,
        ):
            yield compared


@dataclass(frozen=True, slots=True)
class DriverPulls:
    """Pulls on the driver, without Spark."""

    broker: OpenedBroker
    requests: pa.Table
    options: ReplayOptions
    captured: DriverRelations | None

    @classmethod
    def of(cls, broker: OpenedBroker, file: RequestFile | None, settings: BrokerSettings, options: ReplayOptions) -> DriverPulls:
        """As `what_if_pulls` says."""
        if file is not None:
            return cls(broker, file_requests_here(file, options), options, None)
        pulls = captured_pulls_here(broker)
        found = checked_here(broker, pulls, settings)
        relations = DriverRelations(pulls=pulls, checked=found, queues=broker.rows(t.QUEUE))
        return cls(broker, captured_requests_here(pulls, found), options, relations)

    def count(self) -> int:
        """As WhatIfPulls says."""
        return len(self.requests)

    def objects(self, seqs: Sequence[int]) -> dict[int, Any]:
        """As WhatIfPulls says."""
        if self.captured is not None:
            return request_objects(self.requests, seqs)
        rows = self.requests.filter(pc.is_in(self.requests["seq"], pa.array(seqs, pa.int64())))
        return {row["seq"]: request_of(row) for row in rows.to_pylist()}

    @contextmanager
    def compared(self, settings: Sequence[PullSettings]) -> Iterator[DriverRelations]:
        """As WhatIfPulls says."""
        for one in settings:
            require_driver_answers(self.options, one)
        chosen = self.options.chosen_here(self.requests)
        answers = {
            side: answers_here(self.broker, chosen, at=self.options.at, settings=one, with_entries=True)
            for side, one in zip(SIDES, settings, strict=True)
        }
        yield DriverRelations(compared=DriverRelations(**answers).table(_COMPARED))
