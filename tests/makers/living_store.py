"""A store at earlier moments of its life: a finished store, cut at offsets of its commit log."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

BLANK, MESSAGES = 0xCBD43194, (0xDAA320A7, 0xDAA320AB)
ENTRY = 20


class LivingStore:
    """The store `grown` at an earlier moment; `at` is the end of its log at that moment."""

    def __init__(self, grown: Path, path: Path) -> None:
        self.grown, self.path = grown, path
        path.mkdir(parents=True)
        (path / "abort").touch()
        self.cut_at(0)

    def record_offsets(self) -> list[int]:
        """The offset at which each record begins, and the end of the last one."""
        found, end = [], 0
        for file in sorted((self.grown / "commitlog").iterdir()):
            raw, at = file.read_bytes(), 0
            while at + 8 <= len(raw):
                size, magic = struct.unpack_from(">iI", raw, at)
                if magic not in MESSAGES:
                    break
                found.append(int(file.name) + at)
                at += size
                end = int(file.name) + at
        return [*found, end]

    def cut_at(self, end: int, *, half: int = 0) -> None:
        """Cut the log at `end`, with `half` bytes of the next record, and the queues at the last message before `end`."""
        for source in sorted(self.grown.rglob("*")):
            name = source.relative_to(self.grown)
            target = self.path / name
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif name.parts[0] == "commitlog":
                self._write_log(source, target, end + half)
            elif name.parts[0] == "consumequeue":
                self._write_queue(source, target, end)
            elif name.parts[0] == "config":
                shutil.copy2(source, target)

    def _write_log(self, source: Path, target: Path, end: int) -> None:
        raw, start = source.read_bytes(), int(source.name)
        if start >= end and start > 0:
            target.unlink(missing_ok=True)
            return
        used = max(min(end - start, len(raw)), 0)
        following = self.grown / "commitlog" / f"{start + len(raw):020d}"
        kept = raw if end > start + len(raw) and following.exists() else raw[:used]
        _write(target, kept.ljust(len(raw), b"\0"))

    @staticmethod
    def _write_queue(source: Path, target: Path, end: int) -> None:
        raw = source.read_bytes()
        units = [raw[at : at + ENTRY] for at in range(0, len(raw), ENTRY)]
        kept = b"".join(unit for unit in units if struct.unpack(">qi", unit[:12])[0] + struct.unpack(">qi", unit[:12])[1] <= end)
        if kept.strip(b"\0"):
            _write(target, kept.ljust(len(raw), b"\0"))
        else:
            target.unlink(missing_ok=True)

    def commit_offsets(self, offsets: dict[str, dict[str, int]]) -> None:
        """Write consumerOffset.json: topic@group -> queue -> offset."""
        _write(self.path / "config" / "consumerOffset.json", json.dumps({"offsetTable": offsets}).encode())


def _write(path: Path, content: bytes) -> None:
    """Write a file in place, as the broker does: readers that have mapped the file see it change."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(content)
    elif path.read_bytes() != content:
        with path.open("r+b") as file:
            file.write(content)
            file.truncate(len(content))


def stages(offsets: list[int], count: int) -> Iterator[int]:
    """`count` ends of the log, spread over its records, the last one being its end."""
    for number in range(1, count + 1):
        yield offsets[(len(offsets) - 1) * number // count]
