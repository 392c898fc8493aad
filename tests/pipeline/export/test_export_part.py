"""A part of a store has the chosen messages at the places that their queues name, and is a store that a load does not change."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.export.part_plan import Bound, Part, plan_log
from store_format.errors import StoreError
from tests.makers.exported_parts import assert_is_part, export_part
from tests.makers.lakes import import_as, tiny_store
from tests.runs.in_session import pullsim_in
from tests.runs.replaying import lake_of
from tests.runs.sampling import sampled, slow_proof
from tests.truth.golden import needs_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.runs.in_session import Pullsim


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


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
    """A lake of three queues with three messages each. In one queue, the second entry has another size than its message."""
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


@slow_proof
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
        (("--topic", "Topic"), "the lake knows no topic 'Topic'; the nearest known: 'Topik', 'T', 'odd'"),
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
