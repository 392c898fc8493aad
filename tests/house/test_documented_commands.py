"""Every command that README.md, the pages under docs/ and `--help` show is run as it stands there, and ends with 0.

The store is one of a real broker that comes with the package; requests, look-ups, scenarios and workloads are those of the pages. Recorded
answers, and the traffic that carries them, come from tests/models/slow_broker.py. Absolute paths are below the folder of the test.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.commands.demo import CONSUMED_STORE, unpack_demo_data
from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.report.compared import FORMAT, FORMAT_KEY
from pipeline.verify.verify_constraints import broken_constraints
from store_format.remoting.command import SerializeType
from tests.makers.recorded_pulls import DEFAULTS, capture_of, conversation, request_frame
from tests.models.slow_broker import Bounds, SlowBroker
from tests.models.store_lag import StoreLag
from tests.runs.doc_commands import EXAMPLES, PAGES, SHOWN, Shown, described, placed, programs
from tests.runs.in_session import NotHeard, Pullsim, pullsim_in
from tests.runs.sampling import sampled, slow_proof
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE = Path("data/rocketmq/store")
SIZES = {"mappedFileSizeCommitLog": 1_048_576, "mappedFileSizeConsumeQueue": 20_000}
SECOND_BEFORE_THE_LAST = 1_795_257_316_000
# the commands that make the lakes of the others
MADE_BY = {
    "lake": (
        ("import", f"/{STORE}", "--lake", "lake", "--broker-name", "broker-a", "--properties", "broker.conf"),
        ("capture", "traffic.pcap", "--lake", "lake"),
    ),
    "demo-lake": (("demo", "--lake", "demo-lake"),),
    "scratch": (("answer", "--lake", "scratch", "--cases", "scenarios.jsonl", "--out", "answered.jsonl"),),
}
# shown commands that are not run here, and why
RUN_ELSEWHERE = {"questions.md": "test_ten_questions.py asks them of a captured broker, and knows the answers"}
NOT_RUN = {
    "--metrics": "takes a port, or a folder of the system, for as long as it runs: test_metrics.py has others",
    "serve": "serves until it is told to stop: test_live.py does",
}
S3 = "s3://"  # needs a server: test_on_s3.py has one
PROGRAMS = {
    "./run": "makes an environment, runs these tests, or hands what it is given to pullsim",
    "python": "builds a wheel: test_packaging.py does",
    "spark-submit": "test_packaging.py does, with executors on this machine, and tests/long/test_yarn.py",
    "docker": "is not at hand: tests/long/test_image.py carries out the Dockerfile's lines",
    "kubectl": "needs a cluster",
    "spark-sql": "test_data_contract.py does",
    "tcpdump": "needs root and traffic",
    "conda": "packs an environment for a cluster",
    "conda-pack": "the same",
    "pip": "the same",
    "export": "the same",
}
# options that end commands that would run without end
ENDED_BY = {"stream": ["--once"], "--follow": ["--once"], "--watch": []}


def fenced(page: str, language: str) -> list[str]:
    """The blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (PROJECT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


def indented(page: str, start: str) -> str:
    """The indented lines of a page that begin with `start`."""
    return "".join(f"{line}\n" for line in re.findall(rf"^    ({start}.*)$", (PROJECT / page).read_text("utf-8"), re.MULTILINE))


ASKED_OF_SCENARIOS = [Shown("scenarios.md", "", ("sql", "--lake", "scratch", query)) for query in fenced("docs/scenarios.md", "sql")]
COMMANDS = list(
    {
        one.words: one
        for one in (*SHOWN, *EXAMPLES, *ASKED_OF_SCENARIOS)
        if one.page not in RUN_ELSEWHERE and NOT_RUN.keys().isdisjoint(one.words) and S3 not in " ".join(one.words)
    }.values()
)
QUICK = [one for one in COMMANDS if one.words[0] in {"sql", "lag", "explain", "lookup", "frames"} and "lake" in one.words]
SAMPLE = {one.words for one in sampled(QUICK, 1)}


def answered_pulls(store: Path) -> list[dict[str, Any]]:
    """Pulls of the topic orders with the slow broker's answers: below, at and past the bounds of each queue, and between them."""
    broker = SlowBroker(store, DEFAULTS | SIZES, 2**62)
    broker.log_end = max(end for end, _ in broker.records)
    lines: list[dict[str, Any]] = []
    for (topic, queue_id), queue in sorted(StoreLag(store).queues.items()):
        for offset in (queue.minimum - 1, queue.minimum, queue.maximum - 20, queue.maximum, queue.maximum + 7) if topic == "orders" else ():
            asked = {"group": "orders-consumer", "topic": topic, "queueId": queue_id, "offset": max(offset, 0), "maxMsgNums": 16}
            asked |= {"filter": {"type": "TAG", "expression": "*"}, "timestamp": SECOND_BEFORE_THE_LAST + 25 * len(lines)}
            lines.append({"request": asked, "response": broker.get_message(asked, Bounds(queue.minimum, queue.maximum, broker.log_end))})
    assert {line["response"]["status"] for line in lines} == {"OFFSET_TOO_SMALL", "FOUND", "OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY"}
    return lines


def write_inputs(folder: Path) -> None:
    """Write the files that the commands name, each with the content that its page shows."""
    store = folder / STORE
    store.parent.mkdir(parents=True)
    (folder / "unpacked").mkdir()
    unpack_demo_data(folder / "unpacked")
    shutil.move(folder / "unpacked" / CONSUMED_STORE, store)
    shutil.move(folder / "unpacked" / f"{CONSUMED_STORE}.conf", folder / "broker.conf")
    offsets = store / "config" / "consumerOffset.json"
    # as the broker writes it, and no offset past the end of its queue, so that verify finds nothing
    text = offsets.read_text("utf-8").replace('"quiet@g-probe":{0:3,1:3', '"quiet@g-probe":{0:1,1:1')
    ours = '"offsetTable":{\n\t\t"orders@orders-consumer":{0:300\n\t\t},'
    offsets.write_text(text.replace('"offsetTable":{', ours, 1), "utf-8")
    shutil.copytree(store, folder / "data" / "sick" / "store")

    pulls = answered_pulls(store)
    (folder / "traffic.pcap").write_bytes(capture_of(conversation(pulls, store, SerializeType.JSON)))
    shutil.copy(folder / "traffic.pcap", folder / "traffic-0800.pcap")
    # recorded answers have more fields of each message than the slow broker gives, so answers with messages are left out
    recorded = [line if not line["response"]["messages"] else {"request": line["request"]} for line in pulls]
    (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in recorded), "utf-8")
    asked = "".join(json.dumps({"request": line["request"]}) + "\n" for line in pulls)
    (folder / "pulls.jsonl").write_text(indented("docs/guide.md", '{"request"') + asked, "utf-8")
    (folder / "lookups.jsonl").write_text(indented("docs/guide.md", '{"op"'), "utf-8")
    sent = [request_frame(number, line, kind) for number, line in enumerate(pulls) for kind in SerializeType]
    (folder / "frames.jsonl").write_text("".join(json.dumps({"frameHex": frame.hex()}) + "\n" for frame in sent), "utf-8")
    [scenario] = fenced("docs/scenarios.md", "json")
    (folder / "scenarios.jsonl").write_text(json.dumps(json.loads(scenario)) + "\n", "utf-8")
    slow = fenced("docs/simulate.md", "toml")[0]  # with fewer messages it takes seconds instead of minutes
    shutil.copytree(PROJECT / "examples", folder / "examples")
    for name in ("slow.toml", "examples/slow.toml"):
        (folder / name).write_text(slow.replace("rate = 500", "rate = 50").replace("50_000", "5_000"), "utf-8")
    [workload] = fenced("docs/workload.md", "toml")
    (folder / "workload.toml").write_text(workload, "utf-8")
    before = {FORMAT_KEY: FORMAT, "lake": "lake", "only": {}, "facts": {"made": 0}, "groups": [], "topics": []}
    (folder / "monday.json").write_text(json.dumps(before), "utf-8")


class Place:
    """The folder with what the commands need; a lake is made when a command first needs it."""

    def __init__(self, folder: Path, pullsim: Pullsim) -> None:
        self.folder, self.pullsim = folder, pullsim
        write_inputs(folder)

    def lake(self, name: str) -> Path:
        """A lake, made by the commands that the pages show for it."""
        if not (self.folder / name).exists():
            for words in MADE_BY[name]:
                assert self.pullsim(*placed(words, self.folder))[0] == 0, words
        return self.folder / name


def writes_to_the_lake(words: tuple[str, ...]) -> bool:
    return words[0] in {"import", "capture", "stream", "simulate"} or "--record" in words or (words[0] == "replay" and "--out" not in words)


def compares_versions(words: tuple[str, ...]) -> bool:
    return "--rules" in words and "--compare" in words


@contextmanager
def told_already() -> Iterator[threading.Event]:
    """Takes the place of told_to_stop: the stop has already been requested."""
    stop = threading.Event()
    stop.set()
    yield stop


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("documented")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield Place(folder, pullsim_in(spark, patch, NotHeard()))


@pytest.mark.parametrize("one", [pytest.param(one, marks=() if one.words in SAMPLE else slow_proof, id=described(one)) for one in COMMANDS])
def test_a_command_that_is_shown_ends_with_0(
    spark: SparkSession, place: Place, one: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = one.words[one.words.index("--lake") + 1] if "--lake" in one.words else None
    made = place.lake(name) if name else None
    if name and one.words in MADE_BY[name]:
        return  # it ran when the lake was made
    (tmp_path / "data").mkdir()
    if name and made and writes_to_the_lake(one.words):
        shutil.copytree(made, tmp_path / name)
    if one.words[0] == "stream":
        (tmp_path / "incoming").mkdir()
        shutil.copy(place.folder / "trace.jsonl", tmp_path / "incoming")
    ended = [word for what, more in ENDED_BY.items() if what in one.words for word in more]
    if "--watch" in one.words:
        monkeypatch.setattr("pipeline.files.stopping.told_to_stop", told_already)
    monkeypatch.chdir(tmp_path)
    code, _, err = pullsim_in(spark, monkeypatch, capsys)(*placed(one.words, tmp_path, place.folder), *ended)
    # later versions record another diskFallBehind, so a comparison ends with 1; clients do not see it, so `upgrade` ends with 0
    assert code == (1 if compares_versions(one.words) else 0), err
    if name and made and writes_to_the_lake(one.words):
        written = Lake(spark, str(tmp_path / name))
        assert [broken for broker in written.brokers() for broken in broken_constraints(OpenedBroker(written, broker)).collect()] == []


def test_what_is_not_run_here_is_known() -> None:
    assert {words for making in MADE_BY.values() for words in making} <= {one.words for one in COMMANDS}
    assert len(COMMANDS) > 60
    assert {program for page in PAGES for program in programs(page)} == {"pullsim", *PROGRAMS}
