"""Write answers as rows of pull_response directly from the tasks that make them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.delta.table_files import FILES_DDL, FileWriter
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import PULL_RESPONSE

# hex digits of the file's digest in the requestId of its requests
DIGEST_CHARACTERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFiles:
    """Writes the answers of one run to data files; a `Finish` of a replay.

    Attributes:
        broker: name of the broker whose store answers.
        run_id: of the run.
        source_digest: SHA-256 of the request file; with the number of the line, it makes the requestId.
        writer: writes data files of pull_response.
    """

    broker: str
    run_id: str
    source_digest: str
    writer: FileWriter

    @property
    def schema(self) -> str:
        """Columns of the rows that describe the written files, one row for each file."""
        return FILES_DDL

    def batches(self, answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write batches of ANSWER_SCHEMA to data files; gives a row for each file."""
        return self.writer.write(self._responses(batch) for batch in answers)

    def _responses(self, answers: pa.RecordBatch) -> pa.RecordBatch:
        ids = request_ids(self.source_digest, answers.column("seq"))
        return responses(answers, ids, broker=self.broker, run_id=self.run_id)


def request_ids(digests: str | pa.Array, lines: pa.Array) -> pa.Array:
    """The requestId of requests in lines of files with SHA-256 `digests`."""
    return pc.binary_join_element_wise(pc.utf8_slice_codeunits(digests, 0, DIGEST_CHARACTERS), pc.cast(lines, pa.string()), "-")


def responses(answers: pa.RecordBatch, ids: pa.Array, *, broker: str, run_id: str) -> pa.RecordBatch:
    """Rows of pull_response, made from rows of ANSWER_SCHEMA, the requestId of each, and the names of their broker and run."""
    given = {name: answers.column(name) for name in answers.schema.names} | {"requestId": ids}
    given |= {"brokerName": pa.repeat(broker, len(answers)), "runId": pa.repeat(run_id, len(answers))}
    columns = [given.get(field.name, pa.nulls(len(answers), field.type)) for field in arrow_schema(PULL_RESPONSE)]
    return pa.RecordBatch.from_arrays(columns, names=PULL_RESPONSE.names)


def no_errors(files: Sequence[Mapping[str, Any]]) -> bool:
    """Whether no answer in some data files has an error, by the files' statistics."""
    return all(json.loads(file["stats"])["nullCount"].get("error") == file["records"] for file in files)
