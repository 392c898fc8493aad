"""A stream reads the same from a feed as a replay reads from the file, whatever the pace, the faults and the size of the batches.

The answer to a pull is a function of its row and of the settings, so rows and settings are compared here, without Spark.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxFiles

from pipeline.pace.feed import Feed, feed_folder, feed_of
from pipeline.pace.request_pace import Faults, Pace
from pipeline.requests.request_file import scan_file
from pipeline.requests.request_source import read_chunk
from pipeline.stream.request_stream import RequestStreamReader
from tests.runs.replaying import write_lines

SHARES = st.sampled_from([0.0, 0.3, 1.0])
PACES = st.sampled_from([Pace(), Pace(rate=3.0), Pace(rate=500.0, tick_seconds=0.1), Pace(speed=0.5), Pace(speed=20.0, tick_seconds=3.0)])
REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "group": st.sampled_from(["g", "%RETRY%g"]),
            "topic": st.sampled_from(["t", "tä"]),
            "queueId": st.integers(0, 3),
            "offset": st.integers(-1, 3),
            "maxMsgNums": st.just(32),
            "filter": st.sampled_from([None, {"type": "TAG", "expression": "a || b"}, {"type": "SQL92", "expression": "a > 1"}]),
            "timestamp": st.integers(1_650_000_000_000, 1_650_000_030_000),
        }
    ),
    min_size=1,
    max_size=20,
)
HEADERS = st.sampled_from([None, {"kind": "trace", "seed": 1}, {"kind": "trace", "config": {"brokerRole": "SLAVE"}, "name": "n"}])
# and the line, which a stream does not need
OF_PLACE = {"seq", "line", "source", "sourceDigest", "config"}


def read_as_replay(path: str) -> tuple[list[dict[str, Any]], Any]:
    """The rows of a file, and the settings in its header."""
    file = scan_file(path)
    rows = [row for chunk in file.chunks for batch in read_chunk(file.path, chunk) for row in batch.to_pylist()]
    return rows, (file.header or {}).get("config")


def read_as_stream(folder: str, log: str, files_max: int) -> Iterator[dict[str, Any]]:
    """The rows of all batches that a stream makes of a folder."""
    reader = RequestStreamReader(folder, log, files_max)
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, ReadMaxFiles(files_max))) != start:
        for part in reader.partitions(start, end):
            for batch in reader.read(part):
                yield from batch.to_pylist()
        start = end


def without_place(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in OF_PLACE and value is not None}


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def fed_lines(feed: Feed) -> Counter[str]:
    """How often each line occurs in the files of a feed."""
    return Counter(line for file in feed.files() for line in file.lines)


@pytest.mark.parametrize("files_max", [1, 1000])
@settings(max_examples=25)
@given(REQUESTS, HEADERS, PACES, st.builds(Faults, lost=SHARES, late=SHARES, duplicated=SHARES, reordered=SHARES), st.integers(1, 3))
def test_a_stream_reads_each_request_that_was_fed_once(
    files_max: int, requests: list[dict[str, Any]], header: dict[str, Any] | None, pace: Pace, faults: Faults, loop: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        lines = ([] if header is None else [header]) + [{"request": request} for request in requests]
        path, folder = write_lines(Path(name) / "in.jsonl", lines), str(Path(name) / "incoming")
        feed, _ = feed_of(str(path), pace=pace, faults=faults, seed=5, loop=loop)
        done = feed_folder(feed, folder, clock=lambda: 0.0, wait=lambda _: False)
        rows = list(read_as_stream(folder, str(Path(name) / "log"), files_max))
        replayed, config = read_as_replay(str(path))
        asked = fed_lines(feed)

    of_text = {row["line"]: without_place(row) for row in replayed}
    expected = [row for line, row in of_text.items() for _ in range(asked[line])]
    assert len(rows) == done.requests == sum(asked.values())
    assert counted([without_place(row) for row in rows]) == counted(expected)
    assert {row["config"] for row in rows} <= {None if config is None else json.dumps(config)}
    assert len({(row["sourceDigest"], row["seq"]) for row in rows}) == len(rows), "each has a request id of its own"
    if faults == Faults():
        assert counted(expected) == counted([without_place(row) for row in replayed] * loop)
