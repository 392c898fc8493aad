"""Compares the tables of a followed lake with those of an import."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from pipeline.lake.lake import Lake
from pipeline.schema import tables as t
from tests.makers.lakes import file_rows, live_files
from tests.makers.living_store import LivingStore
from tests.runs.in_session import Pullsim
from tests.runs.replaying import BROKER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.runs.in_session import Pullsim

# the tables that a follower keeps up to date; only an import writes the others
KEPT = (
    t.COMMIT_LOG,
    t.CONSUME_QUEUE,
    t.CONSUME_QUEUE_SEGMENT,
    t.ODD_ENTRY,
    t.QUEUE,
    t.CONSUMER_OFFSET,
    t.TOPIC_CONFIG,
    t.SUBSCRIPTION_GROUP,
    t.DELAY_OFFSET,
    t.CONSUMER_FILTER,
)
# columns of a row of `broker`
BOUNDS = ("minPhyOffset", "maxPhyOffset", "maxStoreTimestamp")


def rows(lake: Lake, table: t.Table, *order: str) -> list[dict[str, Any]]:
    """The rows of a table, read without Spark."""
    folder = Path(lake.root) / table.name
    if table.name not in lake.at.tables:
        return []
    found = [row for add in live_files(folder, lake.at.tables[table.name]).values() for row in file_rows(folder, add)]
    return sorted(found, key=lambda row: [row[name] for name in order] or repr(sorted(row.items())))


def properties_by_segment(lake: Lake) -> dict[tuple[Any, ...], tuple[bytes, bytes]]:
    """The properties of each segment, its parts joined: parts may be cut anywhere."""
    found: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}
    for row in rows(lake, t.CONSUME_QUEUE_PROPERTIES, "topic", "queueId", "segment", "firstQueueOffset"):
        key = (row["topic"], row["queueId"], row["segment"])
        lengths, properties = found.get(key, (b"", b""))
        found[key] = (lengths + bytes(row["lengths"]), properties + bytes(row["properties"]))
    return found


def log_ends(lake: Lake) -> tuple[bytes, bytes]:
    parts = rows(lake, t.COMMIT_LOG_SEGMENT, "firstPhysicOffset")
    return b"".join(bytes(part["ends"]) for part in parts), b"".join(bytes(part["storeTimestamps"]) for part in parts)


def assert_as_imported(spark: SparkSession, pullsim: Pullsim, lake: Path, store: Path, other: Path) -> None:
    """Assert that the lake has the tables that an import of the store gives."""
    code, _, err = pullsim("import", store, "--lake", other, "--broker-name", BROKER)
    assert code == 0, err
    assert_same_tables(Lake(spark, str(lake)), Lake(spark, str(other)))


def assert_same_tables(found: Lake, expected: Lake) -> None:
    """Assert that the followed lake has the same tables as the imported one."""
    for table in KEPT:
        assert rows(found, table) == rows(expected, table), table.name
    assert properties_by_segment(found) == properties_by_segment(expected)
    assert log_ends(found) == log_ends(expected)
    bounds = [[row[name] for name in BOUNDS for row in rows(lake, t.BROKER)] for lake in (found, expected)]
    assert bounds[0] == bounds[1]
    assert log_files(found) == log_files(expected) != []


def log_files(lake: Lake) -> list[tuple[Any, ...]]:
    files = [row for row in rows(lake, t.STORE_FILE, "path") if row["kind"] == "commitlog"]
    return [(row["name"], row["fromOffset"], row["length"], row["wrote"]) for row in files]


ENTRY = struct.Struct(">qiq")


def rewrite_stamps(store: Path, target: Path, start: int) -> None:
    """Copy a store to `target`, where the messages from the log's offset `start` on were stored a second later."""
    shutil.copytree(store, target)
    for offset in LivingStore(store, target.with_name("unused")).record_offsets()[:-1]:
        if offset < start:
            continue
        file = max((file for file in (target / "commitlog").iterdir() if int(file.name) <= offset), key=lambda file: int(file.name))
        raw, at = bytearray(file.read_bytes()), offset - int(file.name)
        sys_flag = int.from_bytes(raw[at + 36 : at + 40], "big")
        stamp = at + 48 + (20 if sys_flag & 16 else 8)
        raw[stamp : stamp + 8] = (int.from_bytes(raw[stamp : stamp + 8], "big") + 1000).to_bytes(8, "big")
        file.write_bytes(raw)
    for file in (target / "consumequeue" / "SCHEDULE_TOPIC_XXXX").glob("*/*"):  # tagsCode is the store time plus the delay
        units = ENTRY.iter_unpack(file.read_bytes())
        later = [(at, size, code + 1000 * (size > 0 and at >= start)) for at, size, code in units]
        file.write_bytes(b"".join(ENTRY.pack(*unit) for unit in later))
