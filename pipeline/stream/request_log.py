"""The log of request files that a stream has read from a folder: one entry for each batch, written before Spark reads the batch.

Rule: entry n lists the files of one batch. A file is new if its name, length or modification time is new. A content that was read before,
under any name, gives no requests again. So a rewritten file is read again, but the requests of a touched or copied file are not repeated.
Surprise: the list of read files cannot be Spark's offset, as it would grow with every file. The offset is the number of the entry.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow.fs as pafs

from pipeline.files.store_files import filesystem_of, is_uri
from pipeline.requests.request_file import Chunk, RequestFile, first_line, header_config, header_if_any, scan_lines
from pipeline.requests.request_lines import RequestError
from pipeline.stream.checkpoint_files import numbered_files, read_json, write_json

# most bytes of a batch with several files
BATCH_BYTES = 64 << 20
# number of entries after which a summary of all entries is written, and old entries are deleted
_SUMMED_UP = 64
# number of entries that are kept, because Spark may read their batches again
_KEPT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file in the list of its folder: path, length in bytes, modification time in ns since 1970."""

    path: str
    length: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A file of a batch.

    Attributes:
        file: path, length and time when the file was read.
        sha256: digest of the content; empty if it cannot be read.
        config: settings in the file's header, as JSON; None if there are none.
        chunks: ranges of lines; empty if the content was read before.
        problem: why the file cannot be read; None if it can.
    """

    file: FoundFile
    sha256: str
    config: str | None = None
    chunks: tuple[Chunk, ...] = ()
    problem: str | None = None

    @staticmethod
    def of(value: dict[str, Any]) -> PlannedFile:
        """The file from a dict of `asdict`."""
        chunks = tuple(Chunk(**chunk) for chunk in value["chunks"])
        return PlannedFile(**value | {"file": FoundFile(**value["file"]), "chunks": chunks})


@dataclass(slots=True)
class _Seen:
    """All files that were read: length and time of each by path, and the digests of their contents."""

    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    contents: set[str] = field(default_factory=set)

    def add(self, planned: PlannedFile) -> None:
        self.files[planned.file.path] = (planned.file.length, planned.file.mtime_ns)
        if planned.sha256:
            self.contents.add(planned.sha256)

    def is_new(self, file: FoundFile) -> bool:
        return self.files.get(file.path) != (file.length, file.mtime_ns)


def list_requests(folder: str) -> list[FoundFile]:
    """The files of a folder, oldest first, without files whose names begin with a dot or an underscore.

    Raises:
        OSError: the folder cannot be listed.
    """
    filesystem, inside = filesystem_of(folder)
    infos = filesystem.get_file_info(pafs.FileSelector(inside))
    prefix = folder.rstrip("/")
    files = [
        FoundFile(path=f"{prefix}/{info.base_name}", length=info.size, mtime_ns=info.mtime_ns)
        for info in infos
        if info.type == pafs.FileType.File and not info.base_name.startswith((".", "_"))
    ]
    return sorted(files, key=lambda file: (file.mtime_ns, file.path))


class RequestLog:
    """The request log in `folder`, which is part of a stream's checkpoint."""

    def __init__(self, folder: str, answered: int = 0) -> None:
        """Open the log. The requests of the entries up to `answered` have their answers, even if Spark reads these batches again."""
        self._answered = answered
        self._filesystem, self._folder = filesystem_of(folder)
        self._filesystem.create_dir(self._folder, recursive=True)
        numbers = numbered_files(self._filesystem, self._folder, ".json")
        self.newest = max(numbers, default=0)
        summed_up = max(numbered_files(self._filesystem, self._folder, ".all.json"), default=0)
        self._seen = _Seen()
        if summed_up:
            seen = self._read(f"{summed_up:020d}.all.json")
            self._seen = _Seen({path: (length, mtime) for path, length, mtime in seen["files"]}, set(seen["contents"]))
        for number in sorted(number for number in numbers if number > summed_up):
            for planned in self.entry(number):
                self._seen.add(planned)

    def entry(self, number: int) -> list[PlannedFile]:
        """The files in the entry of one batch."""
        return [PlannedFile.of(value) for value in self._read(f"{number:020d}.json")]

    def plan(self, found: Iterable[FoundFile], files_max: int) -> int:
        """Write the next entry, if there are new files; gives the number of the newest entry.

        Args:
            found: files of the folder.
            files_max: most files of an entry. The files of an entry have at most BATCH_BYTES together, but there is at least one.
        """
        entry: list[PlannedFile] = []
        taken = 0
        for file in found:
            if not self._seen.is_new(file):
                continue
            if entry and (len(entry) == files_max or taken + file.length > BATCH_BYTES):
                break
            planned = self._planned(file)
            if planned is not None:
                entry.append(planned)
                self._seen.add(planned)
                taken += file.length
        if entry:
            self._write(f"{self.newest + 1:020d}.json", [asdict(planned) for planned in entry])
            self.newest += 1
            if self.newest % _SUMMED_UP == 0:
                self._sum_up()
        return self.newest

    def follow(self, number: int) -> None:
        """Read the entries up to `number` that another process has written since."""
        for written in range(self.newest + 1, number + 1):
            for planned in self.entry(written):
                self._seen.add(planned)
            self.newest = written

    def new_of(self, found: Iterable[FoundFile]) -> list[FoundFile]:
        """The files among `found` that are in no entry."""
        return [file for file in found if self._seen.is_new(file)]

    def files(self, number: int) -> list[PlannedFile]:
        """The files of one batch; if a file has changed since the entry was written, the entry is written again."""
        entry = self.entry(number)
        found = [found_file(planned.file.path) for planned in entry]
        if all(planned.problem or now == planned.file for planned, now in zip(entry, found, strict=True)):
            return entry
        is_answered = number <= self._answered
        if not is_answered:
            self._seen.contents -= {planned.sha256 for planned in entry if planned.chunks}
        again = []
        for planned, now in zip(entry, found, strict=True):
            same = planned if is_answered and now == planned.file else None  # its pulls may wait: Spark reads them again
            again.append(same or (self._planned(now) if now else None) or _gone(planned))
            self._seen.add(again[-1])
        self._write(f"{number:020d}.json", [asdict(planned) for planned in again])
        return again

    def _planned(self, file: FoundFile) -> PlannedFile | None:
        """A file with its digest and ranges of lines; None if the file does not exist any more."""
        try:
            require_inside(file.path)
            read = scan_lines(file.path)
        except RequestError as error:
            return PlannedFile(file=file, sha256="", problem=str(error)) if found_file(file.path) else None
        if read.sha256 in self._seen.contents or not read.chunks:
            return PlannedFile(file=file, sha256=read.sha256)
        return PlannedFile(file=file, sha256=read.sha256, config=_config(read), chunks=read.chunks)

    def _sum_up(self) -> None:
        files = [(path, *rest) for path, rest in self._seen.files.items()]
        self._write(f"{self.newest:020d}.all.json", {"files": files, "contents": sorted(self._seen.contents)})
        for number, path in numbered_files(self._filesystem, self._folder, ".all.json").items():
            if number < self.newest - _KEPT:
                self._filesystem.delete_file(path)
        for number, path in numbered_files(self._filesystem, self._folder, ".json").items():
            if number <= self.newest - _KEPT:
                self._filesystem.delete_file(path)

    def _read(self, name: str) -> Any:
        return read_json(self._filesystem, f"{self._folder}/{name}")

    def _write(self, name: str, value: Any) -> None:
        write_json(self._filesystem, self._folder, name, value)


def newest_bytes(folder: str) -> int:
    """About how many bytes the requests of the newest batch in the log in `folder` have as lines; 0 if the log has no batch."""
    filesystem, inside = filesystem_of(folder)
    numbers = numbered_files(filesystem, inside, ".json")
    entry = read_json(filesystem, f"{inside}/{max(numbers):020d}.json") if numbers else []
    return sum(chunk.request_bytes for planned in map(PlannedFile.of, entry) for chunk in planned.chunks)


def require_inside(path: str) -> None:
    """Check that a file of the folder is no link to a file elsewhere: the content of that file would come into the lake.

    Raises:
        RequestError: the file is such a link.
    """
    if is_uri(path) or not os.path.islink(path):
        return
    folder, target = os.path.realpath(os.path.dirname(path)), os.path.realpath(path)
    if os.path.commonpath((folder, target)) != folder:
        raise RequestError(path, 1, "a file inside the folder of requests", f"a link to {target}; copy the file into the folder")


def found_file(path: str) -> FoundFile | None:
    """Path, length and time of a file now; None if the file does not exist."""
    filesystem, inside = filesystem_of(path)
    info = filesystem.get_file_info(inside)
    return FoundFile(path=path, length=info.size, mtime_ns=info.mtime_ns) if info.type == pafs.FileType.File else None


def _gone(planned: PlannedFile) -> PlannedFile:
    if not planned.chunks:  # the file had no new requests
        return planned
    problem = str(RequestError(planned.file.path, 1, "the request file that was in the list of its folder", "none"))
    return PlannedFile(file=planned.file, sha256="", problem=problem)


def _config(file: RequestFile) -> str | None:
    """The settings in a file's header, as JSON; None if the file has no header or the header has no settings."""
    header = None if file.is_parquet else header_if_any(file.path, first_line(file))
    config = header_config(header)
    return None if config is None else json.dumps(config, sort_keys=True)
