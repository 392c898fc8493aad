"""Makes small stores with any topics, imports them under any broker name, and reads lakes without the project's code.

A Delta table at a version is read by Delta's protocol: the commits up to the version add and remove Parquet files. A partition's values
are in the commit, not in the file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from store_format.files.mapped_files import offset_to_file_name
from store_format.record.message import Host, Message, body_crc32, encode
from tests.makers.records import magic_code_of, message_of
from tests.runs.importing import imported
from tests.runs.replaying import NOON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.importing.import_store import Imported
    from pipeline.schema.tables import Layout, Table

HOST = Host(address=bytes([10, 0, 0, 1]), port=10911)
LOG_FILE, QUEUE_FILE = 1 << 16, 200
MESSAGES = 3  # of each queue


def message(topic: bytes, queue_id: int, queue_offset: int, physic_offset: int) -> Message:
    body = b"message %d" % queue_offset
    return Message(
        queue_id=queue_id,
        queue_offset=queue_offset,
        physic_offset=physic_offset,
        born_timestamp=1_650_000_000_000,
        born_host=HOST,
        store_timestamp=1_650_000_000_000 + physic_offset,
        store_host=HOST,
        body=body,
        body_crc=body_crc32(body),
        topic=topic,
        magic_code=magic_code_of(topic),
        properties=b"KEYS\x01k",
    )


def tiny_store(path: Path, queues: Iterable[tuple[str, int]], *, without_queue: Sequence[bytes] = ()) -> Path:
    """A store with MESSAGES messages in each queue, after one message for each topic whose queue was deleted. The log has whole files.

    The store is as a clean shutdown leaves it: zeros follow the last message.
    """
    log = bytearray()
    for gone in without_queue:
        _append(log, message(gone, 0, 0, 0))
    entries: dict[tuple[str, int], bytes] = dict.fromkeys(queues, b"")
    for number in range(MESSAGES):
        for (topic, queue_id), units in entries.items():
            at, size = _append(log, message(topic.encode(), queue_id, number, 0))
            entries[topic, queue_id] = units + struct.pack(">qiq", at, size, 0)
    write_files(path / "commitlog", bytes(log), LOG_FILE)
    for (topic, queue_id), units in entries.items():
        write_files(path / "consumequeue" / topic / str(queue_id), units, QUEUE_FILE)
    return path


def _append(log: bytearray, new: Message) -> tuple[int, int]:
    size = len(encode(new))
    rest = LOG_FILE - len(log) % LOG_FILE
    if size + 8 > rest:
        log += struct.pack(">iI", rest, 0xCBD43194).ljust(rest, b"\0")
    at = len(log)
    log += encode(replace(new, physic_offset=at))
    return at, size


def write_files(folder: Path, content: bytes, size: int) -> None:
    """Write `content` into mapped files of one size, at least one, with zeros after it."""
    folder.mkdir(parents=True)
    for start in range(0, max(len(content), 1), size):
        (folder / offset_to_file_name(start)).write_bytes(content[start : start + size].ljust(size, b"\0"))


def import_as(
    spark: SparkSession,
    lake: Path,
    store: Path,
    broker: str = "b",
    *,
    layout: Layout | None = None,
    as_found: bool = False,
    run_id: str = "run",
    by_spark: bool | None = None,
) -> Imported:
    """`pullsim import` under a given broker name; `by_spark` as `imported` takes it."""
    from pipeline.settings.settings import BrokerSettings

    settings = BrokerSettings.from_sources()
    return imported(
        spark, lake, store, broker=broker, layout=layout, settings=settings, as_found=as_found, run_id=run_id, noon=NOON, by_spark=by_spark
    )


def commits(table: Path) -> list[list[dict[str, Any]]]:
    """The actions of each commit of a Delta table, from version 0 on."""
    files = sorted(path for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())
    assert [int(path.stem) for path in files] == list(range(len(files)))
    return [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in files]


def live_files(table: Path, version: int) -> dict[str, dict[str, Any]]:
    """The files of a version: path in the log -> its add action."""
    live: dict[str, dict[str, Any]] = {}
    for actions in commits(table)[: version + 1]:
        for action in actions:
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
        live |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    return live


def metadata(table: Path, version: int) -> dict[str, Any]:
    """The metaData action in force at a version."""
    found: list[dict[str, Any]] = [
        action["metaData"] for actions in commits(table)[: version + 1] for action in actions if "metaData" in action
    ]
    return found[-1]


def clustering(table: Path, version: int) -> list[str]:
    """The clustering columns at a version."""
    columns: list[str] = []
    for actions in commits(table)[: version + 1]:
        for domain in (action["domainMetadata"] for action in actions if "domainMetadata" in action):
            if domain["domain"] == "delta.clustering":
                columns = [] if domain["removed"] else [name for (name,) in json.loads(domain["configuration"])["clusteringColumns"]]
    return columns


def file_rows(table: Path, add: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of one file of a table, in the file's order; the columns of the partition are text."""
    from urllib.parse import unquote

    rows: list[dict[str, Any]] = pq.ParquetFile(table / unquote(add["path"])).read().to_pylist()
    return [row | add["partitionValues"] for row in rows]


def contents(lake: Path, tables: Mapping[str, int], broker: str | None = None) -> dict[str, list[str]]:
    """Every row of the tables at these versions (of one broker, or of all), as text and sorted."""
    return {
        name: sorted(
            repr(sorted(row.items()))
            for add in live_files(lake / name, version).values()
            for row in file_rows(lake / name, add)
            if broker in {None, row["brokerName"]}
        )
        for name, version in tables.items()
    }


def rows(spark: SparkSession, lake: Path, table: Table, where: str = "true") -> list[dict[str, Any]]:
    """The rows of a table that the lake's readers see."""
    from pipeline.lake.lake import Lake

    return [row.asDict(recursive=True) for row in Lake(spark, str(lake)).table(table).where(where).collect()]


def put_together(store: Path, log_rows: Iterable[Mapping[str, Any]], ranges: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """The files of the commit log made from the tables alone: records at the places of their rows, bytes of ranges, zeros elsewhere."""
    files = {path.name: bytearray(path.stat().st_size) for path in (store / "commitlog").iterdir()}
    size = len(next(iter(files.values())))
    for row in log_rows:
        record, at = encode(message_of(row)), row["physicOffset"] % size
        assert (len(record), zlib.crc32(record)) == (row["storeSize"], row["recordCrc32"])
        _put(files[offset_to_file_name(row["physicOffset"] - at)], at, record)
    for row in ranges:
        if row["kind"] == "commitlog":
            _put(files[row["name"]], row["position"], bytes(row["bytes"]))
    return {name: bytes(content) for name, content in files.items()}


def _put(file: bytearray, at: int, content: bytes) -> None:
    assert not any(file[at : at + len(content)]), "no byte stands in two rows"
    file[at : at + len(content)] = content
