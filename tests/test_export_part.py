"""A part of a store: the messages that were asked for, where their queues say they are, in a store that load leaves as it is."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from golden import meta_of, needs_golden
from in_session import pullsim_in
from lakes import import_as, tiny_store
from replaying import BROKER, lake_of
from sampling import sampled, slow_proof

from pipeline.export.part_plan import Bound, Part, plan_log
from store_format.errors import StoreError
from store_format.record.message import Message, decode

if TYPE_CHECKING:
    from in_session import Pullsim
    from pyspark.sql import SparkSession

    from pipeline.lake.lake import Lake

Queue = tuple[str, int]
PRE_BLANK = (0, 2147483647, 0)


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


class Files:
    """Log and queues of a store, read with struct alone."""

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
        """That of an entry, or of the unit in the extension that it is the address of."""
        if code > -(2**31) - 1:
            return code
        offset = code + 2**63
        for (*of, start), raw in self.units.items():
            if (*of,) == queue and start <= offset < start + len(raw):
                return int(struct.unpack_from(">hq", raw, offset - start)[1])
        return code

    def messages(self) -> dict[Queue, dict[int, tuple[Message, int]]]:
        """Message and tagsCode of each entry that is no pre-blank."""
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
    """The messages between the first and the last one that both bounds let through."""

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

    export(lake, broker, str(out), part=part, run_id="export", progress=lambda _: None)
    assert [path.name for path in out.parent.iterdir() if path.name.endswith(".part")] == []


def assert_is_part(store: Path, out: Path, part: Part) -> None:
    """The messages asked for and no others; a log without gaps; a load that changes nothing."""
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
    from pipeline.store.message_store import MessageStore
    from pipeline.store.store_settings import store_settings

    files = StoreFiles(str(store))
    broker = MessageStore(files=files, settings=store_settings(files, BrokerSettings.from_sources(options=options)))
    assert broker.load()
    assert broker.start() == "ok"
    broker.shutdown()
    assert (broker.dispatcher.count, broker.changed.deleted) == (0, {("abort",)})  # which start made
    assert [path for path, change in broker.changed.changes.items() if change.ranges] == []
    for (topic, queue_id), queue in broker.queues.items():
        offsets = [offset for offset, unit in Files(store).queues[topic, queue_id].items() if unit != PRE_BLANK]
        assert (queue.min_logic_offset // 20, queue.max_offset) == (min(offsets), max(offsets) + 1)


PARTS = [
    Part(first=Bound(3, is_time=False)),
    Part(first=Bound(7, is_time=False), after=Bound(41, is_time=False)),
    Part(topics=("TopicTest",), after=Bound(20, is_time=False)),
    Part(topics=("TopicTest", "OrderEvents"), first=Bound(1651364000000, is_time=True), after=Bound(1651365000000, is_time=True)),
]


@pytest.mark.parametrize("part", sampled(PARTS, 1))
def test_a_part_of_the_small_store_has_the_messages_asked_for(
    spark: SparkSession, small_store: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, part: Part
) -> None:
    export_part(lake_of(spark, small_store, tmp_path_factory), tmp_path / "out", part)
    assert_is_part(small_store, tmp_path / "out", part)


@slow_proof
@needs_golden
@pytest.mark.parametrize("name", sampled(["basic", "cleaned", "ext", "preblank0", "preblank1", "window"], 1))
def test_a_part_of_a_golden_store_has_the_messages_asked_for(
    spark: SparkSession, stores: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    part = Part(first=Bound(11, is_time=False), after=Bound(300, is_time=False))
    export_part(lake_of(spark, stores / name, tmp_path_factory), tmp_path / "out", part)
    assert_is_part(stores / name, tmp_path / "out", part)


@pytest.fixture(scope="module")
def tiny(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of three queues with three messages each, the second entry of one of which has another size than its message."""
    store = tiny_store(tmp_path_factory.mktemp("tiny") / "store", [("T", 0), ("Topik", 1), ("odd", 0)])
    (store / "config").mkdir()
    for name, content in {
        "consumerOffset.json": b'{"offsetTable":{"T@g":{0:2},"Topik@g":{1:1},"odd":{0:1}}}',
        "consumerOffset.json.bak": b"{}",
        "delayOffset.json": b'{"offsetTable":{1:5}}',
        "topics.json": b'{ "topicConfigTable": {} }',
    }.items():
        (store / "config" / name).write_bytes(content)
    path = store / "consumequeue" / "odd" / "0" / f"{0:020d}"
    raw = bytearray(path.read_bytes())
    struct.pack_into(">i", raw, 20 + 8, 95)
    path.write_bytes(bytes(raw))
    import_as(spark, store.with_name("lake"), store)
    return store.with_name("lake")


def test_config_keeps_the_offsets_of_the_topics_and_drops_delays(tiny: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    code, out, err = pullsim("export", "--lake", tiny, tmp_path / "out", "--topic", "T", "--from", "1", "--to", "@1660000000000")
    assert code == 0, err
    assert "with 2 messages" in out
    found = {path.name: path.read_bytes() for path in (tmp_path / "out" / "config").iterdir()}
    assert found == {
        "consumerOffset.json": b'{\n\t"offsetTable":{\n\t\t"T@g":{0:2\n\t\t}\n\t}\n}',
        "topics.json": b'{ "topicConfigTable": {} }',
    }
    names = ["checkpoint", "commitlog", "config", "consumequeue", "index", "lock"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--topic", "Topic"), "expected a topic of broker 'b' that has queues, found 'Topic'; is it 'Topik'?"),
        (("--from", "3"), "expected messages of broker 'b' to export, found none in that part"),
        (("--from", "2", "--to", "1"), "found none in that part"),
        (("--to", "1999-12-31"), "found none in that part"),
        (("--to", "yesterday"), "expected a queue's offset, @ms since 1970, or a time as"),
        (("--topic", "odd"), "expected the message of odd/0, offset 1, in the commit log, found none of 95 bytes"),
    ],
)
def test_what_is_no_part_is_refused_and_leaves_nothing(
    tiny: Path, tmp_path: Path, pullsim: Pullsim, options: tuple[str, ...], message: str
) -> None:
    code, _, err = pullsim("export", "--lake", tiny, tmp_path / "out", *options)
    assert code == 2
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("chunks", "placed", "blanks", "end"),
    [
        ([(0, 0, 92)], [(0, 0, 100)], [], 192),
        ([(0, 0, 50), (0, 7, 42)], [(0, 0, 100), (0, 7, 150)], [], 192),
        ([(0, 0, 50), (0, 7, 43)], [(0, 0, 100), (0, 7, 200)], [(150, 50)], 243),
        ([(3, 0, 92), (9, 63, 1)], [(3, 0, 100), (9, 63, 200)], [(192, 8)], 201),
    ],
)
def test_chunks_follow_each_other_and_leave_eight_bytes(
    chunks: list[tuple[int, int, int]], placed: list[tuple[int, int, int]], blanks: list[tuple[int, int]], end: int
) -> None:
    plan = plan_log(chunks, 100)
    assert (list(plan.chunks), list(plan.blanks), plan.end) == (placed, blanks, end)
    assert list(plan.files) == list(range(100, end, 100))


def test_messages_that_fill_a_file_to_its_end_are_refused() -> None:
    with pytest.raises(StoreError, match="expected messages that leave 8 bytes of a file of 100, found 93 bytes of them in file 2"):
        plan_log([(2, 0, 93)], 100)
