"""Answers to few requests by the driver alone: tasks of a Spark session would take longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.driver_answers import only_spark_answers
from pipeline.replay.driver_replay import MOST_READ_ENTRIES
from pipeline.replay.replay import broker_store
from pipeline.replay.replay_run import ReplayOptions
from pipeline.requests.request_file import request_bytes
from pipeline.schema import capture_tables as ct
from pipeline.tasks import small_work

Done = TypeVar("Done")
# what answers are made from. queues: entries, and properties for filters; lines: also all requests and all answers at once
Reads = Literal["queues", "lines"]

_MOST_PULLS = 100_000
# about a million requests, and 250,000
_MOST_REQUEST_BYTES, _MOST_LINE_BYTES = 192 << 20, 32 << 20
# about ten thousand requests: the driver finds out whether they need many entries before a session would have started
_FEW_REQUEST_BYTES = 1 << 20


def answered_here(
    answer: Callable[[OpenedBroker], Done],
    lake_root: str,
    name: str | None,
    requests_path: str | None,
    *,
    options: ReplayOptions,
    reads: Reads,
    tell: Callable[[str], None],
) -> Done | None:
    """Return the result of `answer` for a broker, without a session, if the requests are few and the driver can read the tables.

    Args:
        answer: answers requests; raises NoSessionError before it writes anything, if only Spark can.
        lake_root: directory or URI of the lake.
        name: the broker's name; None for the lake's only broker.
        requests_path: path of the request file; None for captured pulls.
        options: of the replay.
        reads: what the answers are made from.
        tell: called with a line that says whether the driver or Spark answers, and why if it is Spark.

    Returns:
        The result; None if Spark has to answer.
    """

    def work() -> Done:
        broker = OpenedBroker.of(None, lake_root, name)
        small_work.require_small(_why_not_small(broker, requests_path, options, reads), "answers", tell)
        return answer(broker)

    return small_work.done_here(work, "answers", tell)


def _why_not_small(broker: OpenedBroker, requests_path: str | None, options: ReplayOptions, reads: Reads) -> str | None:
    if reason := only_spark_answers(options):
        return reason
    size = 0
    if requests_path is None:
        if broker.lake.count(ct.PULL_REQUEST) > _MOST_PULLS:
            return f"more than {_MOST_PULLS:,} pulls are captured"
    else:
        size, most = request_bytes(requests_path), _MOST_REQUEST_BYTES if reads == "queues" else _MOST_LINE_BYTES
        if size > most:
            return f"the file has more than {most >> 20} MiB"
    if size <= _FEW_REQUEST_BYTES:
        return None
    store = broker_store(broker, readable=False)  # a store that was imported as found is refused later, when it answers
    return None if store.entries <= MOST_READ_ENTRIES else f"the queues have more than {MOST_READ_ENTRIES:,} entries"
