"""The peer of measures that read or write tables: pyarrow, which only reads or writes the same columns, on all cores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.figures import timed


def read_columns(lake: Path, table: str, columns: Sequence[str]) -> int:
    """Read columns of a table batch by batch; the number of rows."""
    scanner = DeltaTable(lake / table).to_pyarrow_dataset().scanner(columns=list(columns))
    return sum(len(batch) for batch in scanner.to_batches())


def seconds_to_write(lake: Path, folder: Path) -> float:
    """Seconds of writing the files of all tables of a lake again, which are in memory by then.

    Rows, columns and codec are those of the files, and the same columns have dictionaries. As many files are written at once as there are
    cores, those of one size together.
    """
    cores = os.cpu_count() or 1
    files = sorted((file for table in lake.glob("*/_delta_log") for file in _files_of(table.parent)), key=lambda file: file.stat().st_size)
    total = 0.0
    folder.mkdir()
    with ThreadPoolExecutor(cores) as pool:
        for start in range(0, len(files), cores):
            read = [(pq.ParquetFile(file).read(), file, folder / file.name) for file in files[start : start + cores]]
            total += timed(lambda read=read: list(pool.map(_write, *zip(*read, strict=True))))  # type: ignore[misc]
    for written in folder.iterdir():
        written.unlink()
    folder.rmdir()
    return total


def _files_of(table: Path) -> list[Path]:
    return [Path(unquote(urlparse(uri).path)) for uri in DeltaTable(table).file_uris()]


def _write(rows: pa.Table, like: Path, to: Path) -> None:
    """Write rows with the codec and the dictionaries of the file that they came from."""
    metadata = pq.read_metadata(like)
    if metadata.num_row_groups == 0:
        return
    columns = [metadata.row_group(0).column(number) for number in range(metadata.num_columns)]
    pq.write_table(
        rows,
        to,
        compression=columns[0].compression,
        use_dictionary=[column.path_in_schema for column in columns if column.has_dictionary_page],
    )
