"""Opens HDFS as a file system of pyarrow, with hdfs-native; pyarrow's own way needs Hadoop's native library and a JVM in each process.

hdfs-native reads core-site.xml and hdfs-site.xml in the folder HADOOP_CONF_DIR, as Spark's JVM does. This module is imported only if a
path is on HDFS, because hdfs-native is an optional package.
"""

from __future__ import annotations

import datetime as dt
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs as pafs
from hdfs_native import Client
from hdfs_native.fsspec import HdfsFileSystem

from store_format.errors import UnusableInputError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# settings of the first request: without them, the client tries a missing name node for minutes
_FEW_TRIES = {
    "dfs.client.failover.max.attempts": "2",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "1000",
}


class HdfsError(UnusableInputError, ValueError):
    """HDFS cannot be reached."""


class _Files(HdfsFileSystem):
    """hdfs-native's file system with times, any characters in names, and a move that replaces a file, as pyarrow's file systems have."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def _convert_file_status(self, file_status: Any) -> dict[str, Any]:
        found: dict[str, Any] = super()._convert_file_status(file_status)
        return found | {"mtime": _EPOCH + dt.timedelta(milliseconds=file_status.modification_time)}

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        self.client.rename(path1, path2, overwrite=True)


def hdfs_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """HDFS as a file system of pyarrow, and the path of a URI hdfs://HOST:PORT/PATH inside it.

    Raises:
        HdfsError: HDFS does not answer.
    """
    authority = urlsplit(uri).netloc
    return _opened(authority), uri.removeprefix(f"hdfs://{authority}") or "/"


@cache
def _opened(authority: str) -> pafs.FileSystem:
    at = f"hdfs://{authority}"
    try:
        Client(at, _FEW_TRIES).get_file_info("/")
        # the authority unchanged: a name service keeps its case, an IPv6 address its brackets
        return pafs.PyFileSystem(pafs.FSSpecHandler(_Files(authority, skip_instance_cache=True)))
    except (OSError, RuntimeError, ValueError) as error:
        hint = "give hdfs://HOST:PORT, or a name service of hdfs-site.xml in HADOOP_CONF_DIR"
        raise HdfsError(f"{at}: expected a name node that answers, found {error}; {hint}") from error
