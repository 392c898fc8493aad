"""Runs YARN on this machine: a resource manager and a node manager, each a process of its own, from Hadoop's jars.

`hadoop-client-minicluster` of Maven Central has the classes of both. The resource manager also needs Bouncy Castle. pyspark has the rest.
Files that the node manager fetches are on the local disk.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.runs.hdfs_server import maven_jar, server_jar, write_conf
from tests.runs.packaged import dependencies
from tests.runs.spark_cluster import Environments, SparkCluster, bare_environment

_BOUNCY_CASTLE = [f"org.bouncycastle:{name}-jdk18on:1.79" for name in ("bcprov", "bcpkix", "bcutil")]
_START_SECONDS = 120
_LIMITS = (
    "spark.executor.instances=2",
    "spark.executor.memoryOverhead=1g",
    "spark.yarn.am.memory=512m",
    "spark.yarn.am.memoryOverhead=256m",
)
_OF_DRIVER = (
    "spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python",
    "spark.driver.memory=1g",
    "spark.driver.memoryOverhead=1g",
)


@dataclass
class YarnCluster(SparkCluster):
    """A running YARN, with a node of 8 GiB."""

    def command(self, *arguments: str, conf: Sequence[str], archive: bool, options: Sequence[str]) -> list[str]:
        """A call of spark-submit in client mode."""
        return super().command(*arguments, conf=(*_LIMITS, *conf), archive=archive, options=options)

    def run_in_cluster(self, archive: Path, *arguments: str) -> str:
        """Run pullsim in cluster mode: the driver runs in a container of YARN, with the Python of an archive, as its executors do."""
        call = self.command(*arguments, conf=_OF_DRIVER, archive=True, options=())
        call[call.index("--archives") + 1] = f"{archive}#environment"
        at = call.index("spark.driver.host=127.0.0.1")  # the container's own host
        call = [call[0], "--deploy-mode", "cluster", *call[1 : at - 1], *call[at + 1 :]]
        environment = bare_environment() | self.variables | {"PYSPARK_PYTHON": "./environment/bin/python"}
        run = subprocess.run(call, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert run.returncode == 0, run.stderr[-3000:] + self.logs()[-3000:]
        return self.logs()

    def logs(self) -> str:
        """What the containers printed."""
        return "".join(path.read_text("utf-8", "replace") for path in sorted((self.folder / "logs").rglob("std*")))


def archive_of_driver(environments: Environments, folder: Path) -> Path:
    """An archive with the driver's environment, whose packages are those of this machine."""
    archive = folder / "driver.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(environments.python.parents[1], arcname=".")
    return archive


def _settings(folder: Path) -> dict[str, str]:
    """Settings of both processes; each listens on a port of its own."""
    with ExitStack() as stack:
        ports = [stack.enter_context(socket.socket()) for _ in range(7)]
        for port in ports:
            port.bind(("127.0.0.1", 0))
        free = iter([f"127.0.0.1:{port.getsockname()[1]}" for port in ports])
    manager = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
    scheduler = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
    return {f"yarn.resourcemanager.{name}": next(free) for name in manager} | {
        "yarn.resourcemanager.hostname": "127.0.0.1",
        "yarn.resourcemanager.scheduler.class": scheduler,
        "yarn.scheduler.minimum-allocation-mb": "256",
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.address": "127.0.0.1:0",
        "yarn.nodemanager.localizer.address": next(free),
        "yarn.nodemanager.webapp.address": next(free),
        "yarn.nodemanager.local-dirs": f"{folder}/local",
        "yarn.nodemanager.log-dirs": f"{folder}/logs",
        "yarn.nodemanager.delete.debug-delay-sec": "600",
        "yarn.nodemanager.resource.memory-mb": "8192",
        "yarn.nodemanager.resource.cpu-vcores": "4",
        "yarn.nodemanager.vmem-check-enabled": "false",
        # a disk that is nine tenths full counts as broken
        "yarn.nodemanager.disk-health-checker.enable": "false",
    }


@contextmanager
def yarn_cluster(folder: Path, environments: Environments) -> Iterator[YarnCluster]:
    """A YARN whose processes end with the block."""
    conf = folder / "conf"
    conf.mkdir(parents=True)
    write_conf(conf / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": f"{folder}/hadoop"})
    write_conf(conf / "yarn-site.xml", _settings(folder))
    jars = [server_jar(), *map(maven_jar, _BOUNCY_CASTLE), Path(dependencies()) / "pyspark" / "jars" / "*"]
    java = ["java", "-Xmx300m", "-cp", ":".join(map(str, (conf, *jars)))]
    others = {name: value for name, value in os.environ.items() if not name.startswith(("HADOOP_", "YARN_", "PYTHON", "PYSPARK", "SPARK"))}
    processes, logs = [], []
    for kind in ("resourcemanager.ResourceManager", "nodemanager.NodeManager"):
        logs.append(folder / f"{kind}.log")
        with logs[-1].open("wb") as log:
            call = [*java, f"org.apache.hadoop.yarn.server.{kind}"]
            processes.append(subprocess.Popen(call, cwd=folder, env=others, stdout=log, stderr=log))
    try:
        _await_tracker(conf, processes, logs)
        yield YarnCluster("yarn", folder, environments, variables={"HADOOP_CONF_DIR": str(conf)})
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)


def _await_tracker(conf: Path, processes: list[subprocess.Popen[bytes]], logs: list[Path]) -> None:
    """Wait until the resource manager takes applications; YARN itself waits for a node that comes later."""
    text = (conf / "yarn-site.xml").read_text("utf-8")
    port = int(text.partition("<name>yarn.resourcemanager.address</name><value>127.0.0.1:")[2].partition("<")[0])
    until = time.monotonic() + _START_SECONDS
    while True:
        told = "".join(log.read_text("utf-8", "replace")[-2000:] for log in logs)
        assert all(process.poll() is None for process in processes), told
        assert time.monotonic() < until, told
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
