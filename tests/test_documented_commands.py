"""Every command that README.md and the pages under docs/ show runs as it stands there, on a capture of a real broker."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from captured import unpack
from doc_commands import PAGES, Shown, commands, placed
from golden import BESIDE, SMALL, golden, needs_golden
from in_session import NotHeard, pullsim_in
from sampling import slow_proof

from pipeline.demo import REPLAYED_TRACE, unpack_demo_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [needs_golden, slow_proof]
# go on until they are told to end, or are for two terminals: each has tests of its own
ENDLESS = {"--watch", "--follow"}
# say that something differs, or is wrong with a store, by their exit code
MAY_FIND = {"replay", "verify"}
STORE = "/data/rocketmq/store"


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands expect to find where they are called: a store, a capture, a lake of both, files of requests."""
    place = tmp_path_factory.mktemp("documented")
    captured = unpack("json", place, store=True)
    for name in ("store", "traffic.pcap", "broker.conf"):
        shutil.move(captured / name, place / name)
    shutil.copy(place / "traffic.pcap", place / "traffic-0800.pcap")
    (place / "demo").mkdir()
    unpack_demo_data(place / "demo")
    with (place / "demo" / REPLAYED_TRACE).open(encoding="utf-8") as lines:
        head, *requests = [json.loads(line) for _, line in zip(range(25), lines, strict=False)]
    stamped = [line["request"].update(timestamp=1_650_000_000_000 + 40 * number) or line for number, line in enumerate(requests)]
    trace = "".join(json.dumps(line) + "\n" for line in stamped)
    (place / "trace.jsonl").write_text(json.dumps(head) + "\n" + trace, "utf-8")
    (place / "pulls.jsonl").write_text(trace, "utf-8")
    (place / "incoming").mkdir()
    shutil.copy(place / "pulls.jsonl", place / "incoming")
    shutil.copy(BESIDE.parent / "scenarios" / "recorded.jsonl", place / "scenarios.jsonl")
    shutil.copy(golden("broker", "frames", "frames.jsonl"), place / "frames.jsonl")
    (place / "lookups.jsonl").write_bytes(lzma.decompress((BESIDE.parent / "lookup" / f"{SMALL}.jsonl.xz").read_bytes()))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        pullsim = pullsim_in(spark, patch, NotHeard())
        assert pullsim("import", place / "store", "--lake", "lake", "--broker-name", "broker-a", "--properties", "broker.conf")[0] == 0
        assert pullsim("capture", place / "traffic.pcap", "--lake", "lake")[0] == 0
    shutil.move(place / "lake", place / "kept")
    return place


def shown() -> Iterator[Shown]:
    seen = set()
    for page in PAGES:
        for one in commands(page):
            if not one.is_fragment and not ENDLESS & set(one.words) and one.words[0] != "COMMAND" and one.words not in seen:
                seen.add(one.words)
                yield one


@pytest.mark.parametrize("one", list(shown()), ids=lambda one: f"{one.page}: {' '.join(one.words)}"[:70])
def test_a_command_on_a_page_runs(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one: Shown
) -> None:
    monkeypatch.chdir(folder)
    for made in ("lake", "checkpoints", "exported", "part"):
        shutil.rmtree(folder / made, ignore_errors=True)
    shutil.copytree(folder / "kept", folder / "lake")
    words = [word.replace(STORE, "store").replace("/data/sick/store", "store").replace("/data/", "") for word in one.words]
    if words[0] == "stream" and "--once" not in words:
        words.append("--once")
    code, _, err = pullsim_in(spark, monkeypatch, capsys)(*placed(words, folder))
    assert code in ({0, 1} if words[0] in MAY_FIND else {0}), err
