"""The measures of replays: answers a second through Spark, compared with the kernel alone, the real broker, and a read of the tables."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from benchmarks.figures import Figure, Peer, held_against, median_seconds, rates, timed_runs
from benchmarks.made.pulls import Given, PulledStore, Pulls
from benchmarks.peers.kernel import kernel_answers
from benchmarks.peers.real_broker import RealAnswers, real_answers
from benchmarks.peers.table_columns import read_columns
from benchmarks.stand import BROKER, Stand
from benchmarks.worker_memory import memory_figure, peak_worker_memory
from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.replay import RequestProfile, replay
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings

_UNIT = "pulls/s"
_REPEATS = 2  # a run takes up to 20 seconds, and the sample has warmed what it runs on
_OF_ENTRIES = ("topic", "queueId", "segment", "firstQueueOffset", "entryCount", "entries", "extUnits")
_OF_PROPERTIES = ("topic", "queueId", "segment", "firstQueueOffset", "lengths", "properties")


def measure_replays(stand: Stand, asked: Sequence[Pulls]) -> list[Figure]:
    """Replays of pulls of so many kinds, and the memory of the largest worker in each.

    The real broker comes and goes before the first of them, so that nothing runs beside a replay; but after the import, for its start
    writes to the store.
    """
    pulled, figures = PulledStore(stand), list[Figure]()
    lake = Lake(stand.spark, str(pulled.lake))
    real = real_answers(pulled, [pulls for pulls in asked if pulls.at == "snapshot"])
    for pulls in asked:
        by_tag = [figure.value for figure in figures if pulls.same_by_tag == figure.name]
        figures += _measure_replay(pulled, lake, pulls, real.get(pulls.name), by_tag)
    return figures


def _measure_replay(pulled: PulledStore, lake: Lake, pulls: Pulls, real: RealAnswers | None, by_tag: Sequence[float]) -> list[Figure]:
    count = pulls.requests // pulled.stand.scale
    peers = _peers(pulled, pulls, count, _given(_answers(pulled, lake, pulls, pulled.sampled)), real)
    peers += [Peer("TAG", f"{pulls.same_by_tag}, which gives the same", value, "ratio > 0.2") for value in by_tag]

    def run() -> None:
        _answers(pulled, lake, pulls, count).write.format("noop").mode("overwrite").save()

    with peak_worker_memory() as peak:
        seconds = timed_runs(run, _REPEATS)
    return held_against(pulls.name, rates(count, seconds), _UNIT, *peers, target=pulls.target) + memory_figure(pulls.name, peak())


def _answers(pulled: PulledStore, lake: Lake, pulls: Pulls, count: int) -> DataFrame:
    return replay(
        OpenedBroker(lake, BROKER),
        pulled.requests(pulls, count),
        at=pulls.at,
        settings=BrokerSettings.from_sources().pull_settings(),
        with_entries=False,
        profile=RequestProfile(into_messages=pulls.filter_type == "SQL92", about=count),
    )


def _given(answers: DataFrame) -> Given:
    row = answers.selectExpr("sum(messageCount)", "sum(bufferTotalSize)", "sum(nextBeginOffset)").collect()[0]
    return Given(*row)


def _peers(pulled: PulledStore, pulls: Pulls, count: int, given: Given, real: RealAnswers | None) -> list[Peer]:
    """What a replay is compared with, each having given the same for the sample."""
    peers = []
    if pulls.filter_type != "SQL92":
        alone = kernel_answers(pulled, pulls, pulled.sample(pulls), pulled.stand.repeats)
        assert alone.given == given, f"{pulls.name}: the kernel alone gives {alone.given}, the replay {given}"
        peers.append(Peer("the kernel", "kernel over numpy arrays, one core", alone.pulls_a_second))
    if real is not None:
        assert real.given in (None, given), f"{pulls.name}: the real store gives {real.given}, the replay {given}"
        peers.append(Peer("the real store", "the real DefaultMessageStore, one thread", real.of_store))
        if pulls.loopback:
            peers.append(Peer("the real broker", "the real broker over loopback", real.of_broker, "ratio > 1"))
    if pulls.at == "snapshot":
        seconds = median_seconds(lambda: _read_what_is_replayed(pulled, pulls), pulled.stand.repeats)
        peers.append(Peer("pyarrow", "pyarrow reading the same columns, all cores", count / seconds))
    return peers


def _read_what_is_replayed(pulled: PulledStore, pulls: Pulls) -> None:
    assert read_columns(pulled.lake, t.CONSUME_QUEUE_SEGMENT.name, _OF_ENTRIES) > 0
    if pulls.filter_type == "SQL92":
        assert read_columns(pulled.lake, t.CONSUME_QUEUE_PROPERTIES.name, _OF_PROPERTIES) > 0
