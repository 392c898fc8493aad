"""Files on a real HDFS, and a name node that does not answer.

    ./run long -k test_hdfs

The servers are Hadoop's own; `tests/runs/hdfs_server.py` starts them.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import time
from collections.abc import Iterator

import pyarrow.fs as pafs
import pytest

from tests.runs.hdfs_server import HdfsServer, environment, hdfs_server
from tests.truth.places import PROJECT


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs") / "server") as running:
        yield running


def test_files_are_as_pyarrow_gives_those_of_other_file_systems(server: HdfsServer) -> None:
    files, begun = server.filesystem(), dt.datetime.now(dt.UTC)
    files.create_dir("/a/%RETRY%g#1?x")
    path = "/a/%RETRY%g#1?x/ü"
    with files.open_output_stream(path) as out:
        out.write(b"0123456789" * 1000)
    found = files.get_file_info(path)
    assert (found.type, found.size) == (pafs.FileType.File, 10_000)
    assert abs(found.mtime - begun) < dt.timedelta(minutes=5)
    assert [info.path for info in files.get_file_info(pafs.FileSelector("/a/%RETRY%g#1?x"))] == [path]
    with files.open_input_file(path) as opened:
        assert opened.read_at(5, 9_995) == b"56789"
        assert opened.size() == 10_000
    with files.open_output_stream("/a/other") as out:
        out.write(b"other")
    files.move("/a/other", path)  # replaces it
    with files.open_input_stream(path) as stream:
        assert stream.read() == b"other"
    assert files.get_file_info("/a/other").type == pafs.FileType.NotFound
    assert files.get_file_info(pafs.FileSelector("/none", allow_not_found=True)) == []
    with pytest.raises(FileNotFoundError):
        files.open_input_file("/none")
    files.delete_dir("/a")
    assert files.get_file_info("/a").type == pafs.FileType.NotFound


CALLS = {
    "import": ("import", "hdfs://127.0.0.1:1/store", "--lake", "lake"),
    "lake": ("import", ".", "--lake", "hdfs://127.0.0.1:1/lake"),
    "sql": ("sql", "--lake", "hdfs://127.0.0.1:1/lake", "SELECT 1"),
    "requests": ("replay", "--lake", ".", "--requests", "hdfs://127.0.0.1:1/x.jsonl"),
    "service": ("lag", "--lake", "hdfs://nobody/lake"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_name_node_that_does_not_answer_is_refused_at_once_in_one_sentence(call: str) -> None:
    begun = time.monotonic()
    command = [sys.executable, "-m", "pipeline.main", *CALLS[call]]
    run = subprocess.run(command, cwd=PROJECT, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout, len(run.stderr.splitlines())) == (2, "", 1), run.stderr
    assert "expected a name node that answers, found" in run.stderr
    assert time.monotonic() - begun < 30  # most of it is Python's start
