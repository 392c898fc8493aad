"""Units of the extension packed beside the entries: each is the one that ConsumeQueueExt.get finds, and unpacking gives it back."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from store_format.files.mapped_files import MappedFile, offset_to_file_name
from store_format.queue import consume_queue_ext as ext
from store_format.queue.packed_ext_units import NO_UNIT, UNDERFLOW, UNIT, UnitColumns, join_units, pack_units, unpack_units
from tests.makers.records import LONGS
from tests.runs.sampling import examples

FILE_SIZE = 200
UNITS = st.builds(
    ext.ExtUnit, tags_code=LONGS, msg_store_time=LONGS, bit_map=st.none() | st.binary(min_size=1, max_size=40) | st.just(bytes(14))
)
Unit = tuple[int, int, bytes] | int


@st.composite
def extensions(draw: st.DrawFn) -> tuple[list[MappedFile], dict[str, np.ndarray], list[int]]:
    """Files as the broker writes them, some bytes of them damaged; some addresses."""
    writer = ext.ExtWriter(file_size=FILE_SIZE)
    addresses = [writer.put(unit) for unit in draw(st.lists(UNITS, max_size=12))]
    contents = {name: content.copy() for name, content in writer.contents.items()}
    for content in contents.values():
        for _ in range(draw(st.integers(0, 2))):
            content[draw(st.integers(0, FILE_SIZE - 1))] = draw(st.sampled_from([0, 1, 0x7F, 0xFF]))
    missing = draw(st.sets(st.sampled_from(sorted(contents)), max_size=1)) if contents else set()
    files = [file for file in writer.files if file.name not in missing]
    addresses += [ext.address_of(draw(st.integers(0, 3 * FILE_SIZE))) for _ in range(4)]
    addresses += draw(st.lists(st.integers(-(2**31), 2**31 - 1) | LONGS, max_size=4))
    return files, contents, draw(st.permutations(addresses))


def one(files: list[MappedFile], contents: dict[str, np.ndarray], address: int) -> Unit:
    try:
        unit = ext.get(files, address, lambda file: contents[file.name])
    except ext.UnitUnderflowError:
        return UNDERFLOW
    return NO_UNIT if unit is None else (unit.tags_code, unit.msg_store_time, unit.bit_map or b"")


def listed(units: UnitColumns) -> list[Unit]:
    found: list[Unit] = []
    for row, state in enumerate(units.states.tolist()):
        at, length = int(units.bit_maps.starts[row]), int(units.bit_maps.lengths[row])
        bit_map = units.buffer[at : at + length].tobytes()
        found.append((int(units.tags_codes[row]), int(units.msg_store_times[row]), bit_map) if state == UNIT else state)
    return found


@given(extensions())
@settings(max_examples=examples(300))
def test_units_are_those_that_the_broker_finds(extension: tuple[list[MappedFile], dict[str, np.ndarray], list[int]]) -> None:
    files, contents, addresses = extension
    codes = np.array(addresses, np.int64)
    expected = [one(files, contents, address) for address in addresses]
    packed = pack_units(files, lambda file: contents[file.name], codes)
    if packed is None:
        assert expected == [NO_UNIT] * len(addresses)
        return
    assert listed(unpack_units(packed, len(addresses))) == expected
    cut = len(addresses) // 2
    joined = join_units([(packed, len(addresses), cut), (None, 3, 2), (packed, len(addresses), len(addresses))])
    assert joined is not None
    assert listed(joined) == [*expected[:cut], NO_UNIT, NO_UNIT, *expected]
    assert join_units([(None, 3, 3), (None, 1, 1)]) is None


def test_a_unit_that_is_cut_off_is_told_from_one_that_is_not_there() -> None:
    raw = np.zeros(FILE_SIZE, np.uint8)
    unit = ext.encode_unit(ext.ExtUnit(tags_code=7, msg_store_time=8, bit_map=b"\x01\x02"))
    raw[: len(unit)] = np.frombuffer(unit, np.uint8)
    codes = np.array([ext.address_of(0)], np.int64)
    states = {}
    for wrote in range(len(unit) + 1):
        file = MappedFile(name=offset_to_file_name(0), from_offset=0, length=FILE_SIZE, wrote=wrote)
        packed = pack_units([file], lambda _: raw, codes)
        states[wrote] = NO_UNIT if packed is None else int(unpack_units(packed, 1).states[0])
    assert states == {0: NO_UNIT, 1: NO_UNIT} | dict.fromkeys(range(2, 22), UNDERFLOW) | {22: UNIT}
