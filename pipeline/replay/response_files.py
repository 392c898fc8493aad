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
        prefix = f"{self.source_digest[:DIGEST_CHARACTERS]}-"
        given = {name: answers.column(name) for name in answers.schema.names}
        given["requestId"] = pc.binary_join_element_wise(prefix, pc.cast(answers.column("seq"), pa.string()), "")
        given["brokerName"] = pa.repeat(self.broker, len(answers))
        given["runId"] = pa.repeat(self.run_id, len(answers))
        columns = [given.get(field.name, pa.nulls(len(answers), field.type)) for field in arrow_schema(PULL_RESPONSE)]
        return pa.RecordBatch.from_arrays(columns, names=PULL_RESPONSE.names)


def no_errors(files: Sequence[Mapping[str, Any]]) -> bool:
    """Whether no answer in some data files has an error, by the files' statistics."""
    return all(json.loads(file["stats"])["nullCount"].get("error") == file["records"] for file in files)
