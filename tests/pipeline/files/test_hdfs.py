"""HDFS without a cluster: the calls of hdfs-native. tests/long/test_hdfs.py runs on a real HDFS."""

from __future__ import annotations

from pathlib import Path

import hdfs_native.fsspec
import pyarrow.fs as pafs
import pytest

from pipeline.files import hdfs, store_files
from pipeline.lake.committed import require_there
from pipeline.lake.lake_errors import LakeError


@pytest.mark.parametrize("authority", ["MyCluster", "user@name-node:8020", "[::1]:8020", "name-node", ""])
def test_the_authority_of_a_uri_is_passed_as_it_stands(authority: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Client:
        def __init__(self, url: str, _config: dict[str, str]) -> None:
            opened.append(url)

        def get_file_info(self, _path: str) -> None:
            pass

    monkeypatch.setattr(hdfs, "Client", Client)
    monkeypatch.setattr(hdfs_native.fsspec, "Client", Client)
    hdfs._opened.cache_clear()
    _, inside = hdfs.hdfs_filesystem(f"hdfs://{authority}/lake/a b")
    hdfs._opened.cache_clear()
    assert inside == "/lake/a b"
    assert opened == [f"hdfs://{authority}"] * 2


def test_a_lake_that_is_not_there_is_refused_before_an_engine_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A local folder stands for HDFS."""
    monkeypatch.setattr(store_files, "_hdfs", lambda path: (pafs.LocalFileSystem(), path.replace("hdfs://h", str(tmp_path))))
    with pytest.raises(LakeError, match=r"^hdfs://h/lake: expected a lake, found no table lake_version"):
        require_there("hdfs://h/lake")
    (tmp_path / "lake" / "lake_version" / "_delta_log").mkdir(parents=True)
    require_there("hdfs://h/lake")
