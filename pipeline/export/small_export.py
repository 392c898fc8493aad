"""Exports of small stores by the driver alone: tasks of a Spark session would take longer."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.export.export_store import Exported, Progress, export_store
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema.tables import STORE_FILE
from pipeline.settings.quantities import size_text
from pipeline.tasks import small_work


def export_small_store(
    lake_root: str, name: str | None, store: str, *, run_id: str, progress: Progress, tell: Callable[[str], None]
) -> Exported | None:
    """Export the store of one broker without Spark, if it is small and the driver can read all of its tables.

    Args:
        lake_root: directory or URI of the lake.
        name: the broker's name; None for the lake's only broker.
        store: as in `export_store`.
        run_id: id of this run.
        progress: called with a line for each step.
        tell: called with a line: that the driver exports, or why Spark does.

    Returns:
        The result; None if Spark has to export: there is no directory `store` then.

    Raises:
        OutputError, LakeError, StoreError: as `export_store`.
    """

    def work() -> Exported:
        broker = OpenedBroker.of(None, lake_root, name)
        small_work.require_small(_why_not_small(broker), "exports", tell)
        return export_store(broker, store, run_id=run_id, progress=progress)

    return small_work.done_here(work, "exports", tell)


def _why_not_small(broker: OpenedBroker) -> str | None:
    row = broker.require_files()
    if row["maxPhyOffset"] - row["minPhyOffset"] > small_work.MOST_BYTES:
        return f"the log has more than {size_text(small_work.MOST_BYTES)}"
    return f"the store has more than {small_work.MOST_FILES:,} files" if len(broker.rows(STORE_FILE)) > small_work.MOST_FILES else None
