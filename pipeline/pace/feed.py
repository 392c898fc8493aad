"""`pullsim pace`: a file of requests -> files in a folder that a stream reads, at a pace.

Rule: a request is a line, and a line is fed as it is. Each file begins with the header of the requests, where they have one, and says in it
which file of which feed it is, so that no two files are the same: a stream answers the same content once. The same requests and options
give the same files again, and one that is there is left alone; so a feed that was killed can be started again, and nothing is asked twice.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from pipeline.files.output_file import OutputError
from pipeline.files.store_files import filesystem_of
from pipeline.pace.request_pace import Faults, FedFile, Pace, Request, plan
from pipeline.requests.request_file import RequestFile, scan_file
from pipeline.requests.request_lines import RequestError, read_lines
from pipeline.requests.request_source import lines_of_chunk
from pipeline.stream.checkpoint_files import write_whole

_ID_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What is fed: requests, how often, and how."""

    requests: RequestFile
    pace: Pace
    faults: Faults
    seed: int = 0
    loop: int = 1

    @property
    def id(self) -> str:
        """Hex digits that only the same requests and options have."""
        options = [asdict(self.pace), asdict(self.faults), self.seed, self.loop]
        return hashlib.sha256(json.dumps([self.requests.sha256, *options]).encode()).hexdigest()[:_ID_DIGITS]

    def files(self) -> Iterator[FedFile]:
        """The files, planned as they are asked for."""
        return plan((self._lines() for _ in range(self.loop)), self.pace, self.faults, self.seed)

    def check(self) -> int:
        """Read all requests once; gives how many there are.

        Raises:
            RequestError: a line is none, or has no time where the pace needs one.
        """
        return sum(1 for _ in self._lines())

    def name(self, file: FedFile) -> str:
        """The name of a file: in a folder they sort by tick."""
        return f"paced-{self.id}-{file.tick:010d}.jsonl"

    def content(self, file: FedFile) -> bytes:
        """The bytes of a file."""
        header: dict[str, Any] = {"kind": "trace"} | (self.requests.header or {}) | {"pace": {"id": self.id, "file": file.tick}}
        return "".join(f"{line}\n" for line in (json.dumps(header), *file.lines)).encode()

    def _lines(self) -> Iterator[Request]:
        path, timed = self.requests.path, self.pace.speed is not None
        for chunk in self.requests.chunks:
            first, _, raw = lines_of_chunk(path, chunk)
            if not raw:
                continue
            found = read_lines(path, first, raw)
            columns = (found.column(name).to_pylist() for name in ("seq", "timestamp", "line"))
            for number, timestamp, line in zip(*columns, strict=True):
                if timed and timestamp is None:
                    raise RequestError(path, number, 'a "timestamp" in ms in the request, for --speed', "none; give --rate instead")
                yield Request(line, timestamp or 0)


@dataclass(slots=True)
class Fed:
    """What was fed: files and requests in them; files that were there already; the most that one came after it was due, in seconds."""

    files: int = 0
    requests: int = 0
    were_there: int = 0
    late_seconds: float = 0.0


def feed_of(path: str, *, pace: Pace, faults: Faults, seed: int, loop: int) -> tuple[Feed, int]:
    """What is to be fed of a file, and how many requests it has.

    Raises:
        RequestError: the file cannot be read, or a line of it is no request.
    """
    feed = Feed(requests=scan_file(path), pace=pace, faults=faults, seed=seed, loop=loop)
    return feed, feed.check()


def feed_folder(feed: Feed, folder: str, *, clock: Callable[[], float], wait: Callable[[float], bool]) -> Fed:
    """Put the files of a feed into a folder, which is made where there is none.

    Args:
        feed: what is fed.
        folder: a path or URI.
        clock: seconds from some moment on.
        wait: lets so many seconds pass; True where the feed is to end now.

    Raises:
        OutputError: the folder cannot be written to.
    """
    try:
        filesystem, inside = filesystem_of(folder)
        filesystem.create_dir(inside, recursive=True)
        return _fed(feed, filesystem, inside, _when_due(feed.files(), clock, wait))
    except (OSError, pa.ArrowInvalid) as error:
        raise OutputError(f"{folder}: expected a folder that files can be put into, found {error}") from error


def _fed(feed: Feed, filesystem: pafs.FileSystem, folder: str, files: Iterable[tuple[FedFile, float]]) -> Fed:
    done = Fed()
    for file, late in files:
        name = feed.name(file)
        if filesystem.get_file_info(f"{folder}/{name}").type == pafs.FileType.NotFound:
            write_whole(filesystem, folder, name, feed.content(file))
            done.files += 1
            done.requests += len(file.lines)
        else:  # a stream may be reading it
            done.were_there += 1
        done.late_seconds = max(done.late_seconds, late)
    return done


def _when_due(files: Iterable[FedFile], clock: Callable[[], float], wait: Callable[[float], bool]) -> Iterator[tuple[FedFile, float]]:
    """Each file when it is due, with how many seconds that is over; those after the end was asked for are left out."""
    start = clock()

    def told_to_end(file: FedFile) -> bool:
        return wait(max(0.0, start + file.at - clock()))

    for file in itertools.takewhile(lambda file: not told_to_end(file), files):
        yield file, max(0.0, clock() - start - file.at)
