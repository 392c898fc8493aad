"""Runs a standalone Spark cluster on this machine: a master and workers of one core, each a process of its own in an empty folder.

The driver has pullsim's wheel in a virtual environment. Executors have only the archive that spark-submit sends them: an environment with
the wheel and the packages that docs/cluster.md lists for executors.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from pipeline.lake.session import INTERPRETED_PLANS, SHORT_JOBS
from tests.runs.packaged import build_wheel, dependencies
from tests.truth.places import PROJECT

# the packages of docs/cluster.md; delta-spark is installed alone: it would bring pyspark, which executors have from Spark
ON_EXECUTORS = ("numpy", "numba", "pyarrow", "pandas", "lark", "cachetools", "deltalake", "dpkt", "pydantic")
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
        on_executors: the same environment in a folder, for executors on this machine.
    """

    python: Path
    main: Path
    archive: Path
    on_executors: Path


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
    return Environments(driver / "bin" / "python", site / "pipeline" / "main.py", archive, packed)


def _install(home: Path, *packages: str) -> None:
    call: list[str | Path] = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
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

    def command(self, *arguments: str, conf: Sequence[str], archive: bool, options: Sequence[str]) -> list[str]:
        """A call of spark-submit that runs pullsim with the arguments on this cluster; `archive` sends the environment of executors."""
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
            *(("--archives", f"{self.environments.archive}#environment") if archive else ()),
            *options,
            str(self.environments.main),
            *arguments,
        ]

    def start(
        self,
        *arguments: str,
        conf: Sequence[str] = (),
        archive: bool = False,
        options: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start pullsim on this cluster, in an empty folder.

        Args:
            arguments: those of pullsim.
            conf: settings of Spark.
            archive: send the environment to the executors, which takes 20 s longer than to name its folder.
            options: more options of spark-submit.
            variables: more variables of the driver's environment.

        Returns:
            The process of spark-submit.
        """
        empty = self.folder / "driver"
        empty.mkdir(exist_ok=True)
        if not self.executors():  # an application that ended leaves its unpacked environment
            for left in self.folder.glob("worker*/app-*"):
                shutil.rmtree(left)
        environment = (
            _environment()
            | self.variables
            | {
                "PYSPARK_PYTHON": "./environment/bin/python" if archive else str(self.environments.on_executors / "bin" / "python"),
                "PYSPARK_DRIVER_PYTHON": str(self.environments.python),
                **(variables or {}),
            }
        )
        command = self.command(*arguments, conf=conf, archive=archive, options=options)
        return subprocess.Popen(
            command, cwd=empty, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, *arguments: str, conf: Sequence[str] = ()) -> str:
        """Run pullsim on this cluster, with the archive, and return what it printed. It must succeed."""
        return finished(self.start(*arguments, conf=conf, archive=True))

    def add_worker(self) -> None:
        """Start one more worker."""
        self.workers.append(self._worker(len(self.workers)))

    def restart_worker(self, at: int, disk: Path | None = None) -> None:
        """Kill a worker, and start one in its place, with its folders on another disk."""
        self.workers[at].kill()
        self.workers[at].wait()
        self.workers[at] = self._worker(at, disk)

    def _worker(self, at: int, disk: Path | None = None) -> subprocess.Popen[bytes]:
        """A worker on a host of its own: Spark runs no second attempt of a task on the host of the first."""
        name = f"worker{len([*self.folder.glob('worker*.log')])}"
        options = ("--host", f"127.0.0.{at + 1}", "--cores", "1", "--memory", "2g", "--webui-port", "0", "--work-dir")
        work = (disk or self.folder) / name
        return _spark_process(self.folder, name, "worker.Worker", *options, str(work), self.master, disk=disk)

    def executors(self) -> list[int]:
        """Process ids of the executors, in the order of their workers."""
        return [executor for worker in self.workers for executor in self.executors_of(worker)]

    @staticmethod
    def executors_of(worker: subprocess.Popen[bytes]) -> list[int]:
        """Process ids of the executors of a worker."""
        return sorted(pid for pid, parent, command in _processes() if parent == worker.pid and _EXECUTOR in command)


def ended(submitted: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of a started pullsim; returns its exit code, stdout and stderr."""
    try:
        out, err = submitted.communicate(timeout=_SUBMIT_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(submitted.pid, signal.SIGKILL)
    return submitted.returncode, out, err


def finished(submitted: subprocess.Popen[str]) -> str:
    """Wait for the end of a started pullsim; returns what it printed. It must succeed."""
    code, out, err = ended(submitted)
    assert code == 0, out[-4000:] + err[-4000:]
    return out


_SPARK = Path(dependencies()) / "pyspark"


def _environment() -> dict[str, str]:
    return bare_environment() | {"SPARK_HOME": str(_SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}


def _spark_process(folder: Path, name: str, kind: str, *arguments: str, disk: Path | None = None) -> subprocess.Popen[bytes]:
    """A master or worker, in an empty folder of its own, which may be on another disk."""
    empty = (disk or folder) / f"{name}-started"
    empty.mkdir()
    environment = _environment() | {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_DIRS": str(empty)}
    with (folder / f"{name}.log").open("wb") as log:
        call: list[str | Path] = [_SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments]
        return subprocess.Popen(call, cwd=empty, env=environment, stdout=log, stderr=log)


@contextmanager
def spark_cluster(folder: Path, environments: Environments, workers: int = 2) -> Iterator[SparkCluster]:
    """A master and workers, which end with the block."""
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
