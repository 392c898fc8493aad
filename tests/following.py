"""Holding the tables of a followed lake against those of an import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from replaying import BROKER

from pipeline import tables as t
from pipeline.lake import Lake

if TYPE_CHECKING:
    from in_session import Pullsim
    from pyspark.sql import SparkSession

# what a follower keeps; the others are an import's
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


def rows(lake: Lake, table: t.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in lake.table(table).select(*table.names).collect()), key=repr)


def properties_by_segment(lake: Lake) -> dict[tuple[Any, ...], tuple[bytes, bytes]]:
    """Parts of a segment, which may be cut anywhere, one after the other."""
    found: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}
    for row in lake.table(t.CONSUME_QUEUE_PROPERTIES).orderBy("topic", "queueId", "segment", "firstQueueOffset").collect():
        key = (row["topic"], row["queueId"], row["segment"])
        lengths, properties = found.get(key, (b"", b""))
        found[key] = (lengths + bytes(row["lengths"]), properties + bytes(row["properties"]))
    return found


def log_ends(lake: Lake) -> tuple[bytes, bytes]:
    parts = lake.table(t.COMMIT_LOG_SEGMENT).orderBy("firstPhysicOffset").collect()
    return b"".join(bytes(part["ends"]) for part in parts), b"".join(bytes(part["storeTimestamps"]) for part in parts)


def assert_as_imported(spark: SparkSession, pullsim: Pullsim, lake: Path, store: Path, other: Path) -> None:
    """The lake has what an import of the store gives."""
    code, _, err = pullsim("import", store, "--lake", other, "--broker-name", BROKER)
    assert code == 0, err
    assert_same_tables(Lake(spark, str(lake)), Lake(spark, str(other)))


def assert_same_tables(found: Lake, expected: Lake) -> None:
    """The lake that was followed into has what the one that the store was imported into has."""
    for table in KEPT:
        assert rows(found, table) == rows(expected, table), table.name
    assert properties_by_segment(found) == properties_by_segment(expected)
    assert log_ends(found) == log_ends(expected)
    columns = ("minPhyOffset", "maxPhyOffset", "maxStoreTimestamp")
    (row,), (other_row,) = (one.table(t.BROKER).select(*columns).collect() for one in (found, expected))
    assert tuple(row) == tuple(other_row)
    log = [one.table(t.STORE_FILE).where("kind = 'commitlog'").select("name", "fromOffset", "length", "wrote") for one in (found, expected)]
    assert sorted(log[0].collect()) == sorted(log[1].collect())
