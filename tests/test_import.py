"""Import: what reaches the tables, what is refused, and that a run that dies leaves reads as they were."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from in_session import pullsim_in
from replaying import BROKER, import_into

from pipeline import tables as t
from pipeline.lake import Lake, LakeWriter, delta_version

if TYPE_CHECKING:
    from in_session import Pullsim
    from pyspark.sql import DataFrame, SparkSession


# a sample: each table takes most of an import; PULLSIM_ALL_TABLES=1 kills after every one
KILLED_AFTER = t.IMPORTED if os.environ.get("PULLSIM_ALL_TABLES") else (t.COMMIT_LOG, t.CONSUME_QUEUE, t.BROKER)


class Killed(BaseException):
    """Stands for a kill: nothing of ours catches it."""


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def imported(spark: SparkSession, small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return import_into(spark, tmp_path_factory.mktemp("import") / "lake", small_store)


def rows(frame: DataFrame) -> list[Any]:
    return sorted(map(str, frame.collect()))


def contents(spark: SparkSession, root: str) -> dict[str, list[Any]]:
    lake = Lake(spark, root)
    return {table.name: rows(lake.table(table)) for table in t.IMPORTED}


def test_every_record_of_the_log_is_a_row_that_gives_its_bytes_back(imported: Lake, small_store: Path) -> None:
    from store_format.message import Host, Message, encode

    files = {int(path.name): path.read_bytes() for path in (small_store / "commitlog").iterdir()}
    size = len(next(iter(files.values())))

    def address(text: str) -> bytes:
        import ipaddress

        return ipaddress.ip_address(text).packed

    found = imported.table(t.COMMIT_LOG).collect()
    covered = 0
    for row in found:
        message = Message(
            queue_id=row["queueId"],
            queue_offset=row["queueOffset"],
            physic_offset=row["physicOffset"],
            born_timestamp=row["bornTimestamp"],
            born_host=Host(address=address(row["bornHost"]), port=row["bornPort"]),
            store_timestamp=row["storeTimestamp"],
            store_host=Host(address=address(row["storeHost"]), port=row["storePort"]),
            body=bytes(row["body"]),
            topic=row["topic"].encode(),
            properties=bytes(row["propertiesRaw"]),
            flag=row["flag"],
            sys_flag=row["sysFlag"],
            reconsume_times=row["reconsumeTimes"],
            prepared_transaction_offset=row["preparedTransactionOffset"],
            body_crc=row["bodyCrc"],
        )
        start = row["physicOffset"]
        assert encode(message) == files[start // size * size][start % size : start % size + row["storeSize"]]
        covered += row["storeSize"]
    assert len(found) > 500
    ranges = imported.table(t.STORE_FILE_RANGE).collect()
    rest = sum(len(row["bytes"].rstrip(b"\0")) for row in ranges)
    assert covered + rest <= sum(map(len, files.values()))
    for row in ranges:
        content = files[int(row["name"])]
        assert content[row["position"] : row["position"] + len(row["bytes"])] == bytes(row["bytes"])
        content = content[: row["position"]] + bytes(len(row["bytes"])) + content[row["position"] + len(row["bytes"]) :]
        files[int(row["name"])] = content
    for row in found:
        name, at = row["physicOffset"] // size * size, row["physicOffset"] % size
        files[name] = files[name][:at] + bytes(row["storeSize"]) + files[name][at + row["storeSize"] :]
    assert all(not any(content) for content in files.values())


def test_every_entry_of_a_queue_is_a_row_with_the_time_of_its_message(imported: Lake, small_store: Path) -> None:
    import struct

    stamps = {row["physicOffset"]: row["storeTimestamp"] for row in imported.table(t.COMMIT_LOG).collect()}
    bounds = {(row["topic"], row["queueId"]): row for row in imported.table(t.QUEUE).collect()}
    expected = []
    for file in sorted((small_store / "consumequeue").glob("*/*/*")):
        topic, queue_id = file.parent.parent.name, int(file.parent.name)
        content = file.read_bytes()
        first = int(file.name) // 20
        end = min(bounds[topic, queue_id]["maxOffset"] - first, len(content) // 20)
        units = [struct.unpack_from(">qiq", content, 20 * i) for i in range(end)]
        for i, (offset, size, code) in enumerate(units):
            expected.append((topic, queue_id, first + i, offset, size, code, stamps[offset], sum(unit[1] for unit in units[i:])))
    found = [tuple(row)[1:] for row in imported.table(t.CONSUME_QUEUE).collect()]
    assert sorted(found) == sorted(expected)


def test_tables_are_partitioned_by_topic_and_queue_or_clustered(
    spark: SparkSession, imported: Lake, small_store: Path, tmp_path: Path
) -> None:
    def layout(lake: Lake, table: t.Table) -> tuple[list[str], list[str]]:
        row = spark.sql(f"DESCRIBE DETAIL delta.`{lake.path(table.name)}`").first()
        assert row is not None
        return row["partitionColumns"], row["clusteringColumns"]

    assert layout(imported, t.COMMIT_LOG) == (["topic", "queueId"], [])
    assert layout(imported, t.CONSUME_QUEUE) == (["topic", "queueId"], [])
    before = contents(spark, imported.root)

    again = import_into(spark, tmp_path / "clustered", small_store, layout="clustered")

    assert layout(again, t.COMMIT_LOG) == ([], ["topic", "queueId", "queueOffset"])
    assert layout(again, t.CONSUME_QUEUE) == ([], ["topic", "queueId", "queueOffset"])
    after = contents(spark, again.root)
    differing = [name for name in before if name != "broker" and after[name] != before[name]]
    assert differing == []


def test_a_run_that_dies_after_any_table_leaves_reads_as_before(
    spark: SparkSession, imported: Lake, small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(imported.root, lake)
    before = contents(spark, str(lake))
    note = LakeWriter._note
    for table in KILLED_AFTER:

        def die(writer: LakeWriter, written: t.Table, deadly: t.Table = table) -> None:
            note(writer, written)
            if written is deadly:
                raise Killed(deadly.name)

        monkeypatch.setattr(LakeWriter, "_note", die)
        with pytest.raises(Killed):
            import_into(spark, lake, small_store)
        assert Lake(spark, str(lake)).at.version == imported.at.version
        assert rows(Lake(spark, str(lake)).table(table)) == before[table.name]
    monkeypatch.setattr(LakeWriter, "_note", note)
    assert contents(spark, str(lake)) == before

    import_into(spark, lake, small_store)
    assert contents(spark, str(lake)) == before


def test_another_broker_is_added_and_the_same_one_replaced(
    spark: SparkSession, imported: Lake, small_store: Path, tmp_path: Path, pullsim: Pullsim
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(imported.root, lake)
    name = "it's `b` \\ %RETRY%"
    for _ in range(2):
        code, out, err = pullsim("import", small_store, "--lake", lake, "--broker-name", name)
        assert code == 0, out + err
    opened = Lake(spark, str(lake))
    assert opened.brokers() == sorted([BROKER, name])
    for table in t.IMPORTED:
        mine = [row for row in opened.table(table).collect() if row["brokerName"] == BROKER]
        assert sorted(map(str, mine)) == rows(imported.table(table)), table.name
        assert opened.table(table).where(f"brokerName = '{BROKER}'").count() * 2 == opened.table(table).count(), table.name

    code, _, err = pullsim("import", small_store, "--lake", lake, "--broker-name", "third", "--layout", "clustered")
    assert code == 2
    assert "partitioned" in err


def _no_commit_log(store: Path) -> None:
    shutil.rmtree(store / "commitlog")


def _wrong_length(store: Path) -> None:
    file = sorted((store / "commitlog").iterdir())[-1]
    file.write_bytes(file.read_bytes()[:-1])


def _wrong_queue_length(store: Path) -> None:
    file = sorted((store / "consumequeue").glob("*/*/*"))[-1]
    file.write_bytes(file.read_bytes() + b"x")


def _garbage_name(store: Path) -> None:
    file = sorted((store / "commitlog").iterdir())[-1]
    shutil.copy(file, file.with_name("notes.txt"))


def _abort_file(store: Path) -> None:
    (store / "abort").write_bytes(b"")


def _ext(store: Path) -> None:
    place = store / "consumequeue_ext" / "TopicTest" / "0"
    place.mkdir(parents=True)
    (place / "00000000000000000000").write_bytes(bytes(100))


def _link_out(store: Path) -> None:
    (store / "commitlog" / "99999999999999999999").symlink_to("/etc/hostname")


def _broken_offsets(store: Path) -> None:
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"t@g":{0:')


def _missing_queue_tail(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").mkdir()


BROKEN = [
    (_no_commit_log, "commitlog"),
    (_wrong_length, "expected a mapped file of 65536 bytes, found 65535 bytes"),
    (_wrong_queue_length, "expected a mapped file of 1000 bytes, found 1001 bytes"),
    (_garbage_name, "notes.txt"),
    (_abort_file, "abort"),
    (_ext, "consumequeue_ext"),
    (_link_out, "expected a file inside the store"),
    (_broken_offsets, "consumerOffset.json, byte"),
    (_missing_queue_tail, "would dispatch"),
]


@pytest.mark.parametrize(("damage", "said"), BROKEN, ids=[damage.__name__.strip("_") for damage, _ in BROKEN])
def test_a_store_that_cannot_be_used_is_refused_and_the_lake_untouched(
    damage: Any, said: str, small_store: Path, tmp_path: Path, pullsim: Pullsim
) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    shutil.copytree(small_store, store)
    damage(store)
    code, _, err = pullsim("import", store, "--lake", lake)
    assert code == 2, err
    assert said in err
    assert "Traceback" not in err
    assert delta_version(str(lake / "lake_version")) is None


def test_usage_errors_end_with_2(small_store: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    assert pullsim("import", tmp_path / "nowhere", "--lake", tmp_path / "lake")[0] == 2
    code, _, err = pullsim("import", small_store, "--lake", tmp_path / "lake", "--set", "mappedFileSizeComitLog=1")
    assert code == 2
    assert "mappedFileSizeCommitLog" in err
    assert pullsim("import", small_store)[0] == 2
    assert not (tmp_path / "lake").exists()


def test_the_data_source_reads_a_store_without_any_lake(spark: SparkSession, imported: Lake, small_store: Path) -> None:
    from pipeline.store_source import NAME, StoreDataSource

    spark.dataSource.register(StoreDataSource)
    for table in (t.COMMIT_LOG, t.CONSUME_QUEUE):
        found = spark.read.format(NAME).option("table", table.name).option("brokerName", BROKER).load(str(small_store))
        assert rows(found.select(*table.names)) == rows(imported.table(table).select(*table.names))


def test_tables_and_columns_say_what_they_are(spark: SparkSession, imported: Lake) -> None:
    for table in t.IMPORTED:
        described = {row["col_name"]: row["comment"] for row in spark.sql(f"DESCRIBE delta.`{imported.path(table.name)}`").collect()}
        assert {column.name: column.comment for column in table.columns}.items() <= described.items()
        assert table.columns[0].name == "brokerName"


def test_a_used_bak_file_is_told(small_store: Path, tmp_path: Path, pullsim: Pullsim, spark: SparkSession) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    shutil.copytree(small_store, store)
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text("")
    (store / "config" / "consumerOffset.json.bak").write_text('{\n\t"offsetTable":{\n\t\t"%RETRY%g@g":{0:12,3:4\n\t\t}\n\t}\n}')
    code, out, err = pullsim("import", store, "--lake", lake)
    assert code == 0, err
    assert "read from its .bak" in out
    offsets = Lake(spark, str(lake)).table(t.CONSUMER_OFFSET).collect()
    assert {row["consumerGroup"] for row in offsets} == {"g"}
    assert sorted((row["topic"], row["queueId"], row["consumerOffset"]) for row in offsets) == [("%RETRY%g", 0, 12), ("%RETRY%g", 3, 4)]
