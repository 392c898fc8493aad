"""A file of pull requests as a Spark data source, one partition some megabytes of whole lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.request_file import SCHEMA, Chunk, RequestError, header_of, open_file, read_lines

NAME = "pull-requests"


class RequestSource(DataSource):
    """The data source; options `path` and `chunks` (JSON of Chunk fields)."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return NAME

    def schema(self) -> str:
        """Columns of a request."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader."""
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
        """One partition a chunk."""
        return [ChunkPartition(chunk) for chunk in self.chunks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The requests of one chunk."""
        assert isinstance(partition, ChunkPartition)
        chunk = partition.chunk
        try:
            with open_file(self.path) as file:
                raw = file.read_at(chunk.end - chunk.start, chunk.start)
        except (OSError, ValueError) as error:
            raise RequestError(self.path, chunk.first_line, "a file that every executor can open", str(error)) from error
        first = chunk.first_line
        if first == 1:
            head, _, rest = raw.partition(b"\n")
            if header_of(self.path, head) is not None:
                raw, first = rest, 2
        if raw:
            yield read_lines(self.path, first, raw)
