"""Surveys every file of a commit log before anything is written: its end, its contents, and whether its topics can be partitions.

Broker source (4.9.3): CommitLog.recoverNormally, which reads and checks the last three files only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain

import pyarrow as pa

from pipeline.files.store_files import StoreFiles
from pipeline.rows.log_batches import topics_of, walks
from pipeline.rows.topic_partitions import NULL_PARTITION, can_name_a_folder
from pipeline.schema.arrow_types import arrow_of
from pipeline.store import load_files as lf
from pipeline.tasks.work import Batches, Tasks, items_of, threads
from store_format.big_endian import Bytes
from store_format.broker_version import BrokerVersion
from store_format.files.mapped_files import MappedFile
from store_format.log.commit_log import WalkEnd
from store_format.record import record_columns as rc
from store_format.store.recovery import FileWalk, files_to_walk
from store_format.store_paths import COMMIT_LOG


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSurvey:
    """The survey of one file of the commit log.

    Attributes:
        index: index of the file in the log.
        end: position at which the broker's walk over the file ended; the file's length if recovery does not read it.
        ended: why the broker's walk ended, a WalkEnd.
        walked: position up to which the survey found the file's records.
        cuts: positions of records about PIECE_BYTES apart, at which readers that share the file may start.
        messages: number of records that become rows of commit_log.
        max_store_timestamp: greatest storeTimestamp of the rows, ms.
        names_folders: whether every topic in the rows can name the folder of a partition.
        has_null_partition: whether a topic in the rows would name a partition that is read as NULL.
    """

    index: int
    end: int
    ended: int
    walked: int
    cuts: tuple[int, ...]
    messages: int
    max_store_timestamp: int | None
    names_folders: bool
    has_null_partition: bool


# bytes of a file that a task reads: enough to outweigh the start of the task, few enough that a large file keeps all cores busy
PIECE_BYTES = 128 << 20

_TYPES = {
    "tuple[int, ...]": "ARRAY<BIGINT>",
    "int": "BIGINT",
    "int | None": "BIGINT",
    "bool": "BOOLEAN",
}
_DDL = ", ".join(f"{field.name} {_TYPES[str(field.type)]}" for field in fields(FileSurvey))
_ARROW = arrow_of(_DDL)


def survey_log(
    tasks: Tasks, store: StoreFiles, files: Sequence[MappedFile], *, check_crc: bool | None, version: BrokerVersion
) -> list[FileSurvey]:
    """The surveys of all files of a log in their order, by a task for each file.

    Args:
        tasks: what does the work.
        store: the store's files.
        files: the log's files.
        check_crc: whether the walk checks the CRC of bodies; None: no walk, each file ends with its bytes in use.
        version: version of the broker whose records count.
    """
    first_recovered = len(files) - len(files_to_walk(files)) if check_crc is not None else len(files)

    def surveys(items: Batches) -> Batches:
        for index in items_of(items, range(len(files))):
            content = store.content(COMMIT_LOG, files[index].name)
            walk = FileWalk(name=files[index].name, end=files[index].wrote, ended=WalkEnd.LIMIT)
            if index >= first_recovered:
                walk = lf.walk_log_file(content, files[index], check_crc=bool(check_crc), version=version)
            found = survey_file(index, walk, files[index], content, version)
            yield pa.RecordBatch.from_pylist([asdict(found)], schema=_ARROW)

    parts = tasks.at_once(range(len(files)))
    with threads(tasks, len(parts)) as pool:
        rows = chain.from_iterable(pool.map(lambda part: part.mapped(surveys, _DDL).rows(), parts))
        return sorted((FileSurvey(**row) for row in rows), key=lambda found: found.index)


def survey_file(index: int, walk: FileWalk, file: MappedFile, content: Bytes, version: BrokerVersion) -> FileSurvey:
    """The survey of the file with an index, up to the end of the `walk` over it by a version of the broker."""
    walked, messages = 0, 0
    cuts: list[int] = []
    newest: list[int] = []
    topics: set[str] = set()
    for part in walks(content, walk.end, version=version):
        if walked >= (len(cuts) + 1) * PIECE_BYTES:
            cuts.append(walked)
        walked = part.end
        kept = part.positions[rc.representable(content, part.positions, file.from_offset)]
        if len(kept):
            parts = rc.locate(content, kept)
            messages += len(kept)
            newest.append(int(rc.store_timestamps(content, parts).max()))
            topics |= topics_of(content, parts)
    return FileSurvey(
        index=index,
        end=walk.end,
        ended=walk.ended,
        walked=walked,
        cuts=tuple(cuts),
        messages=messages,
        max_store_timestamp=max(newest, default=None),
        names_folders=all(map(can_name_a_folder, topics)),
        has_null_partition=NULL_PARTITION in topics,
    )
