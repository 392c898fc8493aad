"""What measures share: stores, lakes and requests. Each is made when a measure first asks for it, so one measure makes only its own."""

from __future__ import annotations

import datetime as dt
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.figures import REPEATS
from benchmarks.made.synthetic_store import BODY_BYTES, Shape, write_store
from pipeline.importing.import_store import import_store
from pipeline.lake.lake import Lake
from pipeline.lake.session import build_session
from pipeline.schema.tables import Layout
from pipeline.settings.settings import BrokerSettings

BROKER = "bench"
MESSAGES, TOPICS = 1_000_000, 8
QUICK, QUICK_REPEATS = 10, 2


class Stand:
    """A folder for all that is written, the size of things, one session, and one store of large messages with its tables.

    Attributes:
        folder: what is written lies below; whoever made it removes it.
        scale: all sizes are divided by it.
        repeats: how often each thing is timed.
    """

    def __init__(self, folder: Path, scale: int, *, repeats: int = REPEATS, spark: SparkSession | None = None) -> None:
        self.folder = folder
        self.scale = scale
        self.repeats = repeats
        self._given = spark
        self._built: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        """The session of the command line."""
        if self._given is not None:
            return self._given
        if self._built is None:
            self._built = build_session()
            self._built.range(1).count()
        return self._built

    def close(self) -> None:
        """End the session, if one was started here."""
        if self._built is not None:
            self._built.stop()
            self._built = None

    def sized(self, messages: int, body_bytes: int = BODY_BYTES) -> Shape:
        """A store of so many messages, and its files and queues, at this size."""
        topics = TOPICS if self.scale == 1 else TOPICS // 2  # of as many queues each
        return Shape(
            messages=messages // self.scale,
            topics=topics,
            queues=topics,
            log_file_bytes=(256 << 20) // self.scale,
            body_bytes=body_bytes,
        )

    @property
    def shape(self) -> Shape:
        """Of the store of large messages."""
        return self.sized(MESSAGES)

    @cached_property
    def store(self) -> Path:
        """The store of large messages."""
        store = self.folder / "store"
        write_store(store, self.shape)
        return store

    @cached_property
    def lake(self) -> Path:
        """Its tables."""
        return self.imported("lake", self.store)

    def imported(self, name: str, store: Path) -> Path:
        """The tables of a store, in a lake of that name."""
        lake = self.folder / name
        import_quietly(self.spark, store, lake)
        return lake


def import_quietly(spark: SparkSession, store: Path | str, lake: Path | str, layout: Layout | None = None) -> None:
    """Import a store as the command does, without a word."""
    import_store(
        Lake(spark, str(lake)),
        str(store),
        broker=BROKER,
        layout=layout,
        settings=BrokerSettings.from_sources(),
        run_id="bench",
        now=lambda: dt.datetime.now(dt.UTC),
        progress=lambda _: None,
    )
