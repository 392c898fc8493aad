"""Import of the real broker's stores: the tables have every byte of the commit log, every entry, and the bounds of the broker's answers."""

from __future__ import annotations

import struct
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.schema import tables as t
from tests.makers.lakes import put_together
from tests.runs.replaying import lake_of
from tests.runs.sampling import sampled
from tests.truth.golden import golden_lines, names, needs_golden, recovery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.lake.lake import Lake

# stores of a clean shutdown; `ext` has a queue extension
CLEAN = ("basic", "cleaned", "ext", "holes", "preblank0", "preblank1", "small", "window")
PRE_BLANK_SIZE = 2147483647
EXT_MAX_ADDRESS = -(2**31) - 1  # ConsumeQueueExt.MAX_ADDR

pytestmark = needs_golden


@pytest.fixture(scope="module", params=sampled(CLEAN, 1))
def imported(
    request: pytest.FixtureRequest, spark: SparkSession, stores: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Lake]:
    """A store and the lake that holds it."""
    store = stores / request.param
    return store, lake_of(spark, store, tmp_path_factory, by_spark=True)


def rows(lake: Lake, table: t.Table) -> list[dict[str, Any]]:
    return [row.asDict() for row in lake.table(table).collect()]


def test_rows_and_ranges_give_every_byte_of_the_commit_log_back(imported: tuple[Path, Lake]) -> None:
    store, lake = imported
    made = put_together(store, rows(lake, t.COMMIT_LOG), rows(lake, t.STORE_FILE_RANGE))
    for path in (store / "commitlog").iterdir():
        assert made[path.name] == path.read_bytes(), path.name


class Log:
    """The commit log's bytes, with the broker's look-up of a message's store time."""

    def __init__(self, store: Path) -> None:
        self.files = {int(path.name): path.read_bytes() for path in (store / "commitlog").iterdir()}
        self.size = len(next(iter(self.files.values())))

    def store_timestamp(self, offset: int, size: int) -> int | None:
        """The store timestamp of the record at `offset`; CommitLog.pickupStoreTimestamp reads none before the log's first file."""
        content = self.files.get(offset // self.size * self.size)
        at = offset % self.size
        if content is None or at + size > self.size:
            return None
        (sys_flag,) = struct.unpack_from(">i", content, at + 36)
        (stamp,) = struct.unpack_from(">q", content, at + 48 + (20 if sys_flag & 0x10 else 8))
        return int(stamp)


def ext_unit(store: Path, queue: tuple[str, int], code: int) -> tuple[int, int, bytes | None] | None:
    """The unit at an address, if the extension's files follow each other without a gap."""
    folder = store / "consumequeue_ext" / queue[0] / str(queue[1])
    if code > EXT_MAX_ADDRESS or not folder.exists():
        return None
    raw, at = b"".join(path.read_bytes() for path in sorted(folder.iterdir())), code + 2**63
    _, tags_code, store_time, length = struct.unpack_from(">hqqh", raw, at)
    return tags_code, store_time, raw[at + 20 : at + 20 + length] if length else None


def entries(store: Path, bounds: dict[tuple[str, int], tuple[int, int]]) -> list[tuple[Any, ...]]:
    """The rows that consume_queue must have, read from the files up to each queue's recorded end."""
    log, expected = Log(store), []
    for path in sorted((store / "consumequeue").glob("*/*/*")):
        queue, first, content = (path.parts[-3], int(path.parts[-2])), int(path.name) // 20, path.read_bytes()
        count = max(0, min(len(content) // 20, bounds[queue][1] - first))
        units = [struct.unpack_from(">qiq", content, 20 * at) for at in range(count)]
        before = 0
        for at, (offset, size, code) in enumerate(units):
            unit = ext_unit(store, queue, code)
            expected.append((*queue, first + at, offset, size, code, unit, log.store_timestamp(offset, size), before))
            before += size
    return expected


def recorded_bounds(name: str) -> dict[tuple[str, int], tuple[int, int]]:
    queues = recovery(name)["afterStart"]["queues"]
    return {(queue["topic"], queue["queueId"]): (queue["minOffsetInQueue"], queue["maxOffsetInQueue"]) for queue in queues}


def test_every_entry_is_a_row_with_the_time_of_its_message(imported: tuple[Path, Lake]) -> None:
    store, lake = imported
    expected = entries(store, recorded_bounds(store.name))
    found = [tuple(row[name] for name in t.CONSUME_QUEUE.names[1:]) for row in rows(lake, t.CONSUME_QUEUE)]
    assert any(row[6] for row in found) == (store.name == "ext")
    assert sorted(found, key=lambda row: row[:3]) == sorted(expected, key=lambda row: row[:3])
    stamps = {row["physicOffset"]: row["storeTimestamp"] for row in rows(lake, t.COMMIT_LOG)}
    for _, _, _, offset, size, _, _, stamp, _ in found:
        if offset in stamps and size != PRE_BLANK_SIZE:
            assert stamp == stamps[offset]


def test_segments_hold_the_same_entries(imported: tuple[Path, Lake]) -> None:
    _, lake = imported
    unpacked = []
    for row in rows(lake, t.CONSUME_QUEUE_SEGMENT):
        stamps = struct.unpack(f"<{row['entryCount']}q", row["storeTimestamps"])
        units = list(struct.iter_unpack(">qiq", row["entries"]))[: row["entryCount"]]
        for at, (unit, stamp) in enumerate(zip(units, stamps, strict=True)):
            unpacked.append((row["topic"], row["queueId"], row["firstQueueOffset"] + at, *unit, None if stamp == -(2**63) else stamp))
    columns = [name for name in t.CONSUME_QUEUE.names[1:-1] if name != "extUnit"]
    found = [tuple(row[name] for name in columns) for row in rows(lake, t.CONSUME_QUEUE)]
    assert sorted(unpacked, key=lambda row: row[:3]) == sorted(found, key=lambda row: row[:3])


def test_bounds_are_those_that_the_broker_answered_with(imported: tuple[Path, Lake]) -> None:
    store, lake = imported
    bounds = {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in rows(lake, t.QUEUE)}
    assert bounds == recorded_bounds(store.name)
    (broker,) = rows(lake, t.BROKER)
    traces = [trace for trace in names("traces", "*.jsonl") if trace.startswith(f"{store.name}-")]
    for trace in traces:
        header, *answers = golden_lines("store", "traces", f"{trace}.jsonl")
        assert (broker["minPhyOffset"], broker["maxPhyOffset"]) == (header["minPhyOffset"], header["maxPhyOffset"])
        for answer in answers:
            request, response = answer["request"], answer["response"]
            if response is not None and "exception" not in response:
                expected = (response["minOffset"], response["maxOffset"])
                assert bounds.get((request["topic"], request["queueId"]), (0, 0)) == expected
    assert traces or store.name == "small"


def test_every_file_is_told_with_its_length_and_time(imported: tuple[Path, Lake]) -> None:
    store, lake = imported
    found = {row["path"]: row for row in rows(lake, t.STORE_FILE)}
    files = {str(path.relative_to(store)): path for path in store.rglob("*") if path.is_file()}
    empty = {str(path.relative_to(store)) for path in store.rglob("*") if path.is_dir() and not any(path.iterdir())}
    assert {path for path, row in found.items() if row["kind"] == "folder"} == empty
    assert found.keys() == files.keys() | empty
    for name, path in files.items():
        row, stat = found[name], path.stat()
        assert (row["name"], row["length"], row["mtimeMs"]) == (path.name, stat.st_size, stat.st_mtime_ns // 1_000_000)
        kind, *queue = name.split("/")[:-1] or [name]
        assert row["kind"] == kind
        if kind in {"commitlog", "consumequeue"}:
            assert row["fromOffset"] == int(path.name)
        if kind == "consumequeue":
            assert [row["topic"], str(row["queueId"])] == queue


def test_properties_of_each_segment_are_those_of_its_messages(imported: tuple[Path, Lake]) -> None:
    _, lake = imported
    stored = {(row["physicOffset"], row["storeSize"]): bytes(row["propertiesRaw"]) for row in rows(lake, t.COMMIT_LOG)}
    segments = {(row["topic"], row["queueId"], row["segment"]): row for row in rows(lake, t.CONSUME_QUEUE_SEGMENT)}
    seen = set()
    for row in rows(lake, t.CONSUME_QUEUE_PROPERTIES):
        key = (row["topic"], row["queueId"], row["segment"])
        units = list(struct.iter_unpack(">qiq", segments[key]["entries"]))
        assert row["firstQueueOffset"] == segments[key]["firstQueueOffset"]  # none is so large that it is cut
        at = 0
        for (offset, size, _), (length,) in zip(units, struct.iter_unpack("<i", row["lengths"]), strict=True):
            found = row["properties"][at : at + max(length, 0)]
            at += max(length, 0)
            if (offset, size) in stored:
                assert (length, bytes(found)) == (len(stored[offset, size]), stored[offset, size])
        assert at == len(row["properties"])
        seen.add(key)
    assert seen == segments.keys()


def test_the_broker_row_knows_the_last_message(imported: tuple[Path, Lake]) -> None:
    _, lake = imported
    (broker,) = rows(lake, t.BROKER)
    assert broker["maxStoreTimestamp"] == max(row["storeTimestamp"] for row in rows(lake, t.COMMIT_LOG))


def test_the_segments_of_the_log_hold_the_ends_and_times_of_its_records(imported: tuple[Path, Lake]) -> None:
    _, lake = imported
    log = sorted(rows(lake, t.COMMIT_LOG), key=lambda row: row["physicOffset"])
    expected = [(row["physicOffset"] + row["storeSize"], row["storeTimestamp"]) for row in log]
    found = []
    for row in sorted(rows(lake, t.COMMIT_LOG_SEGMENT), key=lambda row: row["firstPhysicOffset"]):
        ends, stamps = (struct.unpack(f"<{row['recordCount']}q", row[name]) for name in ("ends", "storeTimestamps"))
        assert (row["endPhysicOffset"], row["minStoreTimestamp"]) == (ends[-1], min(stamps))
        found += list(zip(ends, stamps, strict=True))
    assert found == expected
    assert all(len(list(group)) == 1 for _, group in groupby(found, key=lambda pair: pair[0]))
