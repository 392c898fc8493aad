"""The consume queue extension, compared with the broker's own files, and on bytes of every kind with the rules of ConsumeQueueExt.java."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_format.errors import CorruptStoreError
from store_format.files.mapped_files import MappedFile, load, max_offset, offset_to_file_name, truncate_dirty_files
from store_format.queue import consume_queue as cq
from store_format.queue import consume_queue_ext as ext
from tests.makers.records import LONGS
from tests.runs.sampling import examples
from tests.truth.golden import recovery

FILE_SIZE = 4096
Files = tuple[MappedFile, ...]
Read = Callable[[MappedFile], np.ndarray]


def test_addresses_are_what_the_broker_recorded() -> None:
    assert [ext.address_of(0), ext.address_of(34)] == [-9223372036854775808, -9223372036854775774]
    assert [ext.is_ext_address(code) for code in (-(2**63), -2147483649, -2147483648, 0, 7)] == [True, True, False, False, False]
    assert ext.offset_of(-9223372036854774448) == 1360


def opened(folder: Path) -> tuple[Files, Read]:
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    content = {path.name: np.fromfile(path, np.uint8) for path in paths}
    size = paths[0].stat().st_size if paths else FILE_SIZE
    return load(str(folder), [(path.name, path.stat().st_size, 0) for path in paths], size), lambda file: content[file.name]


def loaded(store: Path, topic: str, queue_id: int, log_min: int) -> Files:
    """The extension of a queue after load, as ConsumeQueue.recover and correctMinOffset call it."""
    files, read = opened(store / "consumequeue_ext" / topic / str(queue_id))
    queue_files, read_queue = opened(store / "consumequeue" / topic / str(queue_id))
    queue = cq.recover(queue_files, lambda file: cq.units_of(read_queue(file)))
    units = [cq.units_of(read_queue(file)[: file.wrote]) for file in queue.files]
    address = ext.NO_ADDRESS
    for part in units[-cq.RECOVERED_FILES :]:
        address = ext.last_address(part["tagsCode"], address)
    files = ext.truncate_by_max_address(ext.recover(files, read), address, read)
    alive = units[0]["tagsCode"][units[0]["physicOffset"] >= log_min].tolist() if units else []
    return ext.truncate_by_min_address(files, alive[0] if alive else ext.NO_ADDRESS)


@pytest.mark.parametrize("name", ["ext", "torn-ext-missing"])
def test_extensions_are_loaded_as_the_broker_loads_them(stores: Path, name: str) -> None:
    state = recovery(name)["afterLoad"]
    assert len(state["queues"]) > 20
    for queue in state["queues"]:
        files = loaded(stores / name, queue["topic"], queue["queueId"], state["minPhyOffset"])
        found = {
            "extFiles": [file.name for file in files],
            "extMinAddress": ext.address_of(files[0].from_offset if files else 0),
            "extMaxAddress": ext.address_of(max_offset(files)),
        }
        assert found == {field: queue[field] for field in found}


def test_the_units_of_each_queue_make_the_files_that_the_broker_made(stores: Path) -> None:
    several = 0
    for folder in sorted((stores / "ext" / "consumequeue_ext").glob("*/*")):
        files, read = opened(folder)
        queue_files, read_queue = opened(stores / "ext" / "consumequeue" / folder.parent.name / folder.name)
        writer = ext.ExtWriter(file_size=FILE_SIZE)
        for file in queue_files:
            for unit in cq.units_of(read_queue(file)):
                if unit["size"] > 0 and ext.is_ext_address(int(unit["tagsCode"])):
                    stored = ext.get(files, int(unit["tagsCode"]), read)
                    assert stored is not None
                    assert writer.put(stored) == unit["tagsCode"]
        assert {name: content.tobytes() for name, content in writer.contents.items()} == {file.name: read(file).tobytes() for file in files}
        several += len(files) > 1
    assert several


UNITS = st.builds(
    ext.ExtUnit, tags_code=LONGS, msg_store_time=LONGS, bit_map=st.none() | st.binary(min_size=1, max_size=60) | st.just(bytes(14))
)


@given(UNITS, st.binary(max_size=9))
def test_units_go_round(unit: ext.ExtUnit, rest: bytes) -> None:
    raw = ext.encode_unit(unit)
    read = ext.decode_unit(np.frombuffer(raw + rest, np.uint8))
    assert read is not None
    assert (read.tags_code, read.msg_store_time, read.bit_map) == (unit.tags_code, unit.msg_store_time, unit.bit_map)
    assert read.size == len(raw) == 20 + len(unit.bit_map or b"")


class UnderflowError(Exception):
    """java.nio.BufferUnderflowException."""


def java_read(raw: bytes) -> tuple[int, int, int, bytes | None] | None:
    """CqExtUnit.read, field by field."""
    at = 0

    def take(form: str) -> int:
        nonlocal at
        if at + struct.calcsize(form) > len(raw):
            raise UnderflowError
        (value,) = struct.unpack_from(form, raw, at)
        at += struct.calcsize(form)
        return int(value)

    if len(raw) < 2:
        return None
    size = take(">h")
    if size < 1:
        return None
    tags_code, time, length = take(">q"), take(">q"), take(">h")
    if length < 1:
        return size, tags_code, time, None
    if at + length > len(raw):
        raise UnderflowError
    return size, tags_code, time, raw[at : at + length]


def our_read(raw: bytes) -> tuple[int, int, int, bytes | None] | None:
    unit = ext.decode_unit(np.frombuffer(raw, np.uint8))
    return None if unit is None else (unit.size, unit.tags_code, unit.msg_store_time, unit.bit_map)


def outcome(read: Callable[[bytes], Any], raw: bytes) -> Any:
    try:
        return read(raw)
    except (UnderflowError, ext.UnitUnderflowError):
        return "underflow"


@given(UNITS)
def test_a_unit_cut_at_every_byte_is_read_as_java_reads_it(unit: ext.ExtUnit) -> None:
    raw = ext.encode_unit(unit)
    for cut in range(len(raw) + 1):
        assert outcome(our_read, raw[:cut]) == outcome(java_read, raw[:cut])


@given(st.binary(max_size=50))
def test_any_bytes_are_read_as_java_reads_them(raw: bytes) -> None:
    assert outcome(our_read, raw) == outcome(java_read, raw)


def java_recover(contents: list[bytes]) -> tuple[int, int] | None:
    """ConsumeQueueExt.recover: the number of the last file and its used bytes; None if it throws."""
    at = 0
    for raw in contents:
        at = 0
        while True:
            if at + 2 > len(raw):
                return None
            (size,) = struct.unpack_from(">h", raw, at)
            if size <= 0:
                break
            at += size
            if at > len(raw):
                return None
    return len(contents) - 1, at


SIZES = st.lists(st.sampled_from([20, 34, 30, 0, -1, 5, 200]), max_size=8)


@settings(max_examples=examples(300))
@given(st.lists(SIZES, min_size=1, max_size=3))
def test_the_end_is_where_java_finds_it(sizes: list[list[int]]) -> None:
    contents = []
    for units in sizes:
        raw = b"".join(struct.pack(">h", size) + bytes(max(size - 2, 0)) for size in units)
        contents.append(raw[:120].ljust(120, b"\0"))
    files = load("q", [(offset_to_file_name(120 * i), 120, 0) for i in range(len(contents))], 120)

    def read(file: MappedFile) -> np.ndarray:
        return np.frombuffer(contents[file.from_offset // 120], np.uint8)

    expected = java_recover(contents)
    if expected is None:
        with pytest.raises(CorruptStoreError, match="run over its end"):
            ext.recover(files, read)
    else:
        assert ext.recover(files, read) == truncate_dirty_files(files, expected[0] * 120 + expected[1])


def written(count: int, bit_map: bytes = bytes(14), file_size: int = 120) -> tuple[ext.ExtWriter, list[int], Read]:
    writer = ext.ExtWriter(file_size=file_size)
    addresses = [writer.put(ext.ExtUnit(tags_code=i, msg_store_time=i, bit_map=bit_map)) for i in range(count)]
    return writer, addresses, lambda file: writer.contents[file.name]


def test_a_unit_goes_to_the_next_file_unless_four_bytes_stay_free() -> None:
    writer, addresses, _ = written(4)
    assert [ext.offset_of(address) for address in addresses] == [0, 34, 68, 120]
    first = writer.contents[writer.files[0].name]
    assert first[102:104].tolist() == [0xFF, 0xFF]
    assert not first[104:].any()
    assert [ext.offset_of(address) for address in written(4, file_size=106)[1]] == [0, 34, 68, 106]
    assert [ext.offset_of(address) for address in written(4, file_size=105)[1]] == [0, 34, 105, 139]


def test_a_unit_that_fits_no_file_is_not_stored() -> None:
    assert written(2, file_size=37)[1] == [ext.NO_ADDRESS] * 2
    assert written(1, bit_map=bytes(32748), file_size=70_000)[1] == [ext.NO_ADDRESS]
    assert written(1, bit_map=bytes(32747), file_size=70_000)[1] == [ext.address_of(0)]


def test_units_are_found_by_their_addresses_only() -> None:
    writer, addresses, read = written(4)
    for number, address in enumerate(addresses):
        unit = ext.get(writer.files, address, read)
        assert unit is not None
        assert unit.tags_code == number
    for other in (7, -1, ext.address_of(154), ext.address_of(102), ext.address_of(10_000)):
        assert ext.get(writer.files, other, read) is None
    # address 0 falls back to the first file
    unit = ext.get(writer.files[1:], ext.address_of(0), read)
    assert unit is not None
    assert unit.tags_code == 3


def test_truncating_keeps_the_unit_at_the_greatest_address() -> None:
    writer, addresses, read = written(4)
    assert max_offset(ext.truncate_by_max_address(writer.files, addresses[1], read)) == 68
    assert max_offset(ext.truncate_by_max_address(writer.files, addresses[3], read)) == 154
    assert ext.truncate_by_max_address(writer.files, ext.NO_ADDRESS, read) == tuple(writer.files)
    assert ext.truncate_by_max_address(writer.files, ext.address_of(5000), read) == tuple(writer.files)


def test_truncating_deletes_files_that_end_before_the_least_address() -> None:
    writer, _, _ = written(8)
    assert [file.from_offset for file in writer.files] == [0, 120, 240]
    for offset, starts in ((0, [0, 120, 240]), (120, [0, 120, 240]), (121, [120, 240]), (240, [120, 240]), (241, [240])):
        assert [file.from_offset for file in ext.truncate_by_min_address(writer.files, ext.address_of(offset))] == starts
    assert ext.truncate_by_min_address(writer.files, ext.NO_ADDRESS) == tuple(writer.files)


def test_the_last_address_is_looked_for_among_hashes() -> None:
    codes = np.array([5, ext.address_of(0), -(2**31), ext.address_of(34), 7], ">i8")
    assert ext.last_address(codes) == ext.address_of(34)
    assert ext.last_address(codes[:1]) == ext.NO_ADDRESS
    assert ext.last_address(codes[2:3], ext.address_of(68)) == ext.address_of(68)
