"""Imports of small stores by the driver alone: tasks of a Spark session would take longer.

To read the store and to write the tables' files, the driver calls the same functions as tasks do.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline.delta.delta_sql import Placement
from pipeline.delta.small_table import has_plain_path
from pipeline.files.store_files import is_local_or_s3
from pipeline.importing.import_store import Imported
from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import LakeWriter
from pipeline.schema.tables import IMPORTED, LAKE_VERSION, Layout
from pipeline.settings.quantities import size_text
from pipeline.tasks import small_work
from pipeline.tasks.work import NoSessionError

# placement of rows in the tables by queue, if the driver writes them
_PLACEMENT = Placement("partitioned", named_folders=True)


def import_small_store(
    importing: Callable[[Lake], Imported],
    lake_root: str,
    store_path: str,
    *,
    broker: str,
    layout: Layout | None,
    tell: Callable[[str], None],
) -> Imported | None:
    """Import a store without Spark, if it is small and the driver can write all of the lake's tables.

    Args:
        importing: `import_store` with all arguments but the lake.
        lake_root: directory or URI of the lake.
        store_path: directory or URI of the store.
        broker: the broker's name in the lake.
        layout: as in `import_store`.
        tell: called with a line: that the driver imports, or why Spark does.

    Returns:
        The result; None if Spark has to import: nothing of this run is visible then.

    Raises:
        StoreError, LakeError: as `import_store`.
    """

    def work() -> Imported:
        if reason := _why_not_small(lake_root, store_path, layout):
            raise NoSessionError(reason)
        lake = Lake(None, lake_root)
        small_work.require_small(_why_spark_writes(lake, broker), "imports", tell)
        return importing(lake)

    return small_work.done_here(work, "imports", tell)


def _why_not_small(lake_root: str, store_path: str, layout: Layout | None) -> str | None:
    """Why Spark has to import, judged by the paths and the layout; None if they name no reason."""
    if not (is_local_or_s3(lake_root) and is_local_or_s3(store_path)):
        return "the store and the lake must be local folders, or on S3"
    if layout == "clustered":
        return "the layout is clustered"
    if not small_work.is_small_store(store_path):
        return f"the store has more than {size_text(small_work.MOST_BYTES)}, or more than {small_work.MOST_FILES:,} files"
    return None


def _why_spark_writes(lake: Lake, broker: str) -> str | None:
    """Why Spark has to import, judged by the lake's tables; None if the driver can write them."""
    if not has_plain_path(lake.root):
        return "deltalake does not open the lake's path"
    writer = LakeWriter(lake, run_id="", what="import", broker=broker, only_looks=True)
    if writer.others:
        return "the lake has other brokers"
    table = next((table for table in IMPORTED if writer.replacing_writer(table, _PLACEMENT) is None), None)
    if table is None and not writer.commits_without_spark:
        table = LAKE_VERSION
    return None if table is None else f"only Spark writes the table {table.name} of this lake"
