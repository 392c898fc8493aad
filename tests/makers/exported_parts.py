"""Compares an exported part of a store with the whole store."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from pipeline.export.part_plan import Bound, Part
from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from store_format.record.message import Message, decode
from tests.runs.replaying import BROKER
from tests.truth.golden import meta_of

Queue = tuple[str, int]


PRE_BLANK = (0, 2147483647, 0)


class Files:
    """The log and the queues of a store, read with struct alone."""

    def __init__(self, store: Path) -> None:
        self.log = {int(path.name): path.read_bytes() for path in (store / "commitlog").iterdir()}
        self.log_size = len(next(iter(self.log.values())))
        self.queues: dict[Queue, dict[int, tuple[int, int, int]]] = {}
        for path in sorted((store / "consumequeue").glob("*/*/*")):
            units = enumerate(struct.iter_unpack(">qiq", path.read_bytes()), int(path.name) // 20)
            found = self.queues.setdefault((path.parts[-3], int(path.parts[-2])), {})
            found.update({offset: unit for offset, unit in units if unit[1] > 0})
        extensions = sorted((store / "consumequeue_ext").glob("*/*/*"))
        self.units = {(path.parts[-3], int(path.parts[-2]), int(path.name)): path.read_bytes() for path in extensions}

    def record(self, offset: int, size: int) -> bytes:
        return self.log[offset // self.log_size * self.log_size][offset % self.log_size :][:size]

    def tags_code(self, queue: Queue, code: int) -> int:
        """The tagsCode of an entry, or of its unit in the extension."""
        if code > -(2**31) - 1:
            return code
        offset = code + 2**63
        for (*of, start), raw in self.units.items():
            if (*of,) == queue and start <= offset < start + len(raw):
                return int(struct.unpack_from(">hq", raw, offset - start)[1])
        return code

    def messages(self) -> dict[Queue, dict[int, tuple[Message, int]]]:
        """The message and the tagsCode of each entry, by queue and offset. Pre-blanks and entries without a log file are left out."""
        found: dict[Queue, dict[int, tuple[Message, int]]] = {}
        for queue, units in self.queues.items():
            for offset, unit in units.items():
                if unit != PRE_BLANK and unit[0] // self.log_size * self.log_size in self.log:
                    message = decode(self.record(*unit[:2]), uncompress_body=False)
                    assert message is not None
                    assert message.physic_offset == unit[0]
                    found.setdefault(queue, {})[offset] = (message, self.tags_code(queue, unit[2]))
        return found


def but_place(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__dataclass_fields__ if name != "physic_offset"}


def wanted(part: Part, queue: Queue, messages: dict[int, tuple[Message, int]]) -> dict[int, tuple[Message, int]]:
    """The messages of a queue from the first at or after `part.first` to the last before `part.after`, in order of offsets."""

    def passes(bound: Bound, offset: int, message: Message) -> int:
        return (message.store_timestamp if bound.is_time else offset) - bound.value

    if part.topics and queue[0] not in part.topics:
        return {}
    begun = [offset for offset, (message, _) in messages.items() if part.first is None or passes(part.first, offset, message) >= 0]
    ended = [offset for offset, (message, _) in messages.items() if part.after is None or passes(part.after, offset, message) < 0]
    if not begun or not ended:
        return {}
    return {offset: found for offset, found in messages.items() if min(begun) <= offset <= max(ended)}


def export_part(lake: Lake, out: Path, part: Part, broker: str = BROKER) -> None:
    from pipeline.export.export_part import export_part as export

    export(OpenedBroker(lake, broker), str(out), part=part, run_id="export", progress=lambda _: None)
    assert [path.name for path in out.parent.iterdir() if path.name.endswith(".part")] == []


def assert_is_part(store: Path, out: Path, part: Part) -> None:
    """Check that the part has exactly the chosen messages, a log without gaps, and that a load changes nothing."""
    theirs, ours = Files(store).messages(), Files(out).messages()
    expected = {queue: found for queue, all_of in theirs.items() if (found := wanted(part, queue, all_of))}
    assert expected
    assert {queue: sorted(found) for queue, found in ours.items()} == {queue: sorted(found) for queue, found in expected.items()}
    for queue, found in expected.items():
        for offset, (message, code) in found.items():
            again, again_code = ours[queue][offset]
            assert (but_place(again), again_code) == (but_place(message), code)
    known = meta_of(store)["config"]
    assert_load_changes_nothing(out, [f"{name}={known[name]}" for name in ("maxHashSlotNum", "maxIndexNum") if name in known])


def assert_load_changes_nothing(store: Path, options: list[str]) -> None:
    from pipeline.files.store_files import StoreFiles
    from pipeline.settings.settings import BrokerSettings
    from pipeline.store.message_store import store_over
    from pipeline.store.store_settings import store_settings

    files = StoreFiles(str(store))
    broker = store_over(files, store_settings(files, BrokerSettings.from_sources(options=options)))
    assert broker.load()
    assert broker.start() == "ok"
    broker.shutdown()
    assert (broker.dispatcher.count, broker.files.deleted) == (0, {("abort",)})  # start made this file
    assert [path for path, change in broker.files.changes.items() if change.ranges] == []
    for (topic, queue_id), queue in broker.queues.items():
        offsets = [offset for offset, unit in Files(store).queues[topic, queue_id].items() if unit != PRE_BLANK]
        assert (queue.min_logic_offset // 20, queue.max_offset) == (min(offsets), max(offsets) + 1)
