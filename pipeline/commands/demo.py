"""`pullsim demo`: runs import, replay and lag on stores and answers of real brokers that come with the package."""

from __future__ import annotations

import datetime as dt
import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.files.unpacking import unpack
from pipeline.importing.import_store import import_store
from pipeline.lag.lag_sql import AskedLag
from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.views import create_views
from pipeline.replay.replay_job import run_replay
from pipeline.replay.replay_run import ReplayOptions
from pipeline.requests.request_file import RequestFile
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings
from pipeline.terminal import progress_to_stderr, say, show_rows

REPLAYED_STORE = "cleaned"
REPLAYED_TRACE = "cleaned-default.jsonl"
CONSUMED_STORE = "broker-a"
# groups of broker-a in the lag table: one that keeps up, one that reads slowly, one that stopped
_SHOWN_GROUPS = ("g-main", "g-slow", "g-probe")


def unpack_demo_data(folder: Path) -> None:
    """Unpack the stores and the trace of the package into a folder; file times are kept."""
    data = files("pipeline") / "demo_data"  # the package may be inside a zip
    for store in (REPLAYED_STORE, CONSUMED_STORE):
        with (data / f"{store}.tar.xz").open("rb") as packed, tarfile.open(fileobj=packed) as archive:
            unpack(archive, folder)
    with (data / f"{REPLAYED_TRACE}.xz").open("rb") as packed, lzma.open(packed) as lines, (folder / REPLAYED_TRACE).open("wb") as trace:
        shutil.copyfileobj(lines, trace)
    (folder / f"{CONSUMED_STORE}.conf").write_text((data / f"{CONSUMED_STORE}.conf").read_text("utf-8"), "utf-8")


@contextmanager
def _lake_folder(lake: str | None) -> Iterator[str]:
    if lake is not None:
        yield lake
        return
    with tempfile.TemporaryDirectory(prefix="pullsim-lake-") as temporary:
        yield temporary


def run_demo(spark: SparkSession, lake_path: str | None, *, run_id: Callable[[], str], now: Callable[[], dt.datetime]) -> int:
    """Run the demo; returns the number of answers that differ from the real broker's.

    Args:
        spark: the session.
        lake_path: directory for the lake; None for a temporary one, which is removed at the end.
        run_id: returns the id for a new run.
        now: returns the time of the wall clock.
    """

    def imported(store: str, properties: Path | None) -> None:
        say(f"\nImporting the store {store!r}")
        done = import_store(
            Lake(spark, root),
            str(folder / store),
            broker=store,
            layout=None,
            settings=BrokerSettings.from_sources(properties=properties),
            run_id=run_id(),
            now=now,
            progress=progress_to_stderr,
        )
        say(
            f"{counted(done.messages, 'message')}, {counted(done.entries, 'entry', 'entries')} in {counted(done.queues, 'queue')}, "
            f"layout {done.layout}"
        )

    with tempfile.TemporaryDirectory(prefix="pullsim-demo-") as temporary, _lake_folder(lake_path) as root:
        folder = Path(temporary)
        unpack_demo_data(folder)
        imported(REPLAYED_STORE, None)
        imported(CONSUMED_STORE, folder / f"{CONSUMED_STORE}.conf")
        lake = Lake(spark, root)
        say(f"\nReplaying {REPLAYED_TRACE}: pulls that a real 4.9.3 broker answered on the store {REPLAYED_STORE!r}")
        done = run_replay(
            OpenedBroker(lake, REPLAYED_STORE),
            str(folder / REPLAYED_TRACE),
            options=ReplayOptions(filters=frozenset({"null", "TAG"}), compare=True),
            settings_of=RequestFile.settings,
            run_id=run_id(),
            now=now,
            progress=progress_to_stderr,
        )
        comparison = done.comparison
        assert comparison is not None
        say("")
        replayed = Lake(spark, root)
        show_rows(create_views(replayed, _STATUSES).sql(_STATUSES), "table")
        say("")
        for line in comparison.lines():
            say(line)
        say(f"\nLag of three groups of {CONSUMED_STORE!r}, a broker that real clients had used for a minute:\n")
        lag = AskedLag().consumer_progress
        show_rows(create_views(replayed, lag).sql(lag).where(F.col("Group").isin(*_SHOWN_GROUPS)), "table")
        _say_where_to_look(root, kept=lake_path is not None)
        return comparison.differ


_STATUSES = """
SELECT status, sum(pulls) AS pulls, sum(messages) AS messages, sum(bytes) AS bytes
FROM pull_status_summary GROUP BY status ORDER BY pulls DESC
"""


def _say_where_to_look(root: str, *, kept: bool) -> None:
    lake = root if kept else "DIR"
    if not kept:
        say("\nThe lake was temporary; `pullsim demo --lake DIR` keeps it. Then:")
    else:
        say(f"\nThe lake is in {root}. Next:")
    for words in (
        "groups --lake {}",
        "lag --lake {} --group g-slow",
        "message --lake {} --key main2-335",
        "report --lake {} --out report.html",
    ):
        say(f"  pullsim {words.format(lake)}")
    say(f'  pullsim sql --lake {lake} "SELECT topic, count(*) FROM commit_log GROUP BY topic"')
    say("  pullsim import /path/to/your/store --lake my-lake")
