"""A file of pull requests as a Spark data source; a partition is a chunk: some megabytes of complete lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.requests.request_file import Chunk, header_if_any, open_file
from pipeline.requests.request_lines import SCHEMA, RequestError, read_lines

NAME = "pull-requests"


class RequestSource(DataSource):
    """The data source; its options are `path` and `chunks` (a JSON list of the fields of each Chunk)."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> str:
        """The columns of a request."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for the options of the source."""
        return RequestReader(self.options["path"], [Chunk(**chunk) for chunk in json.loads(self.options["chunks"])])


@dataclass
class ChunkPartition(InputPartition):
    """One chunk of the file."""

    chunk: Chunk


class RequestReader(DataSourceReader):
    """Reads the chunks of one file."""

    def __init__(self, path: str, chunks: list[Chunk]) -> None:
        self.path, self.chunks = path, chunks

    def partitions(self) -> list[InputPartition]:
        """The partitions, one for each chunk."""
        return [ChunkPartition(chunk) for chunk in self.chunks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The requests of one chunk."""
        assert isinstance(partition, ChunkPartition)
        first, _, raw = lines_of_chunk(self.path, partition.chunk)
        if raw:
            yield read_lines(self.path, first, raw)


def lines_of_chunk(path: str, chunk: Chunk) -> tuple[int, int, bytes]:
    """The lines of a chunk, without the file's header.

    Returns:
        Number of the first line, its position in the file, and the bytes of the lines.

    Raises:
        RequestError: the file cannot be read.
    """
    try:
        with open_file(path) as file:
            raw = file.read_at(chunk.end - chunk.start, chunk.start)
    except (OSError, ValueError) as error:
        raise RequestError(path, chunk.first_line, "a file that every executor can open", str(error)) from error
    if chunk.first_line == 1:
        head, end, rest = raw.partition(b"\n")
        if header_if_any(path, head) is not None:
            return 2, len(head) + len(end), rest
    return chunk.first_line, chunk.start, raw
