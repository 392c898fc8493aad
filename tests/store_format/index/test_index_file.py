"""Index files, compared byte by byte with the broker's own, and with its classes as tests/models/java_index.py transcribes them."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from store_format.errors import CorruptStoreError, StoreError
from store_format.index.index_file import DEFAULT_INDEX_SIZES, INDEX_ENTRY, IndexFile, IndexSizes, index_keys, indexed_messages, key_hashes
from store_format.index.index_search import select_phy_offsets
from store_format.index.index_service import IndexService, index_file_name, is_index_file_name, is_time_matched, load_index, query_offset
from store_format.index.index_sizes import infer_index_sizes
from store_format.layout import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from store_format.log.commit_log import walk
from store_format.record.message import decode, decode_text
from tests.models.java_index import GoesRoundError, JavaIndexFile, JavaIndexService, hash_of
from tests.runs.sampling import examples, slow_proof
from tests.truth.golden import golden_lines, meta_of, needs_golden
from tests.truth.places import PROJECT, TESTS

Dispatched = tuple[int, int, list[str]]


def test_keys_hash_as_the_broker_hashes_them() -> None:
    rows = [line for line in golden_lines("broker", "codec.jsonl") if line["kind"] == "indexKey"]
    assert len(rows) > 3
    assert key_hashes([row["joined"] for row in rows]).tolist() == [row["hash"] for row in rows]
    assert [index_keys(row["topic"], {"UNIQ_KEY": row["key"]}, 0) for row in rows] == [[row["joined"]] for row in rows]


@given(st.lists(st.text(st.characters(), max_size=12), max_size=5))
@example(["polygenelubricants", "", "🚀", "\ud800"])
def test_any_keys_hash_as_java_does(keys: list[str]) -> None:
    assert key_hashes(keys).tolist() == [hash_of(key) for key in keys]


@pytest.mark.parametrize(
    ("properties", "sys_flag", "keys"),
    [
        ({"UNIQ_KEY": "u", "KEYS": "b a"}, 0, ["T#u", "T#b", "T#a"]),
        ({"KEYS": " a  b "}, 0, ["T#a", "T#b"]),
        ({"KEYS": "a\tb"}, 0, ["T#a\tb"]),
        ({"UNIQ_KEY": "u"}, TRANSACTION_PREPARED_TYPE, ["T#u"]),
        ({"UNIQ_KEY": "u"}, TRANSACTION_COMMIT_TYPE, ["T#u"]),
        ({"UNIQ_KEY": "u"}, TRANSACTION_ROLLBACK_TYPE, []),
        ({"UNIQ_KEY": "u"}, TRANSACTION_ROLLBACK_TYPE | 0x31, []),
        ({"TAGS": "x"}, 0, []),
    ],
)
def test_a_message_is_indexed_by_its_unique_key_and_its_keys(properties: dict[str, str], sys_flag: int, keys: list[str]) -> None:
    assert index_keys("T", properties, sys_flag) == keys


def index_entries(store: Path) -> list[tuple[str, np.ndarray]]:
    folder = store / "index"
    return [(path.name, np.fromfile(path, np.uint8)) for path in sorted(folder.iterdir())] if folder.is_dir() else []


def sizes_of(store: Path) -> IndexSizes:
    config = meta_of(store)["config"]
    return IndexSizes(hash_slot_num=int(config["maxHashSlotNum"]), index_num=int(config["maxIndexNum"]))


def dispatched(store: Path) -> list[Dispatched]:
    found = []
    for path in sorted((store / "commitlog").iterdir()):
        raw = np.fromfile(path, np.uint8)
        for at in walk(raw, 0, len(raw), 100_000).positions.tolist():
            size = int.from_bytes(raw[at : at + 4].tobytes(), "big")
            message = decode(raw[at : at + size].tobytes(), uncompress_body=False)
            assert message is not None
            keys = index_keys(decode_text(message.topic), message.properties_map(), message.sys_flag)
            found.append((message.physic_offset, message.store_timestamp, keys))
    return found


@pytest.mark.parametrize("name", ["basic", "small", "window", "ext"])
def test_all_messages_of_a_store_make_the_index_files_that_the_broker_made(stores: Path, name: str) -> None:
    store = stores / name
    service = IndexService(sizes=sizes_of(store))
    service.build_index(indexed_messages(dispatched(store)))
    recorded = index_entries(store)
    assert [file.content.tobytes() for file in service.files] == [content.tobytes() for _, content in recorded]
    ends = [file.header.end_timestamp for file in service.files]
    assert service.index_msg_timestamp == (ends[-2] if len(ends) > 1 else None)


@pytest.mark.parametrize("name", ["basic", "cleaned", "holes", "preblank0", "preblank1", "ext", "small"])
def test_each_index_file_follows_from_the_one_before(stores: Path, name: str) -> None:
    store, compared = stores / name, 0
    sizes, recorded, messages = sizes_of(store), index_entries(store), dispatched(store)
    logged = {offset for offset, _, _ in messages}
    for i in range(1, len(recorded)):
        service = IndexService(sizes=sizes, files=list(load_index(recorded[:i], sizes, writable=True).files))
        end = service.files[-1].header.end_phy_offset
        if not set(indexed_offsets(recorded[i][1], sizes)) - {0, end} <= logged:
            continue  # those messages were cleaned
        put = indexed_offsets(recorded[i - 1][1], sizes).count(end)  # keys of the message that filled the file
        rest = [(offset, stamp, keys[put:] if offset == end else keys) for offset, stamp, keys in messages if offset >= end]
        service.build_index(indexed_messages([message for message in rest if message[0] > end or message[2]]))
        assert service.files[i].content.tobytes() == recorded[i][1].tobytes()
        compared += 1
    assert compared


def indexed_offsets(content: np.ndarray, sizes: IndexSizes) -> list[int]:
    offsets: list[int] = content[40 + 4 * sizes.hash_slot_num :].view(INDEX_ENTRY)["phyOffset"].tolist()
    return offsets


@needs_golden
def test_sizes_are_told_from_the_files_of_every_store(stores: Path) -> None:
    told = {}
    for meta in stores.glob("*.meta.json"):
        store = meta.with_name(meta.name.removesuffix(".meta.json"))
        if entries := index_entries(store):
            told[store.name] = (infer_index_sizes(entries), sizes_of(store))
    assert len(told) > 30
    assert {name: both for name, both in told.items() if both[0] != both[1]} == {}


KEYS = st.sampled_from(["a", "b", "c", "dd", "polygenelubricants", "Aa", "BB", ""])
STAMPS = st.one_of(
    st.integers(0, 20_000),
    st.integers(1_651_363_764_987, 1_651_363_800_000),
    st.sampled_from([-(2**63), -1, 0, 2**31 * 1000, 2**31 * 1000 + 999, 2**63 - 1]),
)
OFFSETS = st.one_of(st.integers(0, 60), st.sampled_from([-(2**63), -1, 2**63 - 1]))
MESSAGES = st.lists(st.tuples(OFFSETS, STAMPS, st.lists(KEYS, max_size=5)), max_size=25)
BOUNDS = st.one_of(STAMPS, st.sampled_from([0, 2**63 - 1]))


@settings(max_examples=examples(400))
@given(
    MESSAGES,
    st.integers(1, 4),
    st.integers(2, 6),
    st.integers(0, 25),
    st.lists(st.tuples(KEYS, st.integers(0, 9), BOUNDS, BOUNDS), max_size=6),
)
def test_any_messages_make_the_files_that_java_makes(
    messages: list[Dispatched], slots: int, entries: int, split: int, queries: list[tuple[str, int, int, int]]
) -> None:
    java = JavaIndexService(slots, entries)
    ours = IndexService(sizes=IndexSizes(hash_slot_num=slots, index_num=entries))
    for offset, stamp, keys in messages:
        java.build_index(offset, stamp, [f"T#{key}" for key in keys])
    texts = [(offset, stamp, [f"T#{key}" for key in keys]) for offset, stamp, keys in messages]
    for part in (texts[:split], texts[split:]):
        ours.build_index(indexed_messages(part))
    assert [file.content.tobytes() for file in ours.files] == [bytes(file.raw) for file in java.files]
    assert ours.index_msg_timestamp == java.checkpoint
    assert len({file.name for file in ours.files}) == len(ours.files)
    for key, max_num, begin, end in queries:
        found = query_offset(ours.files, "T", key, max_num, begin, end)
        expected = java.query_offset("T", key, max_num, begin, end)
        assert (list(found.phy_offsets), found.index_last_update_timestamp, found.index_last_update_phyoffset) == expected


@st.composite
def damaged_files(draw: st.DrawFn) -> JavaIndexFile:
    """An index file of a few entries, with some bytes replaced by any others."""
    slots, entries = draw(st.integers(1, 4)), draw(st.integers(2, 12))
    file = JavaIndexFile.created(slots, entries, 0, 0)
    for key in draw(st.lists(KEYS, max_size=12)):
        file.put_key(f"T#{key}", draw(OFFSETS), draw(STAMPS))
    for at, value in draw(st.lists(st.tuples(st.integers(0, len(file.raw) // 4 - 1), DAMAGE), max_size=5)):
        file.put_int(at * 4, value)
    return file


DAMAGE = st.one_of(st.integers(-1, 12), st.sampled_from([2**31 - 1, -(2**31), 107_374_183, 214_748_365, 100]))


@settings(max_examples=examples(600))
@given(damaged_files(), KEYS, st.integers(0, 9), BOUNDS, BOUNDS)
def test_damaged_files_are_searched_as_java_searches_them(file: JavaIndexFile, key: str, max_num: int, begin: int, end: int) -> None:
    sizes = IndexSizes(hash_slot_num=file.slots, index_num=file.entries)
    ours = IndexFile("0", np.frombuffer(bytes(file.raw), np.uint8), sizes)
    found, expected = np.empty(max_num, np.int64), list[int]()
    try:
        file.select(expected, f"T#{key}", max_num, begin, end)
    except GoesRoundError:
        with pytest.raises(CorruptStoreError, match="goes round"):
            select_phy_offsets(ours, hash_of(f"T#{key}"), begin, end, found, 0)
        return
    count = select_phy_offsets(ours, hash_of(f"T#{key}"), begin, end, found, 0)
    assert found[:count].tolist() == expected
    assert is_time_matched(ours.header, begin, end) == file.is_time_matched(begin, end)


@given(damaged_files(), st.lists(st.tuples(st.integers(0, 99), STAMPS, st.lists(KEYS, max_size=3)), max_size=9))
def test_damaged_files_grow_as_java_lets_them_grow(file: JavaIndexFile, messages: list[Dispatched]) -> None:
    sizes = IndexSizes(hash_slot_num=file.slots, index_num=file.entries)
    loaded = load_index([("1", np.frombuffer(bytes(file.raw), np.uint8))], sizes, writable=True)
    ours, java = IndexService(sizes=sizes, files=list(loaded.files)), JavaIndexService(file.slots, file.entries, [file])
    for offset, stamp, keys in messages:
        java.build_index(offset, stamp, keys)
    ours.build_index(indexed_messages(messages))
    assert [one.content.tobytes() for one in ours.files] == [bytes(one.raw) for one in java.files]


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.integers(0, 9) | st.integers(0, 10**6), st.lists(KEYS | st.text(max_size=4), min_size=1)), min_size=1), st.data()
)
def test_sizes_are_told_from_files_of_any_sizes(found: list[tuple[int, list[str]]], data: st.DataObject) -> None:
    sizes = IndexSizes(hash_slot_num=data.draw(st.integers(1, 60)), index_num=data.draw(st.integers(2, 60)))
    service = IndexService(sizes=sizes)
    messages = [(offset, 1000 + i, [f"T#{key}" for key in keys]) for i, (offset, keys) in enumerate(sorted(found))]
    service.build_index(indexed_messages(messages))
    entries = [(file.name, file.content) for file in service.files]
    assert infer_index_sizes(entries) == sizes


def test_an_entry_of_zeros_alone_tells_no_sizes() -> None:
    service = IndexService(sizes=IndexSizes(hash_slot_num=1, index_num=3))
    service.build_index(indexed_messages([(0, 1000, [""])]))
    with pytest.raises(CorruptStoreError, match=r"found several.*--set maxHashSlotNum"):
        infer_index_sizes([(service.files[0].name, service.files[0].content)])


def one_file(sizes: IndexSizes) -> tuple[str, np.ndarray]:
    service = IndexService(sizes=sizes)
    service.build_index(indexed_messages([(100 + i, 5000, [f"T#k{i}"]) for i in range(30)]))
    return service.files[0].name, service.files[0].content


def test_a_damaged_chain_asks_for_the_sizes() -> None:
    name, content = one_file(IndexSizes(hash_slot_num=7, index_num=50))
    content[40 + 3] ^= 1
    with pytest.raises(CorruptStoreError, match=r"found none.*--set maxHashSlotNum"):
        infer_index_sizes([(name, content)])


def test_files_of_other_lengths_and_other_names_say_nothing_of_the_sizes() -> None:
    sizes = IndexSizes(hash_slot_num=7, index_num=50)
    name, content = one_file(sizes)
    junk = np.arange(100, dtype=np.uint8)
    assert infer_index_sizes([(name, content), ("note", content[::-1]), ("1", junk), ("2", content[:-4])]) == sizes


@pytest.mark.parametrize("entries", [[], [("1", np.zeros(0, np.uint8))], [("1", np.zeros(500, np.uint8))], [("x", np.zeros(9, np.uint8))]])
def test_no_entries_tell_no_sizes(entries: list[tuple[str, np.ndarray]]) -> None:
    assert infer_index_sizes(entries) is None


def test_the_sizes_of_the_defaults_are_tried_first(tmp_path: Path) -> None:
    path = tmp_path / "20220501000924987"
    with path.open("wb") as file:
        file.truncate(DEFAULT_INDEX_SIZES.file_length)
    content = np.memmap(path, np.uint8, mode="r+").view(np.ndarray)
    service = IndexService(sizes=DEFAULT_INDEX_SIZES, files=[IndexFile(path.name, content, DEFAULT_INDEX_SIZES)])
    service.build_index(indexed_messages([(0, 1000, ["T#a"])]))
    assert infer_index_sizes([(path.name, content)]) == DEFAULT_INDEX_SIZES


@given(st.binary(max_size=300), st.integers(0, 300))
def test_any_bytes_are_loaded_and_searched(raw: bytes, cut: int) -> None:
    sizes = IndexSizes(hash_slot_num=3, index_num=10)
    loaded = load_index([("7", np.frombuffer(raw[:cut], np.uint8))], sizes)
    (file,) = loaded.files
    assert file.content.tobytes() == raw[:cut][: sizes.file_length].ljust(sizes.file_length, b"\0")
    try:
        assert len(query_offset([file], "T", "a", 5, 0, 2**63 - 1).phy_offsets) <= 5
    except CorruptStoreError as error:
        assert "goes round" in str(error)  # noqa: PT017
    try:
        infer_index_sizes([("7", np.frombuffer(raw[:cut], np.uint8))])
    except CorruptStoreError as error:
        assert "maxHashSlotNum" in str(error)  # noqa: PT017


def test_a_file_cut_anywhere_is_followed_by_zeros() -> None:
    sizes = IndexSizes(hash_slot_num=3, index_num=6)
    _, content = one_file(sizes)
    for cut in range(len(content) + 1):
        (file,) = load_index([("7", content[:cut])], sizes).files
        assert len(file.content) == len(content)
        assert not file.content[cut:].any()
        query_offset([file], "T", "k1", 64, 0, 2**63 - 1)


def test_after_a_kill_files_that_end_after_the_checkpoint_are_deleted() -> None:
    sizes = IndexSizes(hash_slot_num=2, index_num=3)
    service = IndexService(sizes=sizes)
    service.build_index(indexed_messages([(10 * i, 1000 * i, ["T#a"]) for i in range(1, 6)]))
    entries = [(file.name, file.content) for file in service.files]
    assert [file.header.end_timestamp for file in service.files] == [2000, 4000, 5000]
    loaded = load_index(entries, sizes, last_exit_ok=False, index_msg_timestamp=4000)
    assert ([file.name for file in loaded.files], loaded.deleted) == ([name for name, _ in entries[:2]], (entries[2][0],))
    assert load_index(entries, sizes).deleted == ()


@pytest.mark.parametrize(
    ("name", "taken"),
    [("20220501000924987", True), ("1", True), ("-1", True), ("+1", True), ("x", False), ("", False), ("1.bak", False), ("9" * 19, False)],
)
def test_names_that_are_no_long_are_passed_over(name: str, taken: bool) -> None:
    assert is_index_file_name(name) is taken
    assert (
        len(
            load_index(
                [(name, np.zeros(9, np.uint8))], DEFAULT_INDEX_SIZES if not taken else IndexSizes(hash_slot_num=1, index_num=2)
            ).files
        )
        == taken
    )


def test_files_are_named_by_the_clock_and_never_alike() -> None:
    assert index_file_name(int(dt.datetime(2022, 5, 1, 0, 9, 24, 987000, dt.UTC).timestamp() * 1000)) == "20220501000924987"
    service = IndexService(sizes=IndexSizes(hash_slot_num=1, index_num=2), clock=lambda _: 0)
    service.build_index(indexed_messages([(i, 5, ["T#a"]) for i in range(3)]))
    assert service.created == ["19700101000000000", "19700101000000001", "19700101000000002"]


def test_a_message_without_keys_makes_the_next_file() -> None:
    service = IndexService(sizes=IndexSizes(hash_slot_num=1, index_num=2))
    service.build_index(indexed_messages([(5, 2000, ["T#a"]), (9, 3000, [])]))
    first, second = (file.header for file in service.files)
    assert (second.begin_timestamp, second.end_phy_offset, second.index_count) == (first.end_timestamp, 5, 1)


@pytest.mark.parametrize(("slots", "entries"), [(0, 10), (-1, 10), (1, 1), (1, 0), (2**31 - 1, 2**31 - 1)])
def test_sizes_without_room_for_a_key_are_refused(slots: int, entries: int) -> None:
    service = IndexService(sizes=IndexSizes(hash_slot_num=slots, index_num=entries))
    with pytest.raises(StoreError, match="maxHashSlotNum"):
        service.build_index(indexed_messages([(1, 1, ["T#a"])]))


def test_the_first_entry_of_a_later_file_counts_its_seconds_from_the_end_of_the_file_before() -> None:
    service = IndexService(sizes=IndexSizes(hash_slot_num=1, index_num=3))
    service.build_index(indexed_messages([(i, stamp, ["T#a"]) for i, stamp in enumerate([1000, 2000, 9999, 9999])]))
    entries = [file.content[44:].view(INDEX_ENTRY)["timeDiff"].tolist() for file in service.files]
    assert entries == [[0, 0, 1], [0, 7, 0]]
    assert all(earlier.name < later.name for earlier, later in pairwise(service.files))


@slow_proof
def test_no_kernel_reads_outside_its_buffer(tmp_path: Path) -> None:
    script = TESTS / "runs" / "bounds_checked_index.py"
    checked = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PROJECT)}
    run = subprocess.run([sys.executable, script], env=checked, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.rpartition(":")[2]) > 300
