"""A reader of a growing commit log finds whole records only, each once, and what happened to the records that it read before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.files.store_files import StoreFiles
from pipeline.follow.log_tail import CLEANED, TRUNCATED, FollowOffset, LogTail, Mark
from store_format.broker_version import DEFAULT_VERSION
from tests.makers.lakes import LOG_FILE, tiny_store
from tests.makers.living_store import LivingStore
from tests.runs.sampling import examples

ALL = 1 << 40
QUEUES = [("T", 0), ("U", 1)]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_store(tmp_path_factory.mktemp("grown") / "store", QUEUES)


@pytest.fixture
def living(grown: Path, tmp_path: Path) -> LivingStore:
    return LivingStore(grown, tmp_path / "store")


def tail_of(living: LivingStore, size: int = LOG_FILE) -> LogTail:
    return LogTail(StoreFiles(str(living.path)), size, DEFAULT_VERSION)


def test_a_record_counts_when_another_follows_or_two_looks_find_the_same(living: LivingStore) -> None:
    offsets = living.record_offsets()
    log = tail_of(living)
    assert log.look(0, ALL, None).end == 0
    living.cut_at(offsets[1])
    first = log.look(0, ALL, None)
    assert first.end == 0
    assert first.newest is not None
    assert (first.newest.offset, first.newest.end) == (0, offsets[1])
    second = log.look(0, ALL, first.newest)
    assert (second.end, second.last, second.newest) == (offsets[1], first.newest, None)
    living.cut_at(offsets[2])
    assert log.look(0, ALL, None).end == offsets[1]


def test_a_record_is_not_there_before_its_last_byte(living: LivingStore) -> None:
    """A message may end with zero bytes, as the log after it is; these messages end with a letter."""
    offsets = living.record_offsets()
    log = tail_of(living)
    for half in range(offsets[3] - offsets[2]):
        living.cut_at(offsets[2], half=half)
        seen = log.look(0, ALL, None)
        again = log.look(0, ALL, seen.newest)
        assert again.end == offsets[2], half
    living.cut_at(offsets[3])
    assert log.look(0, ALL, log.look(0, ALL, None).newest).end == offsets[3]


def test_a_body_that_is_not_the_one_that_was_sent_is_waited_for(living: LivingStore) -> None:
    offsets = living.record_offsets()
    living.cut_at(offsets[2])
    path = living.path / "commitlog" / f"{0:020d}"
    raw = bytearray(path.read_bytes())
    at = raw.rindex(b"message 0", 0, offsets[2])
    raw[at : at + 9] = b"messag\0\0\0"
    path.write_bytes(raw)
    log = tail_of(living)
    assert log.look(0, ALL, log.look(0, ALL, None).newest).end == offsets[1]
    raw[offsets[2] : offsets[2] + 8] = b"\0\0\0\1\0\0\0\0"  # the broker goes on: it is whole, whatever its CRC-32
    path.write_bytes(raw)
    assert log.look(0, ALL, None).end == offsets[2]


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_looks_of_any_size_find_all_records_once(grown: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    living = LivingStore(grown, tmp_path_factory.mktemp("living") / "store")
    offsets = living.record_offsets()
    log = tail_of(living)
    at, newest = 0, None
    found: list[int] = []
    for end in sorted(data.draw(st.lists(st.sampled_from(offsets), max_size=4))):
        living.cut_at(end, half=data.draw(st.integers(0, 60)) if end != offsets[-1] else 0)
        for _ in range(data.draw(st.integers(1, 3))):
            seen = log.look(at, data.draw(st.integers(1, 400)), newest)
            for piece in log.pieces(at, seen.end):
                assert (piece.start + piece.file.from_offset) in offsets
                assert (piece.end + piece.file.from_offset) in offsets
                found += [one for one in offsets if piece.start <= one - piece.file.from_offset < piece.end]
            assert seen.end <= end
            if seen.last is not None:
                assert seen.last.end == seen.end
            at, newest = seen.end, seen.newest
    assert found == [one for one in offsets if one < at]
    shutil.rmtree(living.path)


def test_a_log_goes_on_behind_the_blank_that_ends_a_file(small_store: Path, tmp_path: Path) -> None:
    living = LivingStore(small_store, tmp_path / "store")
    offsets = living.record_offsets()
    size = next((small_store / "commitlog").iterdir()).stat().st_size
    assert len(list((small_store / "commitlog").iterdir())) > 1
    living.cut_at(offsets[-1])
    log = tail_of(living, size)
    seen = log.look(0, ALL, None)
    assert log.look(0, ALL, seen.newest).end == offsets[-1]
    covered = [one for piece in log.pieces(0, offsets[-1]) for one in offsets if piece.start <= one - piece.file.from_offset < piece.end]
    assert covered == offsets[:-1]
    assert log.end().newest == seen.newest


def test_what_was_read_and_is_gone_is_an_event(living: LivingStore, grown: Path) -> None:
    offsets = living.record_offsets()
    living.cut_at(offsets[4])
    log = tail_of(living)
    seen = log.look(0, ALL, None)
    at = FollowOffset(physic_offset=seen.end, min_offset=0, mark=seen.last)
    assert log.lost(at) is None
    assert FollowOffset.of(at.as_dict()) == at
    living.cut_at(offsets[2])
    event = log.lost(at)
    assert event is not None
    assert seen.last is not None
    assert (event.kind, event.physic_offset) == (TRUNCATED, seen.last.offset)
    assert FollowOffset.of(FollowOffset(physic_offset=1, min_offset=0, event=event).as_dict()).event == event
    path = living.path / "commitlog" / f"{0:020d}"
    path.rename(path.with_name(f"{LOG_FILE:020d}"))
    event = log.lost(at)
    assert event is not None
    assert (event.kind, event.physic_offset) == (CLEANED, LOG_FILE)


def test_a_log_that_begins_is_an_event_when_its_lengths_are_known(living: LivingStore) -> None:
    unknown = tail_of(living, 1 << 30)
    at = FollowOffset(physic_offset=0, min_offset=-1)
    assert unknown.lost(at) is None, "no record is there"
    living.cut_at(living.record_offsets()[3])
    queues = living.path / "consumequeue"
    hidden = queues.rename(living.path / "hidden")
    assert unknown.lost(at) is None, "no queue is there"
    hidden.rename(queues)
    event = unknown.lost(at)
    assert event is not None
    assert (event.kind, event.physic_offset) == (CLEANED, 0)
    assert unknown.as_found().file_size == LOG_FILE


def test_a_file_that_is_still_being_made_is_none(living: LivingStore) -> None:
    living.cut_at(living.record_offsets()[1])
    (living.path / "commitlog" / f"{LOG_FILE:020d}").write_bytes(bytes(100))
    (living.path / "commitlog" / "lost+found").mkdir()
    assert [file.from_offset for file in tail_of(living).files()] == [0]
    assert Mark(5, 7, 1).end == 12
