"""Captures of few packets, read by the driver alone: the start of a Spark session would take longer than the work."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from pipeline.capture.capture_job import Captured, broker_of, run_capture
from pipeline.files.store_files import file_size, is_local_or_s3
from pipeline.lake.lake import Lake
from pipeline.tasks import small_work

# the rows of a capture take about ten times its bytes in the driver's memory
_MOST_BYTES = 16 << 20


def read_small_capture(
    lake_root: str,
    broker: str | None,
    path: str,
    *,
    run_id: str,
    now: Callable[[], dt.datetime],
    progress: Callable[[str], None],
    tell: Callable[[str], None],
) -> Captured | None:
    """Read a capture into a lake without Spark, if it is small and the driver can write the lake's tables.

    Args:
        lake_root: directory or URI of the lake.
        broker: `name` of `broker_of`.
        path: path or URI of the capture.
        run_id: id of this run.
        now: returns the time of the wall clock.
        progress: called with a line for each step.
        tell: called with a line: that the driver reads, or why Spark does.

    Returns:
        The result; None if Spark has to read: nothing of this run is visible then.

    Raises:
        StoreError, LakeError: as `run_capture`.
    """

    def work() -> Captured:
        small_work.require_small(_why_not_small(lake_root, path), "reads", tell)
        opened = broker_of(Lake(None, lake_root), broker)
        return run_capture(opened, path, run_id=run_id, now=now, progress=progress)

    return small_work.done_here(work, "reads", tell)


def _why_not_small(lake_root: str, path: str) -> str | None:
    if not (is_local_or_s3(lake_root) and is_local_or_s3(path)):
        return "the capture and the lake must be local, or on S3"
    return f"the capture has more than {_MOST_BYTES >> 20} MiB" if (file_size(path) or 0) > _MOST_BYTES else None
