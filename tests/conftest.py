"""Fixtures for all tests: stores of the real broker, and one Spark session for the whole run."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.runs.sampling import ALL, examples
from tests.truth.golden import unpack_small, unpack_stores
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# no deadline, as the first example of a test compiles what it calls; the sampled run takes a quarter of the examples
settings.register_profile("pullsim", deadline=None, max_examples=examples(100))
settings.load_profile("pullsim")

# a shell starts what runs in the background with Ctrl-C ignored, and so would every command that a test starts and interrupts
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whatever uses the session, so that `-m "not spark"` leaves all of it out; files with such tests come first."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    slow = {item.path for item in items if item.get_closest_marker("spark")}
    items.sort(key=lambda item: item.path not in slow)


class FromBothEnds(LoadFileScheduling):  # type: ignore[misc]
    """Where processes share the files, the first takes them from the front and the others from the end.

    So a second session, which compiles and plans the same again, starts late if at all.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is not self.nodes[0]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FromBothEnds:
    """How `./run test` shares the files."""
    return FromBothEnds(config, log)


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all golden stores, file times kept; skips without the shared golden data."""
    return unpack_stores(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that comes with the tests, file times kept."""
    return unpack_small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session, with the project's SQL functions."""
    from pipeline.lake.session import INTERPRETED_PLANS, SHORT_JOBS, build_session

    # Hours of planning pay for both compilers, whose code does not fit into the default cache. The sampled run plans most queries once:
    # with one compiler and the class archive, tests/pipeline/lag/test_lag.py took 83 s of processor time, with both compilers 126 s.
    # The sampled run plans no query again while it runs, which took a twelfth of the time of tests/pipeline/replay/test_replay.py.
    planned_once = {"spark.sql.adaptive.enabled": "false"}
    of_jvm = {"spark.driver.extraJavaOptions": "-XX:ReservedCodeCacheSize=400m"} if ALL else INTERPRETED_PLANS | SHORT_JOBS | planned_once
    conf = of_jvm | {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        # short streams reach what long ones do, too
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
        "spark.executorEnv.PYTHONPATH": str(PROJECT),
    }
    session = build_session(master="local[2]", conf=conf)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _leave_no_views(request: pytest.FixtureRequest) -> Iterator[None]:
    session: SparkSession | None = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    yield
    if session is not None:
        session.catalog.clearCache()
        session._jsparkSession.sessionState().catalog().clearTempTables()  # SHOW VIEWS and a DROP for each view took 1.3 s
        if ALL:
            gc.collect()  # frames of Spark refer to themselves: over hours, what the JVM keeps for them would fill it
