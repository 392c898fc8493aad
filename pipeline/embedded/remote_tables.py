"""A Delta table's files on S3 as a dataset of pyarrow, which DuckDB scans; for S3, DuckDB would have to download an extension."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipeline.delta.small_table import PARTITION
from pipeline.files.store_files import filesystem_of


def dataset_of(schema: pa.Schema, files: Sequence[str], adds: pa.Table) -> ds.Dataset:
    """The rows of a table's files as a dataset, which reads only the columns and partitions that a query needs.

    Args:
        schema: columns of the table; a column that a file lacks is NULL.
        files: paths of the files, at least one.
        adds: a row for each file, with its partition values in columns named PARTITION and the partition column.
    """
    form = ds.ParquetFileFormat(default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True))
    names = [name.removeprefix(PARTITION) for name in adds.column_names if name.startswith(PARTITION)]
    partitions = {name: adds[PARTITION + name].cast(schema.field(name).type) for name in names}
    filesystem = filesystem_of(files[0])[0]
    fragments = []
    for row, path in enumerate(files):
        values = (pc.field(name) == column[row] for name, column in partitions.items())
        fragments.append(form.make_fragment(filesystem_of(path)[1], filesystem, reduce(and_, values, pc.scalar(True))))
    return ds.FileSystemDataset(fragments, schema, form, filesystem)
