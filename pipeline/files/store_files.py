"""Opens the files of a store at a local path, or at a URI that pyarrow.fs knows.

Names inside a store are untrusted. A link out of the store, a link to a folder, and a name that is no plain file name are errors.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from pipeline.files.object_store import S3, is_s3, s3_filesystem, s3_path
from store_format.errors import ConfigFileError, NotAStoreError, StoreError
from store_format.files.files import Entry, FilePath
from store_format.store_paths import CONFIG, STORE_FOLDERS

if TYPE_CHECKING:  # these modules import numba, which takes 0.3 s
    from store_format.big_endian import Bytes
    from store_format.files.changed_files import FileChange

# most bytes of a file under config/, which is read into memory: some three million stored offsets; decoding takes 35 times the memory
CONFIG_BYTES_MAX = 64 << 20


def is_uri(path: str) -> bool:
    """Whether a path is a URI of a file system other than file://."""
    return "://" in path and not path.startswith("file://")


def is_local_or_s3(path: str) -> bool:
    """Whether a path is local or on S3: one process reads and writes files there without Spark."""
    return is_s3(path) or not is_uri(path)


def require_local(path: str) -> None:
    """Check that a path is local.

    Raises:
        StoreError: the path is a URI.
    """
    if is_uri(path):
        raise StoreError(path, "a local path", "a URI", hint="copy the file to this machine, or from it")


def local_path(path: str) -> str:
    """The absolute local path of a path or file:// URI; errors are those of `require_local`."""
    require_local(path)
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    return os.path.abspath(path)


def absolute_path(path: str) -> str:
    """The absolute form of a path, which does not depend on a process's working directory; a URI stays as it is, but S3 is s3://."""
    return s3_path(path) if is_uri(path) else local_path(path)


def filesystem_of(path: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or URI, and the path inside it.

    Raises:
        UnusableInputError, OSError: the file system cannot be reached.
        ArrowInvalid: the URI is not valid.
    """
    if is_s3(path):
        return s3_filesystem(), s3_path(path).removeprefix(S3)
    if path.startswith("hdfs://"):
        return _hdfs(path)
    filesystem: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(path) if is_uri(path) else (pafs.LocalFileSystem(), local_path(path))
    return filesystem


def file_size(path: str) -> int | None:
    """The bytes of the file at a path or URI; None if there is none."""
    filesystem, inside = filesystem_of(path)
    size: int | None = filesystem.get_file_info(inside).size
    return size


def _hdfs(path: str) -> tuple[pafs.FileSystem, str]:
    try:
        from pipeline.files.hdfs import hdfs_filesystem  # noqa: PLC0415 (its package is optional)
    except ImportError as error:
        hint = "install it on all machines: pip install 'pullsim[hdfs]'"
        raise StoreError(path, "the Python package hdfs-native, which opens hdfs://", f"none ({error})", hint=hint) from error
    return hdfs_filesystem(path)


def refuse_pipe(path: str) -> None:
    """Check that a local path is no pipe, socket or device: opening one waits without end, or gives its bytes only once.

    Raises:
        OSError: the path is one.
    """
    if not is_uri(path) and filesystem_of(path)[0].get_file_info(local_path(path)).type == pafs.FileType.Unknown:
        raise OSError(errno.ESPIPE, "a pipe or a device, whose bytes can be read only once; write them to a file first", path)


def _by_folder(changes: Mapping[FilePath, FileChange]) -> dict[FilePath, dict[str, int | None]]:
    """The changed names in each folder: the length of a changed file, None for a folder."""
    folders: dict[FilePath, dict[str, int | None]] = {}
    for path, change in changes.items():
        folders.setdefault(path[:-1], {})[path[-1]] = change.length
        for depth in range(1, len(path)):
            folders.setdefault(path[: depth - 1], {}).setdefault(path[depth - 1], None)
    return folders


def _data_of(file: int, start: int, stop: int) -> list[tuple[int, int]]:
    """The ranges [start, end) in [start, stop) of an open file that are no holes."""
    found: list[tuple[int, int]] = []
    at = start
    while at < stop:
        try:
            first = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is only a hole up to the file's end
                break
            raise
        at = os.lseek(file, first, os.SEEK_HOLE)
        if first < stop:
            found.append((first, min(at, stop)))
    return found


class StoreFiles:
    """The files under one store directory; can be sent to Spark's workers."""

    def __init__(self, root: str, changes: Mapping[FilePath, FileChange] | None = None, deleted: frozenset[FilePath] = frozenset()) -> None:
        """Open the store at `root`, with `changes` over its files and without the `deleted` ones; the store itself is only read."""
        self.root = absolute_path(root)
        self._changes = changes or {}
        self._deleted = deleted
        self._changed_folders = _by_folder(self._changes)

    def changed(self, changes: Mapping[FilePath, FileChange], deleted: frozenset[FilePath]) -> StoreFiles:
        """The same store with `changes` over its files and without the `deleted` ones."""
        return StoreFiles(self.root, changes, deleted)

    def path_of(self, *parts: str) -> str:
        """The path of a name below the store, for messages and for opening."""
        for part in parts:
            if part in {"", ".", ".."} or "/" in part or "\0" in part:
                raise StoreError(
                    self.root,
                    "plain file names",
                    repr(part),
                    hint="no store has a file of this name: a message has a damaged topic or queue, or this is no copy of a broker's store",
                )
        return "/".join((self.root.rstrip("/"), *parts))

    def folder(self, *parts: str) -> list[Entry]:
        """The entries of a folder, sorted by name; empty if the folder does not exist."""
        path = self.path_of(*parts)
        listed = self._remote_folder(path) if is_uri(self.root) else self._local_folder(path)
        found = {entry.name: entry for entry in listed if (*parts, entry.name) not in self._deleted}
        for name, length in self._changed_folders.get(parts, {}).items():
            known = found.get(name, Entry(name, length is None, 0, 0))
            found[name] = known if length is None else replace(known, length=length)
        return sorted(found.values(), key=lambda entry: entry.name)

    def _local_folder(self, path: str) -> Iterator[Entry]:
        try:
            with os.scandir(path) as names:
                for name in names:
                    yield self._local_entry(name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise StoreError(path, "a folder that can be read", str(error.strerror or error)) from error

    def _local_entry(self, name: os.DirEntry[str]) -> Entry:
        if name.is_symlink():
            self._check_link(name.path)
        try:
            name.name.encode()
            stat = name.stat()
        except UnicodeEncodeError as error:
            raise StoreError(os.path.dirname(name.path), "names in UTF-8", repr(os.fsencode(name.name))) from error
        except OSError as error:
            raise StoreError(name.path, "a file that can be read", str(error.strerror or error)) from error
        return Entry(name.name, name.is_dir(), stat.st_size, stat.st_mtime_ns // 1_000_000)

    def _check_link(self, path: str) -> None:
        """Refuse a link that leads out of the store, and a link to a folder: such links can form a circle, which has endless paths."""
        target = os.path.realpath(path)
        root = os.path.realpath(self.root)
        if os.path.commonpath((target, root)) != root:
            raise StoreError(path, "a file inside the store", f"a link to {target}", hint="copy the file into the store")
        if os.path.isdir(target):
            raise StoreError(path, "a file or a folder", f"a link to the folder {target}", hint="move the folder to the place of the link")

    @staticmethod
    def _remote_folder(path: str) -> Iterator[Entry]:
        filesystem, inside = filesystem_of(path)
        for info in filesystem.get_file_info(pafs.FileSelector(inside, allow_not_found=True)):
            mtime = int(info.mtime_ns // 1_000_000) if info.mtime_ns else 0
            yield Entry(info.base_name, info.type == pafs.FileType.Directory, info.size or 0, mtime)

    def content(self, *parts: str) -> Bytes:
        """All bytes of a file, read-only: mapped if it is local and unchanged, else in memory."""
        change = self._changes.get(parts)
        if change is None:
            return self._unchanged(*parts)
        return change.lay_over(np.empty(0, np.uint8) if change.is_new else self._unchanged(*parts), 0, change.length)

    def stored(self, path: FilePath) -> Bytes:
        """All bytes of a file, as `content` gives them."""
        return self.content(*path)

    def writable(self, path: FilePath) -> Bytes:
        """All bytes of a file, for changes in memory only; the file stays as it is."""
        content = self.content(*path)
        if not self.is_mapped(*path) or not len(content):
            return content.copy()
        return np.memmap(self.path_of(*path), np.uint8, mode="c").view(np.ndarray)

    def name_of(self, path: FilePath) -> str:
        """Path of a name below the store, as `path_of` gives it."""
        return self.path_of(*path)

    def entries(self, path: FilePath) -> list[Entry]:
        """The names in a folder, as `folder` gives them."""
        return self.folder(*path)

    def has(self, path: FilePath) -> bool:
        """Whether there is a file with this path."""
        return any(entry.name == path[-1] and not entry.is_folder for entry in self.folder(*path[:-1]))

    def is_mapped(self, *parts: str) -> bool:
        """Whether `content` maps a file and so uses no memory of its own."""
        return not is_uri(self.root) and parts not in self._changes

    def _unchanged(self, *parts: str) -> Bytes:
        path = self.path_of(*parts)
        try:
            if not is_uri(self.root):
                if os.path.getsize(path) == 0:
                    return np.frombuffer(b"", np.uint8)
                return np.memmap(path, np.uint8, mode="r").view(np.ndarray)
            filesystem, inside = filesystem_of(path)
            with filesystem.open_input_file(inside) as file:
                return np.frombuffer(file.read_buffer(), np.uint8)
        except OSError as error:
            hint = "driver and executors must both see the store"
            raise StoreError(path, "a file that can be read", str(error.strerror or error), hint=hint) from error

    def part(self, start: int, stop: int, *parts: str) -> Bytes:
        """Bytes [start, stop) of a file; the rest of the file is not read."""
        change = self._changes.get(parts)
        if change is not None:
            return change.lay_over(np.empty(0, np.uint8) if change.is_new else self._unchanged(*parts), start, stop)
        if not is_uri(self.root):
            return self._unchanged(*parts)[start:stop]
        path = self.path_of(*parts)
        try:
            filesystem, inside = filesystem_of(path)
            with filesystem.open_input_file(inside) as file:
                return np.frombuffer(file.read_at(stop - start, start), np.uint8)
        except OSError as error:
            raise StoreError(path, "a file that can be read", str(error.strerror or error)) from error

    def stretch(self, start: int, stop: int, length: int, *parts: str) -> Bytes:
        """The bytes of a file of `length` bytes, of which only [start, stop) may be used: the rest is not fetched and uses no memory."""
        if parts in self._changes or not is_uri(self.root):
            return self.content(*parts)
        content = np.zeros(length, np.uint8)
        content[start:stop] = self.part(start, stop, *parts)
        return content

    def written(self, start: int, stop: int, *parts: str) -> list[tuple[int, int]]:
        """The ranges in [start, stop) of a file that are no holes in the file system; all other bytes are zeros."""
        change = self._changes.get(parts)
        if is_uri(self.root) or not hasattr(os, "SEEK_DATA") or (change is not None and not change.is_new):
            return [(start, stop)]
        if change is not None:
            cut = ((max(at, start), min(at + len(data), stop)) for at, data in change.ranges)
            return [(first, last) for first, last in cut if first < last]
        path = self.path_of(*parts)
        try:
            with open(path, "rb", buffering=0) as file:
                return _data_of(file.fileno(), start, stop)
        except OSError as error:
            raise StoreError(path, "a file that can be read", str(error.strerror or error)) from error

    def head(self, length: int, *parts: str) -> bytes | None:
        """The first `length` bytes of a file, None if there is none; the rest of the file is not read."""
        return self.part(0, length, *parts).tobytes() if self.has(parts) else None

    def read_config(self, name: str) -> bytes | None:
        """The bytes of a file under config/, None if there is none.

        Raises:
            ConfigFileError: the file is longer than CONFIG_BYTES_MAX.
        """
        entry = next((entry for entry in self.folder(CONFIG) if entry.name == name and not entry.is_folder), None)
        if entry is None:
            return None
        if entry.length > CONFIG_BYTES_MAX:
            hint = "is this the broker's file? Replace or remove it"
            raise ConfigFileError(self.path_of(CONFIG, name), f"at most {CONFIG_BYTES_MAX:,} bytes", f"{entry.length:,} bytes", hint=hint)
        return self.part(0, entry.length, CONFIG, name).tobytes()

    def check_exists(self) -> None:
        """Raise NotAStoreError if the root is no folder."""
        if is_uri(self.root):
            try:
                filesystem, inside = filesystem_of(self.root)
                exists = filesystem.get_file_info(inside).type == pafs.FileType.Directory
            except (OSError, pa.ArrowInvalid) as error:
                raise NotAStoreError(self.root, "a URI that can be opened", str(error)) from error
        else:
            exists = os.path.isdir(self.root)
        if not exists:
            raise NotAStoreError(self.root, "the store directory of a broker", "no such directory")

    def check_store(self) -> None:
        """Raise NotAStoreError if the root is no folder, or has none of the folders of a store."""
        self.check_exists()
        if {entry.name for entry in self.folder()}.isdisjoint(STORE_FOLDERS):
            hint = "give the directory that storePathRootDir names"
            raise NotAStoreError(self.root, "a store with a folder commitlog", "none", hint=hint)
