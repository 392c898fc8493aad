"""One look at every file of a commit log before anything is written: where it ends, what it holds, whether its topics can be partitions.

Broker source (4.9.3): CommitLog.recoverNormally, which reads the last three files only, and checks what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.files.store_files import StoreFiles
from pipeline.rows.log_batches import topics_of, walks
from pipeline.rows.topic_partitions import NULL_PARTITION, can_name_a_folder
from pipeline.schema.arrow_types import arrow_of
from pipeline.store import load_files as lf
from store_format.big_endian import Bytes
from store_format.files.mapped_files import MappedFile
from store_format.log.commit_log import WalkEnd
from store_format.record import record_columns as rc
from store_format.store.recovery import FileWalk, files_to_walk
from store_format.store_paths import COMMIT_LOG


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSurvey:
    """What one file of the commit log holds.

    Attributes:
        index: of the file in the log.
        end: where the broker's walk over it ended; its length where recovery does not read it.
        ended: why, as a WalkEnd.
        walked: position up to which its records are known one by one.
        cuts: positions of records about PIECE_BYTES apart, at which readers that share the file may start.
        messages: records that become rows of commit_log.
        max_store_timestamp: the greatest of these, ms.
        names_folders: whether each of their topics can name the folder of a partition.
        has_null_partition: whether one of their topics makes a partition that reads back as NULL.
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


# a task reads so many bytes of a file: enough to be worth its start, few enough that a large file keeps all cores busy
PIECE_BYTES = 128 << 20

_TYPES = {
    "tuple[int, ...]": "ARRAY<BIGINT>",
    "int": "BIGINT",
    "int | None": "BIGINT",
    "bool": "BOOLEAN",
}
_DDL = ", ".join(f"{field.name} {_TYPES[str(field.type)]}" for field in fields(FileSurvey))
_ARROW = arrow_of(_DDL)


def survey_log(spark: SparkSession, store: StoreFiles, files: Sequence[MappedFile], *, check_crc: bool | None) -> list[FileSurvey]:
    """Survey all files of a log, a task each; in their order. Without `check_crc` they are known to be in use as they say."""
    first_recovered = len(files) - len(files_to_walk(files)) if check_crc is not None else len(files)

    def survey(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                walk = FileWalk(name=files[index].name, end=files[index].wrote, ended=WalkEnd.LIMIT)
                if index >= first_recovered:
                    walk = lf.walk_log_file(store, files[index], check_crc=bool(check_crc))
                found = survey_file(index, walk, files[index], store.content(COMMIT_LOG, files[index].name))
                yield pa.RecordBatch.from_pylist([asdict(found)], schema=_ARROW)

    rows = spark.range(0, len(files), 1, max(len(files), 1)).mapInArrow(survey, _DDL).collect()
    return sorted((FileSurvey(**row.asDict()) for row in rows), key=lambda found: found.index)


def survey_file(index: int, walk: FileWalk, file: MappedFile, content: Bytes) -> FileSurvey:
    """Survey one file up to the end of the broker's walk over it."""
    walked, messages = 0, 0
    cuts: list[int] = []
    newest: list[int] = []
    topics: set[str] = set()
    for part in walks(content, walk.end):
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
