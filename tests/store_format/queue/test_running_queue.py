"""A queue of a running broker: its last offset, and its extension after the files that ConsumeQueue.recover reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from store_format.big_endian import Bytes
from store_format.files.changed_files import ChangedFiles
from store_format.files.files import FilePath
from store_format.files.mapped_files import MappedFile, offset_to_file_name
from store_format.queue import consume_queue_ext as ext
from store_format.queue.consume_queue import encode_units
from store_format.queue.extension_dispatch import Extension
from store_format.queue.running_queue import Queue
from tests.makers.stored_bytes import StoredBytes

A_FILE, EXT_FILE = 2, 400  # entries, bytes
UNIT = 20  # bytes of a unit without a bit map


def files_of(count: int, size: int) -> tuple[MappedFile, ...]:
    starts = range(0, count * size, size)
    return tuple(MappedFile(name=offset_to_file_name(at), from_offset=at, length=size, wrote=size) for at in starts)


# entries in use of five files of two; the unit of entry n is the n-th; up to which unit the extension is in use
@pytest.mark.parametrize(
    ("valid", "used"),
    [
        ([2, 2, 2, 2, 1], 9),
        ([2, 2, 2, 1, 0], 7),
        ([2, 2, 2, 0, 0], 6),
        ([2, 2, 1, 0, 0], 5),
        # the first of the three files that are looked at has no entry: no address is seen, and the extension is cut by none
        ([2, 2, 0, 0, 0], 10),
    ],
)
def test_the_extension_is_cut_behind_the_last_address_that_recover_sees(valid: list[int], used: int) -> None:
    contents: dict[FilePath, Bytes] = {}
    for number, count in enumerate(valid):
        entries = [number * A_FILE + at for at in range(count)]
        raw = encode_units([100 * one for one in entries], [100] * count, [ext.address_of(UNIT * one) for one in entries])
        contents["q", offset_to_file_name(number * 40)] = np.frombuffer(raw.ljust(40, b"\0"), np.uint8)
    units = b"".join(ext.encode_unit(ext.ExtUnit(tags_code=one, msg_store_time=one)) for one in range(10))
    contents["x", offset_to_file_name(0)] = np.frombuffer(units.ljust(EXT_FILE, b"\0"), np.uint8)
    extension = Extension(folder=("x",), file_size=EXT_FILE, files=files_of(1, EXT_FILE))
    queue = Queue(topic="T", queue_id=0, folder=("q",), file_size=40, files=files_of(5, 40), extension=extension)
    queue.recover(ChangedFiles(StoredBytes(lambda path: contents[path])))
    assert [file.wrote for file in extension.files] == [used * UNIT]


def test_the_last_offset_of_an_entry_at_the_greatest_offset_wraps() -> None:
    """4.9.3 and 4.9.8 gave this offset for such a queue, whose file was damaged."""
    raw = encode_units([12_574, 2**63 - 1], [554, 554], [0, 0]).ljust(60, b"\0")
    queue = Queue(topic="T", queue_id=0, folder=("q",), file_size=60, files=(replace(files_of(1, 60)[0], wrote=40),))
    assert queue.last_offset(ChangedFiles(StoredBytes(lambda _: np.frombuffer(raw, np.uint8)))) == -9223372036854775255
