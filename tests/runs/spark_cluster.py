"""Runs a standalone Spark cluster on this machine: a master and workers of one core, each a process of its own in an empty folder.

The driver has pullsim's wheel in a virtual environment. Executors have only the archive that spark-submit sends them: an environment with
the wheel and the packages that docs/cluster.md lists for executors.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import tarfile
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from pipeline.lake.session import INTERPRETED_PLANS, SHORT_JOBS
from tests.runs.packaged import PROJECT, build_wheel, dependencies

# the packages of docs/cluster.md; delta-spark alone would bring pyspark, which executors have from Spark
ON_EXECUTORS = ("numpy", "numba", "pyarrow", "pandas", "lark", "cachetools", "deltalake", "dpkt", "protobuf", "pydantic")
WITHOUT_THEIRS = ("delta-spark",)
_START_SECONDS, _SUBMIT_SECONDS = 300, 1800
_QUICK_START = SHORT_JOBS["spark.driver.extraJavaOptions"]
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True, slots=True)
class Environments:
    """What driver and executors run.

    Attributes:
        python: the Python of the driver, with the wheel.
        main: path of the installed `pipeline/main.py`.
        archive: the packed environment of executors.
    """

    python: Path
    main: Path
    archive: Path


def environments(folder: Path) -> Environments:
    """Make both environments in `folder`; pip fetches the packages of executors."""
    wheel = build_wheel(folder)
    driver, packed, archive = folder / "driver", folder / "packed", folder / "environment.tar.gz"
    venv.create(driver, with_pip=True)
    _install(driver, "--no-deps", str(wheel))
    (site,) = driver.glob("lib/*/site-packages")
    (site / "dependencies.pth").write_text(dependencies() + "\n")
    venv.create(packed, with_pip=True)
    _install(packed, *map(_pinned, ON_EXECUTORS))
    _install(packed, "--no-deps", str(wheel), *map(_pinned, WITHOUT_THEIRS))
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(packed, arcname=".")
    return Environments(driver / "bin" / "python", site / "pipeline" / "main.py", archive)


def _install(home: Path, *packages: str) -> None:
    call = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    subprocess.run(call, check=True, env=bare_environment())


def _pinned(package: str) -> str:
    return f"{package}=={version(package)}"


def bare_environment() -> dict[str, str]:
    """This process's environment without what leads a Python or a Spark to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV"))}


@dataclass
class SparkCluster:
    """A running cluster.

    Attributes:
        master: its URL.
        folder: the folder of its processes: logs, the workers' folders, the driver's folder.
        environments: what driver and executors run.
        workers: the processes of the workers.
        variables: variables of spark-submit, besides those that name the Pythons.
    """

    master: str
    folder: Path
    environments: Environments
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str, conf: Sequence[str] = ()) -> list[str]:
        """A call of spark-submit that runs pullsim with the arguments on this cluster."""
        settings = [
            "spark.ui.enabled=false",
            "spark.driver.host=127.0.0.1",
            "spark.sql.shuffle.partitions=8",
            "spark.executor.memory=1g",
            *(f"spark.{side}.extraJavaOptions={_QUICK_START}" for side in ("driver", "executor")),
            *("=".join(pair) for pair in INTERPRETED_PLANS.items()),
            *conf,
        ]
        return [
            str(_SPARK / "bin" / "spark-submit"),
            *("--master", self.master),
            *("--properties-file", str(PROJECT / "conf" / "spark-defaults-cluster.conf")),
            *(word for setting in settings for word in ("--conf", setting)),
            *("--archives", f"{self.environments.archive}#environment"),
            str(self.environments.main),
            *arguments,
        ]

    def start(self, *arguments: str, conf: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start pullsim on this cluster, in an empty folder; gives the process of spark-submit."""
        empty = self.folder / "driver"
        empty.mkdir(exist_ok=True)
        variables = (
            _environment()
            | self.variables
            | {
                "PYSPARK_PYTHON": "./environment/bin/python",
                "PYSPARK_DRIVER_PYTHON": str(self.environments.python),
            }
        )
        command = self.command(*arguments, conf=conf)
        return subprocess.Popen(
            command, cwd=empty, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, *arguments: str, conf: Sequence[str] = ()) -> str:
        """What pullsim printed on this cluster; it must succeed."""
        return finished(self.start(*arguments, conf=conf))

    def add_worker(self) -> None:
        """Start one more worker."""
        number = len([*self.folder.glob("worker*.log")])
        work = self.folder / f"worker{number}"
        options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "2g", "--webui-port", "0", "--work-dir", str(work))
        self.workers.append(_spark_process(self.folder, f"worker{number}", "worker.Worker", *options, self.master))

    def executors(self) -> list[int]:
        """Process ids of the executors, in the order of their workers."""
        return [executor for worker in self.workers for executor in self.executors_of(worker)]

    @staticmethod
    def executors_of(worker: subprocess.Popen[bytes]) -> list[int]:
        """Process ids of the executors of a worker."""
        return sorted(pid for pid, parent, command in _processes() if parent == worker.pid and _EXECUTOR in command)


def finished(submitted: subprocess.Popen[str]) -> str:
    """Wait for the end of a started pullsim, and give what it printed; it must succeed."""
    try:
        out, err = submitted.communicate(timeout=_SUBMIT_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(submitted.pid, signal.SIGKILL)
    assert submitted.returncode == 0, out[-4000:] + err[-4000:]
    return out


_SPARK = Path(dependencies()) / "pyspark"


def _environment() -> dict[str, str]:
    return bare_environment() | {"SPARK_HOME": str(_SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}


def _spark_process(folder: Path, name: str, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A master or worker, in an empty folder of its own."""
    empty = folder / f"{name}-started"
    empty.mkdir()
    environment = _environment() | {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_DIRS": str(empty)}
    with (folder / f"{name}.log").open("wb") as log:
        call = [_SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments]
        return subprocess.Popen(call, cwd=empty, env=environment, stdout=log, stderr=log)


@contextmanager
def spark_cluster(folder: Path, environments: Environments, workers: int = 2) -> Iterator[SparkCluster]:
    """A master and workers, which are ended at the end."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = _spark_process(folder, "master", "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    cluster = SparkCluster(f"spark://127.0.0.1:{port}", folder, environments)
    try:
        _await(folder / "master.log", "New state: ALIVE", 1)
        for _ in range(workers):
            cluster.add_worker()
        _await(folder / "master.log", "Registering worker", workers)
        yield cluster
    finally:
        for process in (*cluster.workers, master):
            process.terminate()
        for process in (*cluster.workers, master):
            process.wait(60)


def _await(log: Path, words: str, times: int) -> None:
    until = time.monotonic() + _START_SECONDS
    while log.read_text("utf-8", "replace").count(words) < times:
        assert time.monotonic() < until, log.read_text("utf-8", "replace")[-4000:]
        time.sleep(0.1)


def _processes() -> Iterator[tuple[int, int, bytes]]:
    """Id, parent's id and command line of each process."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            parent = re.search(r"^PPid:\t(\d+)$", status.read_text(), re.MULTILINE)
            yield int(status.parent.name), int(parent[1]) if parent else 0, (status.parent / "cmdline").read_bytes()
