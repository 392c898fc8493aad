"""YARN, of a resource manager and a node manager in processes of their own: what commands leave there is what they leave on one machine.

    ./run long -k test_yarn

Executors have an archive with the wheel, unpacked by YARN as `environment` in the folder of their container; the checkout is on no path
of theirs. In cluster mode the driver's archive has the wheel, and uses this machine's folder of the other packages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.main import run as run_here
from tests.runs.left_rows import left_rows
from tests.runs.spark_cluster import environments
from tests.runs.yarn_cluster import YarnCluster, archive_of_driver, yarn_cluster

pytestmark = pytest.mark.spark

MESSAGES, LINES = 4_000, 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    folder = tmp_path_factory.mktemp("environments")
    with yarn_cluster(tmp_path_factory.mktemp("yarn") / "processes", environments(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, requests, and what the driver alone makes of them on this machine."""
    folder = tmp_path_factory.mktemp("here")
    assert run_here(["generate", str(folder / "store"), "--messages", str(MESSAGES)]) == 0
    queues = [(path.parent.name, int(path.name)) for path in sorted((folder / "store").glob("consumequeue/*/*"))]
    asked = ({"group": "g", "topic": topic, "queueId": queue, "maxMsgNums": 32, "filter": None} for topic, queue in queues)
    lines = [json.dumps({"request": one | {"offset": offset}}) for one in asked for offset in range(0, LINES, 7)]
    (folder / "pulls.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    for command in commands(folder, folder):
        assert run_here(command) == 0
    return folder


def commands(here: Path, folder: Path) -> list[list[str]]:
    """An import, a replay and an export that write to a folder."""
    lake = ["--lake", str(folder / "lake")]
    replay = ["replay", *lake, "--requests", str(here / "pulls.jsonl"), "--out", str(folder / "answers.jsonl")]
    return [["import", str(here / "store"), *lake, "--broker-name", "b"], replay, ["export", *lake, str(folder / "exported")]]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_commands_in_client_mode_leave_what_they_leave_on_one_machine(cluster: YarnCluster, here: Path, tmp_path: Path) -> None:
    for command in commands(here, tmp_path):
        cluster.run(*command)
    assert left_rows(tmp_path / "lake") == left_rows(here / "lake")
    assert (tmp_path / "answers.jsonl").read_bytes() == (here / "answers.jsonl").read_bytes()
    assert files_of(tmp_path / "exported") == files_of(here / "exported")


def test_a_replay_in_cluster_mode_gives_the_same_answers(cluster: YarnCluster, here: Path, tmp_path: Path) -> None:
    archive = archive_of_driver(cluster.environments, tmp_path)
    _, replay, _ = commands(here, here)
    replay[-1] = str(tmp_path / "answers.jsonl")
    assert "answers" in cluster.run_in_cluster(archive, *replay)
    assert (tmp_path / "answers.jsonl").read_bytes() == (here / "answers.jsonl").read_bytes()
