"""Starts a real HDFS on loopback: a name node and a data node, each a process of its own, from Hadoop's jars.

`hadoop-client-minicluster` of Maven Central has the classes of both, and pyspark has the rest. Maven fetches the jar once.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from tests.runs.packaged import dependencies

_VERSION = "3.5.0"
_ARTIFACT = "org.apache.hadoop:hadoop-client-minicluster"
_FETCH_SECONDS, _START_SECONDS = 600, 120


@dataclass(frozen=True)
class HdfsServer:
    """A running HDFS.

    Attributes:
        uri: its URI, without a slash at the end.
        processes: name node and data node.
    """

    uri: str
    processes: tuple[subprocess.Popen[bytes], ...]

    def filesystem(self) -> pafs.FileSystem:
        from pipeline.files.store_files import filesystem_of

        return filesystem_of(f"{self.uri}/")[0]


def server_jar() -> Path:
    """The jar of Hadoop's servers."""
    return maven_jar(f"{_ARTIFACT}:{_VERSION}")


def maven_jar(artifact: str) -> Path:
    """The jar of `group:name:version`, fetched if it is missing. Skips the calling test if it cannot be fetched."""
    group, name, version = artifact.split(":")
    jar = Path.home() / ".m2" / "repository" / group.replace(".", "/") / name / version / f"{name}-{version}.jar"
    if not jar.exists():
        maven = shutil.which("mvn")
        if maven is None:
            pytest.skip(f"the jar {jar.name} is not here, and no Maven to fetch it with")
        call = [maven, "-q", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
        fetched = subprocess.run(call, capture_output=True, timeout=_FETCH_SECONDS, check=False)
        if fetched.returncode or not jar.exists():
            pytest.skip(f"the jar {jar.name} cannot be fetched: {fetched.stdout.decode()[-300:]}")
    return jar


@contextmanager
def hdfs_server(folder: Path) -> Iterator[HdfsServer]:
    """An HDFS that keeps its blocks in a new folder `folder`; it ends with the block."""
    conf = folder / "conf"
    conf.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"hdfs://127.0.0.1:{free.getsockname()[1]}"
    anywhere = ("namenode.http-address", "datanode.address", "datanode.http.address", "datanode.ipc.address")
    write_conf(conf / "core-site.xml", {"fs.defaultFS": uri})
    settings = {"replication": "1", "namenode.name.dir": f"{folder}/names", "datanode.data.dir": f"{folder}/blocks"}
    settings |= dict.fromkeys(anywhere, "127.0.0.1:0") | {"permissions.enabled": "false"}
    write_conf(conf / "hdfs-site.xml", {f"dfs.{name}": value for name, value in settings.items()})
    java = ["java", "-Xmx256m", "-cp", f"{conf}:{server_jar()}:{dependencies()}/pyspark/jars/*"]
    node = "org.apache.hadoop.hdfs.server"
    with (folder / "server.log").open("wb") as log:
        subprocess.run([*java, f"{node}.namenode.NameNode", "-format", "-nonInteractive"], stdout=log, stderr=log, check=True)
        calls = ([*java, f"{node}.{kind}"] for kind in ("namenode.NameNode", "datanode.DataNode"))
        server = HdfsServer(uri, tuple(subprocess.Popen(call, stdout=log, stderr=log) for call in calls))
    try:
        _await(server)
        yield server
    finally:
        for process in server.processes:
            process.terminate()
        for process in server.processes:
            process.wait(60)


def write_conf(path: Path, settings: Mapping[str, str]) -> None:
    """Write a file of Hadoop's settings."""
    lines = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    path.write_text(f"<configuration>{''.join(lines)}</configuration>", "utf-8")


def _await(server: HdfsServer) -> None:
    """Wait until a file can be written, which needs both nodes."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            with server.filesystem().open_output_stream("/begun") as file:
                file.write(b"x")
        except Exception:
            assert all(process.poll() is None for process in server.processes), "a node has ended"
            assert time.monotonic() < until, "HDFS does not answer"
            time.sleep(0.5)
        else:
            return


def environment() -> dict[str, str]:
    """This process's environment without settings of another Hadoop."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HADOOP_")}
