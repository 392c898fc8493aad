"""The files under examples/: the README names their folder, they are what the pages show, and the real broker's answers are ours."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.files.unpacking import unpack
from pipeline.main import run
from tests.runs.doc_commands import SHOWN
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.sampling import slow_proof
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = PROJECT / "examples"
DEMO = PROJECT / "pipeline" / "demo_data"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    with tarfile.open(DEMO / "broker-a.tar.xz") as archive:
        unpack(archive, folder, archive)
    return folder / "broker-a"


def fenced(page: str, language: str) -> str:
    text: str = re.findall(rf"^```{language}\n(.*?)^```", (PROJECT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)[0]
    return text


def test_each_example_is_on_the_page_of_its_folder_and_small() -> None:
    page = (EXAMPLES / "README.md").read_text("utf-8")
    files = {path.name: path.stat().st_size for path in EXAMPLES.iterdir() if path.name != "README.md"}
    assert set(re.findall(r"^\| `(\S+)` \|", page, re.MULTILINE)) == files.keys()
    assert max(files.values()) < 300_000
    assert "(examples/README.md)" in (PROJECT / "README.md").read_text("utf-8")


def test_examples_are_what_the_pages_show() -> None:
    assert (EXAMPLES / "workload.toml").read_text("utf-8") == fenced("docs/workload.md", "toml")
    assert (EXAMPLES / "slow.toml").read_text("utf-8") == fenced("docs/simulate.md", "toml")
    assert json.loads((EXAMPLES / "scenarios.jsonl").read_text("utf-8")) == json.loads(fenced("docs/scenarios.md", "json"))
    shown = re.findall(r'^    (\{"op".*)$', (PROJECT / "docs" / "guide.md").read_text("utf-8"), re.MULTILINE)
    assert (EXAMPLES / "lookups.jsonl").read_text("utf-8").splitlines() == shown
    asked = [json.loads(line)["request"] for line in (EXAMPLES / "pulls.jsonl").read_text("utf-8").splitlines()]
    answered = [json.loads(line) for line in (EXAMPLES / "trace.jsonl").read_text("utf-8").splitlines()]
    assert [line["request"] for line in answered[1:]] == asked


def test_each_input_that_the_first_pages_name_is_an_example() -> None:
    named = [
        (one.page, word)
        for one in SHOWN
        if one.page in {"README.md", "guide.md"}
        for before, word in zip(("", *one.words), one.words, strict=False)
        if word.endswith((".jsonl", ".pcap", ".toml")) and before not in {"--out", "--write-store"}
    ]
    assert len({Path(word).name for _, word in named}) > 6
    folder = {"README.md": PROJECT, "guide.md": EXAMPLES}  # the guide says once that its files are there
    assert [(page, word) for page, word in named if not (folder[page] / word).is_file()] == []


def test_examples_without_spark_are_answered(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["frames", str(EXAMPLES / "frames.jsonl"), "--out", str(tmp_path / "decoded.jsonl")]) == 0
    assert "8 frames, 0 of them refused" in capsys.readouterr().out
    lookups = [str(store), "--requests", str(EXAMPLES / "lookups.jsonl"), "--out", str(tmp_path / "found.jsonl")]
    assert run(["lookup", *lookups, "--properties", str(DEMO / "broker-a.conf")]) == 0
    found = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text("utf-8").splitlines()]
    # the real broker's answers; this store has no index
    assert (found[0]["result"], found[1]["phyOffsets"]) == (247, [])
    assert [found[2]["result"][name] for name in ("topic", "queueId", "queueOffset", "storeSize")] == ["metrics", 2, 95, 255]
    assert run(["generate", str(tmp_path / "made"), "--workload", str(EXAMPLES / "workload.toml"), "--messages", "500"]) == 0


@slow_proof
def test_the_examples_answers_of_the_real_broker_are_ours(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pullsim: Pullsim = pullsim_in(spark, monkeypatch, capsys)
    lake = tmp_path / "lake"
    assert pullsim("import", store, "--lake", lake, "--properties", DEMO / "broker-a.conf")[0] == 0
    code, out, err = pullsim("replay", "--lake", lake, "--requests", EXAMPLES / "trace.jsonl", "--compare", "--out", tmp_path / "out.jsonl")
    assert (code, out.splitlines()[-1]) == (0, "30 compared, 0 differ"), err
    code, out, err = pullsim("capture", EXAMPLES / "traffic.pcap", "--lake", lake)
    assert (code, "captured for broker broker-a: 121 pulls, 111 of them answered" in out) == (0, True), out + err
    code, out, err = pullsim("replay", "--lake", lake, "--at", "recorded-max", "--compare", "--out", tmp_path / "out.jsonl")
    assert (code, out.splitlines()[-1].endswith("compared, 0 differ")) == (0, True), out + err
