"""What a user installs or submits runs without the checkout: a wheel in an empty environment, a zip under spark-submit."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.commands.demo import unpack_demo_data
from pipeline.lake.lake import Lake
from pipeline.lake.session import INTERPRETED_PLANS, SHORT_JOBS
from pipeline.pace.feed import feed_folder, feed_of
from pipeline.pace.request_pace import Faults, Pace
from pipeline.schema import tables as t
from tests.models.store_lag import StoreLag
from tests.runs.packaged import bare_python, build_wheel, dependencies
from tests.runs.prometheus import parse
from tests.runs.replaying import DEMO_TRACE, demo_data, demo_lake
from tests.runs.sampling import slow_proof
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ALL_EQUAL = re.compile(r"^(?P<compared>\d+) compared, 0 differ$", re.MULTILINE)

QUICK_START = SHORT_JOBS["spark.driver.extraJavaOptions"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}


def test_a_wheel_brings_no_packages_but_ours(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pipeline", "pullsim", "store_format", "udfs"}


@slow_proof  # the zip that spark-submit takes below is a wheel too
def test_a_wheel_in_an_empty_environment_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], check=True)
    (site,) = home.glob("lib/*/site-packages")
    (site / "dependencies.pth").write_text(dependencies() + "\n")

    where = subprocess.run(
        [python, "-c", "import pipeline; print(pipeline.__file__)"],
        cwd=tmp_path,
        env=_clean_environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(site))

    done = subprocess.run(
        [home / "bin" / "pullsim", "demo"], cwd=tmp_path, env=_clean_environment(), check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    found = ALL_EQUAL.search(done.stdout)
    assert found, done.stdout
    assert int(found["compared"]) > 400
    assert "WARN" not in done.stderr


def submission(wheel: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The spark-submit command, without pullsim's arguments, for executors that have only the zip; and its environment."""
    archive = folder / "pullsim.zip"
    shutil.copy(wheel, archive)
    shutil.copy(PROJECT / "pipeline" / "main.py", folder / "main.py")
    pyspark = Path(dependencies()) / "pyspark"
    environment = _clean_environment() | {
        "SPARK_HOME": str(pyspark),
        "PYSPARK_PYTHON": str(bare_python(folder)),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    command = [
        str(pyspark / "bin" / "spark-submit"),
        "--master",
        "local-cluster[1,2,1024]",
        "--properties-file",
        str(PROJECT / "conf" / "spark-defaults-cluster.conf"),
        "--conf",
        "spark.ui.enabled=false",
        "--conf",
        "spark.sql.shuffle.partitions=2",
        *(word for setting in INTERPRETED_PLANS.items() for word in ("--conf", "=".join(setting))),
        *(word for side in ("driver", "executor") for word in ("--conf", f"spark.{side}.extraJavaOptions={QUICK_START}")),
        "--py-files",
        str(archive),
        str(folder / "main.py"),
    ]
    return command, environment


def submitted(wheel: Path, folder: Path, *arguments: str) -> str:
    """The output of pullsim on executors that have only the zip; spark-submit puts the driver's stderr there too."""
    command, environment = submission(wheel, folder)
    done = subprocess.run([*command, *arguments], cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@slow_proof
def test_spark_submit_runs_functions_on_executors_that_have_only_the_zip(
    spark: SparkSession, wheel: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = demo_lake(spark, tmp_path_factory, tmp_path)
    query = "SELECT count_if(sql92_matches('1 = 1', properties)) AS matching FROM message"
    out = submitted(wheel, tmp_path, "sql", "--lake", str(lake), "--format", "json", query)
    messages = Lake(spark, str(lake)).table(t.COMMIT_LOG).count()
    assert messages > 0
    assert f'{{"matching": {messages}}}' in out.splitlines()


@slow_proof
def test_spark_submit_replays_on_executors_that_have_only_the_zip(
    spark: SparkSession, wheel: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake, trace = demo_lake(spark, tmp_path_factory, tmp_path), demo_data(tmp_path_factory) / DEMO_TRACE
    out = submitted(wheel, tmp_path, "replay", "--lake", str(lake), "--requests", str(trace), "--compare")
    found = ALL_EQUAL.search(out)
    assert found, out
    assert int(found["compared"]) > 400


@slow_proof
def test_spark_submit_runs_the_demo_on_executors_that_have_only_the_zip(wheel: Path, tmp_path: Path) -> None:
    out = submitted(wheel, tmp_path, "demo", "--lake", str(tmp_path / "lake"))
    assert ALL_EQUAL.search(out), out


def driver_of(submitted: subprocess.Popen[str]) -> int:
    """The Python process that a running spark-submit has started for the driver."""
    for status in Path("/proc").glob("[0-9]*/status"):
        parent = re.search(r"^PPid:\t(\d+)$", status.read_text(), re.MULTILINE)
        if parent and int(parent[1]) == submitted.pid and b"main.py" in (status.parent / "cmdline").read_bytes():
            return int(status.parent.name)
    raise AssertionError("there is no driver")


def wait_until_answered(requests: int, stream: subprocess.Popen[str], metrics: Path) -> None:
    """Wait until the metrics of a stream count `requests` answers, or the stream ends."""
    answered = 0.0
    while answered < requests and stream.poll() is None:
        time.sleep(0.2)
        if metrics.exists():
            [answered] = parse(metrics.read_text())["pullsim_stream_requests_answered_total"].series.values()


@slow_proof
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, to find the driver's process")
def test_a_stream_under_spark_submit_tells_what_it_does_until_it_is_told_to_end(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    unpack_demo_data(tmp_path / "demo")
    store, metrics, folder = tmp_path / "demo" / "broker-a", tmp_path / "pullsim.prom", tmp_path / "incoming"
    command, environment = submission(wheel, tmp_path)
    imported = [*command, "import", store, "--lake", tmp_path / "lake", "--properties", tmp_path / "demo" / "broker-a.conf"]
    subprocess.run([str(word) for word in imported], cwd=tmp_path, env=environment, check=True, capture_output=True)
    feed, _ = feed_of(str(tmp_path / "demo" / DEMO_TRACE), pace=Pace(rate=100.0), faults=Faults(), seed=0, loop=1)
    fed = feed_folder(feed, str(folder), clock=lambda: 0.0, wait=lambda _: False)

    streamed = [*command, "stream", "--lake", tmp_path / "lake", "--requests", folder, "--checkpoint", tmp_path / "checkpoint"]
    streamed += ["--max-files", "3", "--metrics", metrics]
    with (
        (tmp_path / "stderr").open("w") as err,
        subprocess.Popen(
            [str(word) for word in streamed], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=err, text=True
        ) as stream,
    ):
        try:
            wait_until_answered(fed.requests, stream, metrics)
            assert stream.poll() is None, (tmp_path / "stderr").read_text()[-4000:]
            os.kill(driver_of(stream), signal.SIGTERM)
            out, _ = stream.communicate(timeout=120)
        finally:
            stream.kill()

    assert stream.returncode == 0, (tmp_path / "stderr").read_text()[-4000:]
    assert f"answered {fed.requests} requests in 2 batches, 0 bad ones" in out
    told = parse(metrics.read_text())
    for name, value in {"running": 0, "failed": 0, "batches_total": 2, "behind_files": 0}.items():
        assert [*told[f"pullsim_stream_{name}"].series.values()] == [value], name
    lags: dict[tuple[str, ...], int] = {}
    for (_, group, topic, _), row in StoreLag(store).rows("broker-a").items():
        if row["lag"] is not None:
            lags[group, topic] = lags.get((group, topic), 0) + row["lag"]
    diffs = [told[name].series for name in ("rocketmq_group_diff", "rocketmq_group_retrydiff", "rocketmq_group_dlqdiff") if name in told]
    assert {(dict(labels)["group"], dict(labels)["topic"]): value for found in diffs for labels, value in found.items()} == lags
    assert len(lags) > 1
