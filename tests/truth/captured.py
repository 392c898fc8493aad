"""Unpacks the golden captures, and reads the exchanges that the broker's process logged meanwhile (`exchange.jsonl`): no packets."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.capture.connection import Connection
from pipeline.capture.exchanges import Row
from pipeline.capture.packets import Bad, read_packets
from pipeline.capture.segments import pack_segments
from pipeline.files.unpacking import unpack as unpack_members
from tests.truth.golden import golden, shared_dir

CAPTURES = ["json", "rocketmq", "lossy"] if shared_dir() is not None else []
DIGEST = "d" * 64
PULL_MESSAGE = 11


def unpack(name: str, folder: Path, *, store: bool = False) -> Path:
    """Unpack a capture; returns its folder: packets, exchanges, config files.

    With `store` also the store, and the messages that clients consumed.
    """
    with tarfile.open(golden("capture", f"{name}.tar.xz")) as archive:
        unpack_members(archive, folder, (member for member in archive if _wanted(member.name.partition("/")[2], store=store)))
    return folder / name


def _wanted(path: str, *, store: bool) -> bool:
    always = path in {"traffic.pcap", "exchange.jsonl", "analysis.json", "broker.conf"} or path.startswith("store/config/")
    return always or (store and path.startswith(("store/", "consumption.jsonl")))


@cache
def exchanges(folder: Path) -> list[dict[str, Any]]:
    """The lines that the broker's process logged, one for each request."""
    with (folder / "exchange.jsonl").open(encoding="utf-8") as lines:
        return list(map(json.loads, lines))


def rows_of(pcap: Path) -> Iterator[tuple[str, Row]]:
    """The rows of a capture, each with its kind, made without Spark."""
    connections: dict[tuple[str, str], Connection] = {}
    with pcap.open("rb") as file:
        for packed in pack_segments(read_packets(file, str(pcap))):
            assert not isinstance(packed, Bad)
            connection = connections.setdefault(packed.connection, Connection(packed.connection, DIGEST))
            yield from connection.feed(packed)
    for connection in connections.values():
        yield from connection.end()


def consumer_offsets(folder: Path) -> dict[tuple[str, str, int], int]:
    """(topic, group, queueId) -> offset, from the broker's consumerOffset.json, whose keys are numbers without quotes."""
    table = config(folder, "consumerOffset.json")["offsetTable"]
    return {(*key.split("@"), int(queue)): offset for key, queues in table.items() for queue, offset in queues.items()}


def committed(folder: Path, topic: str, group: str) -> dict[int, int]:
    """queueId -> offset of one group on one topic, from the broker's consumerOffset.json."""
    return {queue: offset for (*of, queue), offset in consumer_offsets(folder).items() if of == [topic, group]}


def config(folder: Path, name: str) -> dict[str, Any]:
    """The content of a config file of the broker, whose numeric keys have no quotes."""
    text = (folder / "store" / "config" / name).read_text("utf-8")
    tree: dict[str, Any] = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text))
    return tree


def properties(folder: Path) -> dict[str, str]:
    """The settings in the broker.conf of a capture."""
    lines = (folder / "broker.conf").read_text("utf-8").splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines) if value}
