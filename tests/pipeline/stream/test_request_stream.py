"""The reader of a folder of requests, called as Spark calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.requests import request_file
from pipeline.requests.request_lines import RequestError
from pipeline.stream import request_stream
from pipeline.stream.request_stream import RequestStreamReader
from tests.runs.replaying import write_lines


def line(offset: int) -> dict[str, Any]:
    return {"request": {"group": "g", "topic": "t", "queueId": 0, "offset": offset, "maxMsgNums": 32, "filter": None}}


class Stream:
    """A folder, and the reader of a process that was just started."""

    def __init__(self, root: Path) -> None:
        self.folder, self.log = root / "incoming", root / "log"
        self.folder.mkdir()

    def reader(self) -> RequestStreamReader:
        return RequestStreamReader(str(self.folder), str(self.log), 10)

    def offsets(self, batch: int) -> list[int]:
        """The queue offsets of the requests of a batch."""
        reader = self.reader()
        parts = reader.partitions({"entry": batch - 1}, {"entry": batch})
        return [row["queueOffset"] for part in parts for rows in reader.read(part) for row in rows.to_pylist()]


@pytest.mark.parametrize("read_before", [0, 1])
def test_a_file_that_is_rewritten_while_it_is_read_is_read_anew_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_before: int
) -> None:
    monkeypatch.setattr(request_file, "CHUNK_BYTES", 200)
    monkeypatch.setattr(request_stream, "_PART_BYTES", 200)
    stream = Stream(tmp_path)
    file = write_lines(stream.folder / "requests.jsonl", map(line, range(10)))
    reader = stream.reader()
    assert reader.latestOffset({"entry": 0}, reader.getDefaultReadLimit()) == {"entry": 1}
    parts = reader.partitions({"entry": 0}, {"entry": 1})
    assert len(parts) > 2
    for part in parts[:read_before]:
        assert list(reader.read(part))
    write_lines(file, map(line, range(100, 107)))
    with pytest.raises(RequestError, match="expected a file that stays as it is while it is read, found one that changed; start again"):
        list(reader.read(parts[read_before]))
    assert stream.offsets(1) == list(range(100, 107))
    # it is no new file then
    again = stream.reader()
    assert again.latestOffset({"entry": 1}, again.getDefaultReadLimit()) == {"entry": 1}


def test_one_task_reads_small_files_and_another_one_each_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_stream, "_PART_BYTES", 500)
    stream = Stream(tmp_path)
    for name, offsets in (("a", range(1)), ("b", range(1, 3)), ("large", range(3, 20)), ("y", range(20, 21)), ("z", range(21, 23))):
        write_lines(stream.folder / name, map(line, offsets))
    reader = stream.reader()
    reader.latestOffset({"entry": 0}, reader.getDefaultReadLimit())
    parts = reader.partitions({"entry": 0}, {"entry": 1})
    read = [[row["queueOffset"] for rows in reader.read(part) for row in rows.to_pylist()] for part in parts]
    assert read == [[0, 1, 2], [*range(3, 20)], [20, 21, 22]]


def test_a_link_that_takes_the_place_of_a_planned_file_is_not_read(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    file = write_lines(stream.folder / "requests.jsonl", map(line, range(10)))
    reader = stream.reader()
    assert reader.latestOffset({"entry": 0}, reader.getDefaultReadLimit()) == {"entry": 1}
    (part,) = reader.partitions({"entry": 0}, {"entry": 1})
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")  # the same length and time
    with pytest.raises(RequestError, match="expected a file inside the folder of requests, found a link to"):
        list(reader.read(part))
