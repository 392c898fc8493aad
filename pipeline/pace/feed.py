"""`pullsim pace`: write the requests of a file at a pace, as files into a folder that a stream reads.

Rule: lines of requests are copied unchanged. Each file begins with a header: that of the request file, if any, and the id and number of the
file in the feed. So no two files are equal; a stream skips a file whose content it has read before. The same requests and options give the
same files, and existing files are not written again. So a feed that was killed can be started again, and no request comes twice.
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
    """A feed.

    Attributes:
        requests: the request file.
        pace: how quickly requests are fed.
        faults: shares of requests that are lost, late, duplicated or reordered.
        seed: of the random choice of these requests.
        loop: how many times the request file is fed.
    """

    requests: RequestFile
    pace: Pace
    faults: Faults
    seed: int = 0
    loop: int = 1

    @property
    def id(self) -> str:
        """The id of the feed: hex digits that are equal only for the same requests and options."""
        options = [asdict(self.pace), asdict(self.faults), self.seed, self.loop]
        return hashlib.sha256(json.dumps([self.requests.sha256, *options]).encode()).hexdigest()[:_ID_DIGITS]

    def files(self) -> Iterator[FedFile]:
        """The files of the feed in order, planned lazily."""
        return plan((self._lines() for _ in range(self.loop)), self.pace, self.faults, self.seed)

    def check(self) -> int:
        """Read all requests once, and return their number.

        Raises:
            RequestError: a line is no request, or has no timestamp although the pace needs one.
        """
        return sum(1 for _ in self._lines())

    def name(self, file: FedFile) -> str:
        """The name of a file; names sort by tick."""
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
    """What was fed.

    Attributes:
        files: number of files that were written.
        requests: number of requests in these files.
        were_there: number of files that existed already.
        late_seconds: the most seconds by which a file came too late.
    """

    files: int = 0
    requests: int = 0
    were_there: int = 0
    late_seconds: float = 0.0


def feed_of(path: str, *, pace: Pace, faults: Faults, seed: int, loop: int) -> tuple[Feed, int]:
    """The feed of a request file, and the number of its requests.

    Raises:
        RequestError: the file cannot be read, or a line is no request.
    """
    feed = Feed(requests=scan_file(path), pace=pace, faults=faults, seed=seed, loop=loop)
    return feed, feed.check()


def feed_folder(feed: Feed, folder: str, *, clock: Callable[[], float], wait: Callable[[float], bool]) -> Fed:
    """Write the files of a feed into a folder, each when it is due; the folder is created if needed.

    Args:
        feed: the feed.
        folder: a path or URI.
        clock: gives the seconds since some moment.
        wait: waits some seconds; returns True if the feed is to end now.

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
        else:  # not written again, as a stream may be reading it
            done.were_there += 1
        done.late_seconds = max(done.late_seconds, late)
    return done


def _when_due(files: Iterable[FedFile], clock: Callable[[], float], wait: Callable[[float], bool]) -> Iterator[tuple[FedFile, float]]:
    """Wait for each file until it is due; yield the file and the seconds by which it is late. Ends when `wait` returns True."""
    start = clock()

    def must_end(file: FedFile) -> bool:
        return wait(max(0.0, start + file.at - clock()))

    for file in itertools.takewhile(lambda file: not must_end(file), files):
        yield file, max(0.0, clock() - start - file.at)
