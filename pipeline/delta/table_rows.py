"""Some rows of a Delta table, read from its Parquet files by this process, on any file system."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from pipeline.delta.small_table import PARTITION, added_files, statistic
from pipeline.files.store_files import filesystem_of

# column -> values, of which a wanted row has one
Wanted = Mapping[str, Sequence[Any]]


def dataset_of(schema: pa.Schema, files: Sequence[str], adds: pa.Table) -> ds.Dataset:
    """The rows of a table's files as a dataset, which reads only the columns and partitions that a query needs.

    Args:
        schema: columns of the table; a column that a file lacks is NULL.
        files: paths of the files, at least one.
        adds: a row for each file, with its `size_bytes`, and each partition value in a column named PARTITION + the partition column.
    """
    form = ds.ParquetFileFormat(default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True))
    names = [name.removeprefix(PARTITION) for name in adds.column_names if name.startswith(PARTITION)]
    partitions = {name: adds[PARTITION + name].cast(schema.field(name).type) for name in names}
    filesystem = filesystem_of(files[0])[0]
    fragments = []
    for row, (path, size) in enumerate(zip(files, adds["size_bytes"].to_pylist(), strict=True)):
        values = (pc.field(name) == column[row] for name, column in partitions.items())
        condition = reduce(and_, values, pc.scalar(True))
        # if pyarrow has the file's size, it does not ask S3 for it
        fragments.append(form.make_fragment(filesystem_of(path)[1], filesystem, condition, file_size=size))
    return ds.FileSystemDataset(fragments, schema, form, filesystem)


def rows_with(
    table: DeltaTable, path: str, schema: pa.Schema, columns: Sequence[str], wanted: Wanted, any_of: Sequence[Wanted] = ()
) -> pa.Table:
    """The rows that match `wanted` and, unless `any_of` is empty, at least one of `any_of`.

    A row matches if each of the columns has one of its wanted values. Only files and row groups that may have matching rows by their
    statistics are read.

    Args:
        table: the table, opened at a version.
        path: its folder.
        schema: its columns; a column that a file lacks is NULL.
        columns: the columns of the result.
        wanted: values by column; they choose files and rows.
        any_of: further values by column; they choose rows of these files.

    Raises:
        OSError, pyarrow.ArrowInvalid: a file cannot be read.
    """
    adds = added_files(table)
    for name, values in wanted.items():
        adds = adds.filter(pa.array(_may_have(adds, schema.field(name), sorted(values)), pa.bool_()))
    if not len(adds):
        return pa.schema([schema.field(name) for name in columns]).empty_table()
    files = [f"{path}/{unquote(name)}" for name in adds["path"].to_pylist()]
    condition = has_values(schema, wanted)
    if any_of:
        condition &= reduce(or_, (has_values(schema, one) for one in any_of))
    return dataset_of(schema, files, adds).to_table(columns=[*columns], filter=condition)


def has_values(schema: pa.Schema, wanted: Wanted) -> pc.Expression:
    """Whether a row has one of the wanted values in each column of `wanted`; NULL matches only if NULL is wanted."""
    conditions = [pc.field(name).isin(pa.array(values, schema.field(name).type)) for name, values in wanted.items()]
    return reduce(and_, conditions, pc.scalar(True))


def _may_have(adds: pa.Table, field: pa.Field, values: Sequence[Any]) -> list[bool]:
    """For each file, whether its rows may have one of the values in a column, by its partition or its statistics; `values` are sorted."""
    if PARTITION + field.name in adds.column_names:
        lows = highs = adds[PARTITION + field.name].cast(field.type).to_pylist()
    else:
        lows, highs = (statistic(adds, end, field.name) for end in ("min", "max"))

    def is_between(low: Any, high: Any) -> bool:
        place = bisect_left(values, low)
        return place < len(values) and bool(values[place] <= high)

    return [low is None or high is None or is_between(low, high) for low, high in zip(lows, highs, strict=True)]
