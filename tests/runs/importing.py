"""Imports a store for tests: by the driver if it can, which takes a tenth of the time of an import by Spark.

`tests/pipeline/importing/test_small_store.py` compares the tables of both. Tests of Spark's import pass `by_spark`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.runs.sampling import ALL

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import SparkSession

    from pipeline.importing.import_store import Imported
    from pipeline.schema.tables import Layout
    from pipeline.settings.settings import BrokerSettings


def imported(
    spark: SparkSession | None,
    folder: Path,
    store: Path,
    *,
    broker: str,
    layout: Layout | None,
    settings: BrokerSettings,
    as_found: bool = False,
    run_id: str,
    noon: dt.datetime,
    by_spark: bool | None = None,
) -> Imported:
    """Import a store into the lake `folder`.

    Args:
        by_spark: True lets Spark import, False lets the driver import if it can; None is False in `./run test`, True in `./run long`.
    """
    from pipeline.importing.import_store import import_store
    from pipeline.importing.small_store import import_small_store
    from pipeline.lake.lake import Lake

    importing = partial(
        import_store,
        store_path=str(store),
        broker=broker,
        layout=layout,
        settings=settings,
        as_found=as_found,
        run_id=run_id,
        now=lambda: noon,
        progress=lambda _: None,
    )
    done = None
    if not (ALL if by_spark is None else by_spark):
        done = import_small_store(importing, str(folder), str(store), broker=broker, layout=layout, tell=lambda _: None)
    return done or importing(Lake(spark, str(folder)))
