"""A store over each kind of files: messages put after a restart go to the same places as without a restart."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.generate.store_writer import new_store, shut_down
from pipeline.generate.written_files import WrittenFiles
from pipeline.generate.written_index import WrittenIndex
from pipeline.store.message_store import store_over
from store_format.errors import StoreError
from store_format.files.files import Files
from store_format.index.index_dispatch import RunningIndex
from store_format.log.put_message import InnerMessage, PutMessageStatus
from store_format.record.message import Host
from store_format.store.message_store import MessageStore
from store_format.store.store_settings import StoreSettings
from tests.makers.appended import PLAIN_CONFIG, settings_of
from udfs.broker.schedule import deliver_timestamp_of

HOST = Host(address=bytes([10, 0, 0, 1]), port=10911)
SMALL = PLAIN_CONFIG | {"mappedFileSizeCommitLog": "1000", "mappedFileSizeConsumeQueue": "100", "maxIndexNum": "8"}
COUNT = 40


@pytest.fixture
def settings() -> StoreSettings:
    return settings_of(SMALL | {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "200"})


def put(store: MessageStore[Any], numbers: Iterable[int]) -> None:
    for number in numbers:
        message = InnerMessage(
            topic="T" if number % 3 else "U",
            queue_id=number % 2,
            body=bytes(number),
            born_host=HOST,
            store_host=HOST,
            born_timestamp=number,
            properties={"KEYS": f"k{number}", "TAGS": "a"},
        )
        assert store.put_message(message, 1000 * number).status == PutMessageStatus.PUT_OK


def contents(files: Files, folder: tuple[str, ...] = ()) -> dict[tuple[str, ...], bytes]:
    found: dict[tuple[str, ...], bytes] = {}
    for entry in files.entries(folder):
        path = (*folder, entry.name)
        found |= contents(files, path) if entry.is_folder else {path: files.content(path).tobytes()}
    return found


def written(root: Path, settings: StoreSettings, count: int) -> WrittenFiles:
    store = new_store(str(root), settings)
    put(store, range(1, count + 1))
    shut_down(store)
    return store.files


def gone_on_with(kind: str, root: Path, settings: StoreSettings) -> MessageStore[Any]:
    if kind == "in memory":
        return store_over(StoreFiles(str(root)), settings)
    files = WrittenFiles(str(root))
    index = RunningIndex(store=files, sizes=settings.index_sizes)
    return MessageStore(files=files, settings=settings, index=index, deliver_timestamp=deliver_timestamp_of(settings.delays))


@pytest.mark.parametrize("kind", ["in memory", "on disk"])
@pytest.mark.parametrize("before", [1, 7, 18, 33])
def test_a_store_that_is_gone_on_with_is_as_one_written_at_once(tmp_path: Path, settings: StoreSettings, kind: str, before: int) -> None:
    expected = contents(written(tmp_path / "whole", settings, COUNT))
    begun = contents(written(tmp_path / "begun", settings, before))
    store = gone_on_with(kind, tmp_path / "begun", settings)
    assert store.load()
    assert store.start() == "ok"
    assert ("abort",) in contents(store.files)
    put(store, range(before + 1, COUNT + 1))
    store.shutdown()
    assert contents(store.files) == expected
    assert (contents(WrittenFiles(str(tmp_path / "begun"))) == begun) == (kind == "in memory")


def test_an_index_that_is_built_beside_the_log_is_a_new_one(tmp_path: Path, settings: StoreSettings) -> None:
    files = written(tmp_path / "s", settings, 3)
    index = WrittenIndex(files, settings.index_sizes)
    store = MessageStore(files=files, settings=settings, index=index, deliver_timestamp=None)
    with pytest.raises(StoreError, match="index: expected no index"):
        store.load()
