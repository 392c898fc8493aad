"""The lake: layouts, names of all kinds, and its single commit point, also when runs die or other runs come between."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from pipeline.delta.delta_sql import create_empty
from pipeline.importing import import_store as import_module
from pipeline.lake import lake_writer
from pipeline.lake.lake import Lake, LakeError, LakeVersion
from pipeline.lake.lake_writer import LakeWriter
from pipeline.rows.topic_partitions import NULL_PARTITION
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_schema
from store_format.errors import StoreError
from tests.makers.lakes import MESSAGES, clustering, contents, file_rows, import_as, live_files, metadata, put_together, rows, tiny_store
from tests.runs.dying_runs import FORMER, check_dying_runs, kill_import
from tests.runs.replaying import BROKER, NOON, answers_of
from tests.runs.sampling import sampled, slow_proof

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from pipeline.schema.tables import Layout

BY_QUEUE = [table for table in t.IMPORTED if table.by_queue]
LAYOUTS: tuple[Layout, ...] = ("partitioned", "clustered")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_store(tmp_path_factory.mktemp("one") / "store", [("TopicA", 0), ("TopicA", 1), ("TopicB", 0)])


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another store: it shares a queue with the first one."""
    return tiny_store(tmp_path_factory.mktemp("other") / "store", [("TopicA", 0), ("TopicC", 0)], without_queue=[b"\xff"])


def layout_of(lake: Path, version: LakeVersion, table: t.Table) -> tuple[list[str], list[str]]:
    path, at = lake / table.name, version.tables[table.name]
    return metadata(path, at)["partitionColumns"], clustering(path, at)


@slow_proof
def test_importing_again_takes_the_layout_that_is_asked_for(spark: SparkSession, one: Path, tmp_path: Path) -> None:
    seen: dict[str, list[str]] = {}
    for layout in LAYOUTS:
        import_as(spark, tmp_path, one, layout=layout)
        version = Lake(spark, str(tmp_path)).at
        for table in BY_QUEUE:
            expected = (["topic", "queueId"], []) if layout == "partitioned" else ([], list(table.cluster_by))
            assert layout_of(tmp_path, version, table) == expected
            found = sorted(map(repr, rows(spark, tmp_path, table)))
            assert len(found) == 3 * MESSAGES
            assert seen.setdefault(table.name, found) == found
        assert [row["layout"] for row in rows(spark, tmp_path, t.BROKER)] == [layout]
    assert version.version == 2
    with pytest.raises(LakeError, match="was clustered once"):
        import_as(spark, tmp_path, one, layout="partitioned")
    assert placed(spark, tmp_path, one, None).layout == "clustered"


@slow_proof
@pytest.mark.parametrize("layout", sampled(LAYOUTS, 1))
def test_rows_of_a_file_lie_in_the_order_of_their_offsets(spark: SparkSession, small_store: Path, tmp_path: Path, layout: Layout) -> None:
    import_as(spark, tmp_path, small_store, layout=layout)
    version = Lake(spark, str(tmp_path)).at
    for table in BY_QUEUE:
        path = tmp_path / table.name
        for add in live_files(path, version.tables[table.name]).values():
            order = [(row["topic"], int(row["queueId"]), row["queueOffset"]) for row in file_rows(path, add)]
            assert order == sorted(order)
            assert layout == "clustered" or len({queue[:2] for queue in order}) == 1


def placed(spark: SparkSession, lake: Path, store: Path, asked: Layout | None, broker: str = "b") -> Any:
    """The placement of rows that an import would choose."""
    from pipeline.files.store_files import StoreFiles
    from pipeline.importing.load_store import load_store
    from pipeline.settings.settings import BrokerSettings
    from pipeline.tasks.work import DriverTasks

    loaded = load_store(DriverTasks(), StoreFiles(str(store)), broker, BrokerSettings.from_sources())
    writer = LakeWriter(Lake(spark, str(lake)), run_id="run", what="import", broker=broker)
    return import_module._placement(writer, loaded, asked)


def test_many_queues_are_clustered_unless_partitions_are_asked_for(
    spark: SparkSession, one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module, "PARTITIONS_MAX", 3)
    assert placed(spark, tmp_path, one, None).layout == "partitioned"
    monkeypatch.setattr(import_module, "PARTITIONS_MAX", 2)
    assert placed(spark, tmp_path, one, None).layout == "clustered"
    assert placed(spark, tmp_path, one, "partitioned").layout == "partitioned"


@slow_proof
def test_a_lake_of_other_brokers_keeps_its_layout(spark: SparkSession, one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_as(spark, tmp_path, one, "first", layout="clustered")
    assert placed(spark, tmp_path, one, None).layout == "clustered"
    with pytest.raises(LakeError, match="is clustered, as broker 'first' was imported; it cannot be partitioned"):
        import_as(spark, tmp_path, one, layout="partitioned")
    assert Lake(spark, str(tmp_path)).brokers() == ["first"]


# of the first group each can be the name of a partition's folder
PLAIN = [
    "%RETRY%g",
    "%DLQ%g",
    "Topic",
    "topic",
    "a.b",
    "null",
    "NULL",
    "NaN",
    "true",
    "01",
    "1.0",
    "1e3",
    "2020-01-01",
    "x" * 127,
    "%" * 83,
]
ODD = ["%" * 84, "%" * 127, "é" * 63, "名前", "🚀", "e\u0301", "\u00e9", " ", " padded ", "a b", "a=b", "topic=x", "it's", 'say "x"', "`"]
ODD += ["back\\slash", "new\nline", "\t", "\x01", "\x7f", "\u2028", "..%2F", "a:b", "a;b,c", "*?", "#", "{x}", "[x]", "$1", "' OR '1'='1"]
# no folder of a consume queue can have such a name, but a record can say it
WITHOUT_QUEUE = ["a/../b", "../../x", ".", "..", "a\0b", "/", "deleted"]
NO_TEXT = [b"", b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80"]


def requests_for(store: Path, topics: list[str]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """A pull of each queue, and the physical offsets that it must give."""
    lines, offsets = [], []
    for topic in topics:
        request = {"group": "g", "topic": topic, "queueId": 0, "offset": 0, "maxMsgNums": 32, "filter": None}
        lines.append({"request": request})
        units = (store / "consumequeue" / topic / "0" / ("0" * 20)).read_bytes()[: 20 * MESSAGES]
        offsets.append([offset for offset, _, _ in struct.iter_unpack(">qiq", units)])
    return lines, offsets


@slow_proof
@pytest.mark.parametrize(
    ("topics", "layout", "named"),
    [
        (PLAIN, "partitioned", True),
        (ODD, "clustered", False),
        (sampled(PLAIN, 3) + sampled(ODD, 6), "partitioned", False),
    ],
)
def test_any_topic_survives_import_reads_and_replay(
    spark: SparkSession, tmp_path: Path, topics: list[str], layout: Layout, named: bool
) -> None:
    without_queue = [topic.encode() for topic in ([] if named else WITHOUT_QUEUE)] + NO_TEXT
    store = tiny_store(tmp_path / "store", [(topic, 0) for topic in topics], without_queue=without_queue)
    folder = tmp_path / "la'ke `x` %20é"
    import_as(spark, folder, store, BROKER, layout=layout)
    lake = Lake(spark, str(folder))

    log = rows(spark, folder, t.COMMIT_LOG)
    counts = Counter(dict.fromkeys(topics, MESSAGES) | ({} if named else dict.fromkeys(WITHOUT_QUEUE, 1)))
    assert Counter(row["topic"] for row in log) == counts
    made = put_together(store, log, rows(spark, folder, t.STORE_FILE_RANGE))
    assert made == {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()}
    queued = dict.fromkeys(topics, MESSAGES)
    assert Counter(row["topic"] for row in rows(spark, folder, t.CONSUME_QUEUE)) == Counter(queued)
    assert {row["topic"]: row["maxOffset"] for row in rows(spark, folder, t.QUEUE)} == queued
    for topic in sampled(topics, 3):
        assert lake.table(t.COMMIT_LOG).where(F.col("topic") == topic).count() == MESSAGES

    folders = {path.name for path in (folder / "commit_log").iterdir() if path.name.startswith("topic=")}
    assert len(folders) == (len(topics) if named else 0)
    lines, offsets = requests_for(store, topics)
    answers = answers_of(lake, lines, tmp_path)
    assert [[message["physicOffset"] for message in line["response"]["messages"]] for line in answers] == offsets


@slow_proof
def test_a_topic_that_a_partition_reads_back_as_null_is_clustered(spark: SparkSession, tmp_path: Path) -> None:
    queued = tiny_store(tmp_path / "queued", [(NULL_PARTITION, 0)])
    deleted = tiny_store(tmp_path / "deleted", [("T", 0)], without_queue=[NULL_PARTITION.encode()])
    for store in (queued, deleted):
        lake = tmp_path / f"{store.name}-lake"
        with pytest.raises(StoreError, match="import it with --layout clustered"):
            import_as(spark, lake, store, layout="partitioned")
        assert not lake.exists()
        assert import_as(spark, lake, store).layout == "clustered"
        assert NULL_PARTITION in {row["topic"] for row in rows(spark, lake, t.COMMIT_LOG)}


@slow_proof
def test_a_broker_with_odd_topics_joins_one_with_plain_ones(spark: SparkSession, one: Path, tmp_path: Path) -> None:
    odd = tiny_store(tmp_path / "odd", [("%" * 127, 0), ("名前", 0)])
    import_as(spark, tmp_path / "lake", one, "plain")
    before = contents(tmp_path / "lake", Lake(spark, str(tmp_path / "lake")).at.tables)
    import_as(spark, tmp_path / "lake", odd, "odd")
    after = Lake(spark, str(tmp_path / "lake")).at.tables
    assert contents(tmp_path / "lake", after, "plain") == before
    for table in BY_QUEUE:
        found = rows(spark, tmp_path / "lake", table, "brokerName = 'odd'")
        assert Counter(row["topic"] for row in found) == Counter({"%" * 127: MESSAGES, "名前": MESSAGES})


@slow_proof
def test_a_broker_of_any_name_is_added_and_replaced(spark: SparkSession, one: Path, other: Path, tmp_path: Path) -> None:
    name = "it's \"x\" \\ back\\\\ `tick` \n %25 \\' OR 'a' = 'a"
    import_as(spark, tmp_path, one, "x")
    before = contents(tmp_path, Lake(spark, str(tmp_path)).at.tables)
    import_as(spark, tmp_path, one, name)
    version = import_as(spark, tmp_path, other, name).lake_version
    lake = Lake(spark, str(tmp_path))
    assert (version, lake.at.version) == (3, 3)
    assert lake.brokers() == sorted([name, "x"])
    assert contents(tmp_path, lake.at.tables, "x") == before
    for table in t.IMPORTED:
        found = {row["brokerName"] for row in rows(spark, tmp_path, table)}
        assert found <= {name, "x"}
        assert table not in BY_QUEUE or found == {name, "x"}
    topics = {row["topic"] for row in rows(spark, tmp_path, t.COMMIT_LOG) if row["brokerName"] == name}
    assert topics == {"TopicA", "TopicC"}


@slow_proof
def test_tables_and_columns_have_their_comments_after_any_import(spark: SparkSession, one: Path, tmp_path: Path) -> None:
    for layout in LAYOUTS:
        import_as(spark, tmp_path, one, layout=layout)
    tables = Lake(spark, str(tmp_path)).at.tables
    for table in (*t.IMPORTED, t.LAKE_VERSION):
        told = metadata(tmp_path / table.name, tables.get(table.name, 10))
        assert told["description"] == table.comment
        columns = json.loads(told["schemaString"])["fields"]
        assert [(one["name"], one["metadata"]["comment"]) for one in columns] == [(one.name, one.comment) for one in table.columns]


# tests/long has runs die after each table
DEADLY = (t.COMMIT_LOG, t.CONSUME_QUEUE_SEGMENT, t.CONSUME_QUEUE, None)


@slow_proof
@pytest.mark.parametrize("former", FORMER)
def test_runs_that_die_are_invisible_and_the_next_one_succeeds(
    spark: SparkSession, one: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: str
) -> None:
    check_dying_runs(spark, one, other, tmp_path, monkeypatch, FORMER[former], tuple(sampled(DEADLY, 1)))


def test_a_lake_whose_first_commit_never_came_is_empty(spark: SparkSession, one: Path, tmp_path: Path) -> None:
    (tmp_path / "commit_log" / "topic=T").mkdir(parents=True)
    (tmp_path / "commit_log" / "topic=T" / "part-0.parquet").write_bytes(b"half a file")
    (tmp_path / "queue" / "_delta_log").mkdir(parents=True)
    (tmp_path / "queue" / "_delta_log" / f".{'0' * 20}.json.tmp").write_bytes(b"{")
    spark.sql(create_empty(t.LAKE_VERSION, str(tmp_path / "lake_version")))
    assert Lake(spark, str(tmp_path)).at == LakeVersion()
    with pytest.raises(LakeError, match="expected a lake"):
        Lake(spark, str(tmp_path)).require()
    assert import_as(spark, tmp_path, one).lake_version == 1
    assert len(rows(spark, tmp_path, t.COMMIT_LOG)) == 3 * MESSAGES


def interrupt(monkeypatch: pytest.MonkeyPatch, name: str, between: Callable[[], None], *, after: t.Table | None = None) -> None:
    """Let another run, `between`, happen before the next call of a method of LakeWriter, or with `after` after its call for that table."""
    method = getattr(LakeWriter, name)

    def interrupted(self: LakeWriter, *rest: Any) -> Any:
        if after is not None and rest[0] is not after:
            return method(self, *rest)
        monkeypatch.setattr(LakeWriter, name, method)
        if after is None:
            between()
            return method(self, *rest)
        done = method(self, *rest)
        between()
        return done

    monkeypatch.setattr(LakeWriter, name, interrupted)


@slow_proof
@pytest.mark.parametrize(
    ("former", "moment"),
    sampled(product(["the first import", "one of two brokers"], ["before the commit", "in the middle"]), 1),
)
def test_of_two_runs_at_once_the_second_to_commit_fails(
    spark: SparkSession, one: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: str, moment: str
) -> None:
    monkeypatch.setattr(import_module, "_TABLES_AT_ONCE", 1)
    for broker in FORMER[former]:
        import_as(spark, tmp_path, one, broker)
    seen: list[tuple[LakeVersion, dict[str, list[str]]]] = []

    def other_run() -> None:
        import_as(spark, tmp_path, one, "faster", run_id="faster")
        version = Lake(spark, str(tmp_path)).at
        seen.append((version, contents(tmp_path, version.tables)))

    if moment == "before the commit":
        interrupt(monkeypatch, "commit", other_run)
    else:
        interrupt(monkeypatch, "replace_broker", other_run, after=t.QUEUE)
    with pytest.raises(LakeError, match="expected no other run to write to the lake since its version"):
        import_as(spark, tmp_path, other, run_id="slower")
    lake = Lake(spark, str(tmp_path))
    assert [(lake.at, contents(tmp_path, lake.at.tables))] == seen
    assert lake.brokers() == sorted({*FORMER[former], "faster"})

    import_as(spark, tmp_path, other, run_id="again")
    after = Lake(spark, str(tmp_path)).at
    assert contents(tmp_path, after.tables, "faster") == contents(tmp_path, seen[0][0].tables, "faster")


def test_a_table_that_another_run_creates_meanwhile_stops_the_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = LakeWriter(Lake(spark, str(tmp_path)), run_id="slower", what="import", broker="b")
    spark.sql(create_empty(t.QUEUE, str(tmp_path / "queue")))
    monkeypatch.setattr(lake_writer, "is_empty", lambda _path: True)
    with pytest.raises(LakeError, match="expected no other run to write to the lake since its version 0, found one"):
        writer.replace_broker(t.QUEUE, spark.createDataFrame([("b", "T", 0, 0, 99)], t.QUEUE.schema))


@slow_proof
def test_rows_that_slip_in_under_a_write_are_undone(
    spark: SparkSession, one: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for broker in ("b", "x"):
        import_as(spark, tmp_path, one, broker)

    slipped: list[int] = []

    def slip_in() -> None:
        slipped.append(99)
        strange = spark.createDataFrame([("x", "T", 0, 0, 99)], t.QUEUE.schema)
        strange.write.format("delta").mode("append").save(str(tmp_path / "queue"))

    interrupt(monkeypatch, "_restore", slip_in, after=t.QUEUE)
    import_as(spark, tmp_path, other, run_id="other")
    assert slipped, "the write of the table was not met"
    assert 99 not in {row["maxOffset"] for row in rows(spark, tmp_path, t.QUEUE)}


@pytest.mark.parametrize("by_spark", [False, pytest.param(True, marks=slow_proof)])
def test_a_process_that_is_killed_leaves_reads_as_they_were(
    spark: SparkSession, one: Path, small_store: Path, tmp_path: Path, by_spark: bool
) -> None:
    import_as(spark, tmp_path, one)
    before = Lake(spark, str(tmp_path)).at
    contents_before = contents(tmp_path, before.tables)
    kill_import(small_store, tmp_path, commits=random.Random(20261).randint(1, 6), by_spark=by_spark)
    assert Lake(spark, str(tmp_path)).at == before
    assert contents(tmp_path, before.tables) == contents_before
    done = import_as(spark, tmp_path, small_store)
    assert (done.lake_version, done.messages) == (2, len(rows(spark, tmp_path, t.COMMIT_LOG)))


def test_a_table_of_an_older_version_gets_the_columns_that_came_since(spark: SparkSession, tmp_path: Path) -> None:
    table = t.REPLAY_RUN
    older = replace(table, columns=tuple(column for column in table.columns if column.name != "at"))
    for run, columns in (("old", older), ("new", table)):
        writer = LakeWriter(Lake(spark, str(tmp_path)), run_id=run, what="replay", broker=BROKER)
        writer.prepare(columns)
        row = {"brokerName": BROKER, "runId": run, "at": "snapshot"}
        writer.append(columns, spark.createDataFrame([tuple(row.get(name) for name in columns.names)], columns.schema))
        writer.commit(NOON)
    found = rows(spark, tmp_path, table)
    assert sorted((row["runId"], row["at"]) for row in found) == [("new", "snapshot"), ("old", None)]


@slow_proof
def test_a_lake_that_only_spark_can_write_holds_the_same(spark: SparkSession, one: Path, tmp_path: Path) -> None:
    lakes = [tmp_path / "lake", tmp_path / "50%25 of a lake"]
    kept = []
    for lake in lakes:
        import_as(spark, lake, one)
        found = Lake(spark, str(lake))
        writer = LakeWriter(found, run_id="later", what="replay", broker="b")
        writer.prepare(t.REPLAY_RUN)
        writer.append(t.REPLAY_RUN, arrow_schema(t.REPLAY_RUN).empty_table())
        assert writer.commit(NOON) == 2
        kept.append(contents(lake, found.newest().tables))
    assert kept[0] == kept[1]
