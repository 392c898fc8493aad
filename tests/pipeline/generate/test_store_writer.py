"""The writer of stores: messages that a real broker stored, stored again, give the same bytes and file times."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pipeline.generate.store_writer import new_store, shut_down
from store_format.errors import StoreError
from store_format.log.append import NOT_APPENDED
from store_format.log.put_message import BatchedMessage, InnerMessage, MessageBatch, PutMessageStatus
from store_format.record.message import Host
from store_format.store.checkpoint import decode_checkpoint
from tests.makers.appended import PLAIN_CONFIG, messages_of, put_again, recorded_bit_maps, settings_of
from tests.truth.golden import golden, meta_of, unpack_small, unpack_stores

HOST = Host(address=bytes([10, 0, 0, 1]), port=10911)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    golden("store", "stores.tar.xz")
    return unpack_stores(tmp_path_factory.mktemp("golden"))


def files_of(store: Path) -> dict[str, Path]:
    return {path.relative_to(store).as_posix(): path for path in sorted(store.rglob("*")) if path.is_file()}


def assert_stored_again(store: Path, root: Path, steps: list[int]) -> None:
    notes = meta_of(store)
    bit_maps = recorded_bit_maps(store) if notes["config"].get("enableConsumeQueueExt") else None
    put_again(messages_of(store), root, notes["config"], steps, bit_maps)
    theirs, ours = files_of(store), files_of(root)
    assert [name for name in theirs if not name.startswith("config/")] == list(ours)
    assert [name for name, path in ours.items() if path.read_bytes() != theirs[name].read_bytes()] == []
    times = {name: path.stat().st_mtime_ns // 1_000_000 for name, path in ours.items() if name in notes["mtimesMs"]}
    assert times == {name: notes["mtimesMs"][name] for name in times}
    assert len(times) > 10


@pytest.mark.parametrize("steps", [[10_000], [1, 7, 500, 3]])
@pytest.mark.parametrize("name", ["basic", "ext"])
def test_what_the_broker_stored_is_stored_again_to_the_byte(stores: Path, tmp_path: Path, name: str, steps: list[int]) -> None:
    assert_stored_again(stores / name, tmp_path / "again", steps)


def test_the_small_store_is_stored_again_to_the_byte_one_message_at_a_time(tmp_path: Path) -> None:
    assert_stored_again(unpack_small(tmp_path), tmp_path / "again", [1])


def message(body: bytes, queue_id: int = 0) -> InnerMessage:
    return InnerMessage(topic="T", queue_id=queue_id, body=body, born_host=HOST, store_host=HOST, born_timestamp=1)


def test_puts_are_answered_with_where_messages_are(tmp_path: Path) -> None:
    writer = new_store(str(tmp_path / "s"), settings_of(PLAIN_CONFIG | {"mappedFileSizeCommitLog": "1000"}))
    first = writer.put_message(message(bytes(8)), 1000)  # of 100 bytes
    assert (first.status, first.wrote_offsets, first.logics_offsets) == (PutMessageStatus.PUT_OK, (0,), (0,))
    one = BatchedMessage(body=bytes(8))
    batch = MessageBatch(topic="T", queue_id=0, messages=[one] * 9, born_host=HOST, store_host=HOST, born_timestamp=1)
    put = writer.put_messages(batch, 2000)  # 900 bytes, of which 900 are left
    assert put.wrote_offsets == tuple(range(1000, 1900, 100))
    assert put.logics_offsets == tuple(range(1, 10))
    assert writer.put_message(message(bytes(8), queue_id=1), 3000).logics_offsets == (0,)
    nowhere = writer.put_message(message(bytes(901)), 4000)  # 993 bytes and 8 to be left
    assert (nowhere.status, nowhere.wrote_offsets) == (PutMessageStatus.PUT_OK, (NOT_APPENDED,))
    assert writer.put_message(message(bytes(8)), 5000).wrote_offsets == (4000,)
    shut_down(writer)
    files = {path.name: path.read_bytes() for path in (tmp_path / "s" / "commitlog").iterdir()}
    blank = bytes.fromhex("cbd43194")
    assert sorted(files) == [f"{number * 1000:020d}" for number in range(5)]
    assert files[f"{0:020d}"][100:] == (900).to_bytes(4, "big") + blank + bytes(892)
    assert files[f"{3000:020d}"] == (1000).to_bytes(4, "big") + blank + bytes(992)
    checkpoint = decode_checkpoint((tmp_path / "s" / "checkpoint").read_bytes())
    assert (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp) == (5000, 5000, 0)


def test_the_abort_file_is_there_until_all_is_written(tmp_path: Path) -> None:
    writer = new_store(str(tmp_path / "s"), settings_of(PLAIN_CONFIG))
    writer.put_message(message(b"x"), 1000)
    assert (
        {"abort", "commitlog", "consumequeue", "lock"}
        <= set(os.listdir(tmp_path / "s"))
        <= {"abort", "commitlog", "consumequeue", "index", "lock"}
    )
    shut_down(writer, {"topics.json": b"{}"})
    assert sorted(os.listdir(tmp_path / "s")) == ["checkpoint", "commitlog", "config", "consumequeue", "index", "lock"]
    assert (tmp_path / "s" / "config" / "topics.json").read_bytes() == b"{}"


@pytest.mark.parametrize("name", ["abort", "commitlog", ".hidden"])
def test_a_folder_with_anything_in_it_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(StoreError, match=f"expected an empty folder, or none, found '{name}' in it"):
        new_store(str(tmp_path), settings_of(PLAIN_CONFIG))
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    "config",
    [
        {"mappedFileSizeCommitLog": "8"},
        {"mappedFileSizeConsumeQueue": "0"},
        {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "20"},
        {"maxIndexNum": "1"},
    ],
)
def test_sizes_that_no_broker_could_write_are_refused(tmp_path: Path, config: dict[str, str]) -> None:
    with pytest.raises(StoreError):
        new_store(str(tmp_path / "s"), settings_of(PLAIN_CONFIG | config))
    assert not (tmp_path / "s").exists()


def test_a_path_that_cannot_be_made_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file/s"):
        new_store(str(tmp_path / "file" / "s"), settings_of(PLAIN_CONFIG))
    shutil.rmtree(tmp_path)
