"""A store whose broker is still writing: a finished store, whose log is shown up to a moment."""

from __future__ import annotations

import shutil
from bisect import bisect_right
from pathlib import Path

import numpy as np

from store_format.log.commit_log import walk
from store_format.record import record_columns as rc


class GrowingStore:
    """The log of the store `grown` up to a moment; queues are not written, a follower dispatches the records itself.

    Attributes:
        path: the folder of the store.
        times: store time of each record, ms.
        queues: topic and queueId of each record.
    """

    def __init__(self, grown: Path, path: Path) -> None:
        self.path, self._log = path, sorted((grown / "commitlog").iterdir())
        self._file_bytes = self._log[0].stat().st_size
        shutil.copytree(grown / "config", path / "config", dirs_exist_ok=True)
        (path / "commitlog").mkdir(exist_ok=True)
        (path / "abort").touch()
        self.times: list[int] = []
        self.queues: list[tuple[str, int]] = []
        self._ends: list[int] = []
        self._end = 0
        for number, file in enumerate(self._log):
            content = np.fromfile(file, np.uint8)
            found = walk(content, 0, len(content), len(content))
            columns = rc.prefixes(content, found.positions)
            parts = rc.locate(content, found.positions)
            self.times += rc.store_timestamps(content, parts).tolist()
            topics = zip(parts.topic.starts, parts.topic.lengths, strict=True)
            names = [bytes(content[start : start + length]).decode() for start, length in topics]
            self.queues += zip(names, columns["queueId"].tolist(), strict=True)
            ends = (found.positions + columns["storeSize"].astype(np.int64)).tolist()
            self._ends += [number * self._file_bytes + end for end in ends]

    def grow_to(self, moment: int) -> int:
        """Write the records that were stored up to a moment, ms, as the broker does; returns the number of records in the log."""
        count = bisect_right(self.times, moment)
        end = self._ends[count - 1] if count else 0
        for number in range(self._end // self._file_bytes, end // self._file_bytes + 1):
            start = number * self._file_bytes
            target = self.path / "commitlog" / self._log[number].name
            if not target.exists():
                target.write_bytes(bytes(self._file_bytes))
            with self._log[number].open("rb") as source, target.open("r+b") as file:
                begin = max(self._end - start, 0)
                source.seek(begin)
                file.seek(begin)
                file.write(source.read(min(end - start, self._file_bytes) - begin))
        self._end = end
        return count
