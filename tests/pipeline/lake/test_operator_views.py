"""The views that answer operators' questions, over an imported and captured store, compared with logs of the broker and its clients."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.capture import exchanges
from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import LakeWriter
from pipeline.lake.views import create_views
from pipeline.schema import tables as t
from pipeline.schema.capture_tables import PULL_REQUEST, SUBSCRIPTION
from tests.makers.lakes import import_as
from tests.models.operator_answers import CORRECTIONS, CapturedAnswers, outcome
from tests.models.store_lag import write_offsets
from tests.runs.replaying import NOON
from tests.runs.sampling import slow_proof
from tests.truth.captured import rows_of, unpack
from tests.truth.golden import golden_lines, needs_golden
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [needs_golden, slow_proof]
BROKER, TRACED = "broker-a", "traced"
TRACES = ("basic-mixmem", "holes-default")  # reads from disk; messages and files of queues that are gone
# pulls that are taken for held and were not, or the other way round
HELD_WRONG_MAX = 25
# (group, topic) -> offset of all queues of the topic: groups that lag, with filters of all kinds
BEHIND = {
    ("g-tag", "orders"): 0,
    ("g-sqlx", "orders"): 300,
    ("g-first", "ledger"): 100,
    ("g-sql", "metrics"): 200,
    ("g-sqlx", "metrics"): 450,
    ("g-pull", "metrics"): 500,
    ("g-lite", "metrics"): 10_000,
    ("nobody-knows", "promo"): 5,
}
Key = tuple[Any, ...]
Views = dict[str, list[dict[str, Any]]]
VIEWS = (
    *("pull_outcome", "offset_correction", "pull_nothing_found", "filter_efficiency", "disk_read", "pull_hold"),
    *("group_filter", "consume_lag_matched", "hot_queue", "topic_size", "message"),
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> CapturedAnswers:
    """A capture and its store, in which some groups have more lag."""
    folder = unpack("json", tmp_path_factory.mktemp("capture"), store=True)
    store = shutil.copytree(folder / "store", tmp_path_factory.mktemp("behind") / "store")
    known = CapturedAnswers(folder)
    offsets = {(topic, group): queues for (group, topic), queues in known.lag.offsets.items()}
    for (group, topic), offset in BEHIND.items():
        offsets[topic, group] = {queue_id: offset for name, queue_id in known.lag.queues if name == topic}
    write_offsets(store, offsets)
    return CapturedAnswers(folder, store)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, answers: CapturedAnswers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the store and its capture, and with a second broker that has only a recorded trace."""
    folder = tmp_path_factory.mktemp("operators") / "lake"
    import_as(spark, folder, answers.store, BROKER)
    captured: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for kind, row in rows_of(answers.folder / "traffic.pcap"):
        captured[kind].append(row)
    write(spark, folder, BROKER, {PULL_REQUEST: captured[exchanges.PULL], SUBSCRIPTION: captured[exchanges.SUBSCRIPTION]})
    write(spark, folder, TRACED, {t.PULL_RESPONSE: list(map(response_row, trace())), t.REPLAY_RUN: [{"runId": "run", "finishedAt": NOON}]})
    return folder


@pytest.fixture(scope="module")
def views(spark: SparkSession, lake: Path) -> Views:
    """Every row of the views, collected once, and whether the documented queries find a message."""
    session = create_views(Lake(spark, str(lake)).require())
    collected = {name: [row.asDict() for row in session.table(name).collect()] for name in VIEWS}
    for query in documented():
        rows = session.sql(query)  # what it names is there
        if "FROM message" in query:
            collected[query] = [row.asDict() for row in rows.head(1)]
    return collected


def write(spark: SparkSession, lake: Path, broker: str, found: dict[t.Table, list[dict[str, Any]]]) -> None:
    writer = LakeWriter(Lake(spark, str(lake)), run_id="captured", what="capture", broker=broker)
    for table, rows in found.items():
        values = [tuple((row | {"brokerName": broker}).get(name) for name in table.names) for row in rows]
        writer.replace_rows(table, spark.createDataFrame(values, table.schema).coalesce(1))
    writer.commit(NOON)


def trace() -> list[dict[str, Any]]:
    """Recorded pulls of the real store, also those for which the store returned null or threw."""
    return [line for name in TRACES for line in golden_lines("store", "traces", f"{name}.jsonl") if "request" in line]


def response_row(line: dict[str, Any]) -> dict[str, Any]:
    asked, told = line["request"], line["response"] or {}
    row = {name: value for name, value in told.items() if name in t.PULL_RESPONSE.names}
    return row | {
        "topic": asked["topic"],
        "queueId": asked["queueId"],
        "queueOffset": asked["offset"],
        "consumerGroup": asked["group"],
        "maxMsgNums": asked["maxMsgNums"],
        "runId": "run",
    }


def documented() -> list[str]:
    """The queries of docs/sql.md."""
    page = (PROJECT / "docs" / "sql.md").read_text("utf-8")
    return re.findall(r'pullsim sql --lake lake "(SELECT [^"]+)"', page)


def of_source(views: Views, name: str, source: str) -> list[dict[str, Any]]:
    return [row for row in views[name] if row["source"] == source]


def test_every_pull_ended_as_the_broker_says(views: Views, answers: CapturedAnswers) -> None:
    wanted: Counter[Key] = Counter()
    for one in answers.pulls:
        asked, told = one["request"]["ext"], (one["response"] or {"ext": {}})["ext"]
        given = (int(told[name]) if name in told else None for name in ("nextBeginOffset", "minOffset", "maxOffset"))
        # the remark of an answer of the store is its status
        said = one["response"]["remark"] if one["response"] and outcome(one) != one["response"]["remark"] else None
        queue = asked["consumerGroup"], asked["topic"], int(asked["queueId"])
        wanted[*queue, int(asked["queueOffset"]), outcome(one), *given, one["peer"], said] += 1
    names = ("consumerGroup", "topic", "queueId", "queueOffset", "outcome", "nextBeginOffset", "minOffset", "maxOffset", "client", "remark")
    assert Counter(tuple(row[name] for name in names) for row in of_source(views, "pull_outcome", "CAPTURED")) == wanted


def test_each_correction_is_an_event_that_the_broker_stored(views: Views, answers: CapturedAnswers) -> None:
    found = of_source(views, "offset_correction", "CAPTURED")
    names = ("consumerGroup", "topic", "queueId", "offsetRequest", "offsetNew")
    assert Counter(tuple(row[name] for name in names) for row in found) == Counter(answers.moved_events())
    assert {row["status"] for row in found} == {"OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY", "NO_MESSAGE_IN_QUEUE"}
    for row in found:
        asked, given = row["offsetRequest"], row["offsetNew"]
        assert row["skipped"] == max(given - max(asked, 0), 0)
        assert row["readAgain"] == max(min(asked, row["maxOffset"]) - given, 0)
    assert {row["skipped"] > 0 for row in found} == {True, False}


def test_corrections_of_a_replay_are_those_of_the_trace(views: Views) -> None:
    wanted: Counter[Key] = Counter()
    for line in trace():
        told = line["response"] or {}
        if told.get("status") in CORRECTIONS and told["nextBeginOffset"] != line["request"]["offset"]:
            wanted[told["status"], line["request"]["offset"], told["nextBeginOffset"]] += 1
    found = of_source(views, "offset_correction", "REPLAYED")
    assert Counter((row["status"], row["offsetRequest"], row["offsetNew"]) for row in found) == wanted
    assert {status for status, _, _ in wanted} == CORRECTIONS


def test_pulls_that_found_nothing_are_counted_with_their_share_and_why(views: Views, answers: CapturedAnswers) -> None:
    ended: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in answers.pulls:
        ended[one["request"]["ext"]["consumerGroup"], one["request"]["ext"]["topic"]][outcome(one)] += 1
    wanted = {
        (*key, name): (count, pytest.approx(count / counts.total()))
        for key, counts in ended.items()
        for name, count in counts.items()
        if name != "FOUND"
    }
    found = of_source(views, "pull_nothing_found", "CAPTURED")
    assert {(row["consumerGroup"], row["topic"], row["outcome"]): (row["pulls"], row["share"]) for row in found} == wanted
    assert all(row["why"] and row["firstMicros"] <= row["lastMicros"] for row in found)


def test_reads_from_disk_are_counted_where_they_are_known(views: Views) -> None:
    wanted: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for line in trace():
        if (line["response"] or {}).get("status") == "FOUND":
            wanted[line["request"]["group"], line["request"]["topic"], line["request"]["queueId"]].append(line["response"])
    found = {(row["consumerGroup"], row["topic"], row["queueId"]): row for row in of_source(views, "disk_read", "REPLAYED")}
    assert found.keys() == wanted.keys()
    for key, told in wanted.items():
        disk = [one["messageCount"] for one in told if one["suggestPullingFromSlave"]]
        memory = [one["messageCount"] for one in told if not one["suggestPullingFromSlave"]]
        row = found[key]
        assert (row["found"], row["fromDisk"], row["fromDiskUnknown"], row["reason"]) == (len(told), len(disk), 0, None)
        assert row["messagesFromDisk"] == (pytest.approx(sum(disk) / len(disk)) if disk else None)
        assert row["messagesFromMemory"] == (pytest.approx(sum(memory) / len(memory)) if memory else None)
    assert {row["fromDisk"] > 0 for row in found.values()} == {True, False}
    captured = of_source(views, "disk_read", "CAPTURED")
    assert {(row["fromDisk"], row["reason"]) for row in captured} == {(None, "NOT_ON_THE_WIRE")}


def test_filters_let_pass_what_the_answers_say(views: Views, answers: CapturedAnswers) -> None:
    wanted: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for line in trace():
        asked, told = line["request"], line["response"] or {}
        if told.get("status") in {"FOUND", "NO_MATCHED_MESSAGE"}:
            nothing = told["status"] == "NO_MATCHED_MESSAGE"
            passed = told["nextBeginOffset"] - asked["offset"]
            sums = wanted[asked["group"], asked["topic"]]
            wanted[asked["group"], asked["topic"]] = [a + b for a, b in zip(sums, (1, nothing, passed, told["messageCount"]), strict=True)]
    found = {(row["consumerGroup"], row["topic"]): row for row in of_source(views, "filter_efficiency", "REPLAYED")}
    names = ("pulls", "pullsForNothing", "offsetsPassed", "messageCount")
    assert {key: [row[name] for name in names] for key, row in found.items()} == wanted
    assert all(
        row["efficiency"] == pytest.approx(row["messageCount"] / row["offsetsPassed"]) for row in found.values() if row["offsetsPassed"]
    )

    captured: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    for one in answers.pulls:
        if outcome(one) in {"FOUND", "NO_MATCHED_MESSAGE"}:
            asked, told = one["request"]["ext"], one["response"]["ext"]
            passed = int(told["nextBeginOffset"]) - int(asked["queueOffset"])
            sums = captured[asked["consumerGroup"], asked["topic"]]
            counted = (1, outcome(one) == "NO_MATCHED_MESSAGE", passed)
            captured[asked["consumerGroup"], asked["topic"]] = [a + b for a, b in zip(sums, counted, strict=True)]
    on_wire = {(row["consumerGroup"], row["topic"]): row for row in of_source(views, "filter_efficiency", "CAPTURED")}
    assert {key: [row[name] for name in names[:3]] for key, row in on_wire.items()} == captured
    # how many messages an answer has the capture does not keep, but that it has none
    known = {key for key, (pulls, nothing, _) in captured.items() if pulls == nothing}
    assert {key for key, row in on_wire.items() if row["reason"] is None} == known
    filters = answers.filters()
    assert all(row["expression"] == filters[key][1] for key, row in on_wire.items() if key in filters)


def test_held_pulls_end_as_the_broker_says(views: Views, answers: CapturedAnswers) -> None:
    endings = {"FOUND": "MESSAGE", "NO_MATCHED_MESSAGE": "NOT_FOR_IT", "NO_ANSWER": "NO_ANSWER"}
    held = [one for one in answers.pulls if one["held"]]
    wanted = Counter((one["request"]["ext"]["consumerGroup"], endings.get(outcome(one), "TIMEOUT")) for one in held)
    found = views["pull_hold"]
    ours = Counter((row["consumerGroup"], row["ending"]) for row in found)
    assert (wanted - ours).total() + (ours - wanted).total() <= HELD_WRONG_MAX
    assert {row["heldMillis"] is None for row in found if row["ending"] == "NO_ANSWER"} == {True}
    # checked every five seconds: a timeout of 15 s comes after 15 to 20, that of a pull consumer after its own
    timeouts = [row["heldMillis"] for row in found if row["ending"] == "TIMEOUT"]
    assert max(timeouts) < 20_100


def test_filters_are_what_clients_told_last(views: Views, answers: CapturedAnswers) -> None:
    found = views["group_filter"]
    wanted = answers.filters()
    told = [row for row in found if row["knownFrom"] != "RETRY_TOPIC"]
    assert {(row["consumerGroup"], row["topic"]): (row["expressionType"], row["expression"]) for row in told} == wanted
    assert {row["knownFrom"] for row in found} >= {"HEART_BEAT", "PULL_MESSAGE"}
    assert max(row["filters"] for row in found) > 1


def test_lag_is_counted_through_the_filter_of_the_group(views: Views, answers: CapturedAnswers) -> None:
    filters = answers.filters()
    found = views["consume_lag_matched"]
    kinds = set()
    for row in found:
        group, topic = row["consumerGroup"], row["topic"]
        matched = tuple(row[name] for name in ("lagMatched", "lagMatchedBytes", "lagMatchedMillis"))
        if row["consumerOffset"] is None:
            assert (row["reason"], matched) == ("NO_OFFSET", (None, None, None))
        elif (group, topic) not in filters:
            assert (row["reason"], matched) == ("NO_FILTER", (None, None, None))
        else:
            kind, expression = filters[group, topic]
            wanted = answers.matched(topic, row["queueId"], row["consumerOffset"], kind, expression)
            assert (group, topic, matched) == (group, topic, wanted)
            kinds.add((kind, 0 < wanted[0] < row["lag"]))
    assert kinds >= {("TAG", True), ("SQL92", True)}
    assert {row["reason"] for row in found if (row["consumerGroup"], row["topic"]) == ("g-tag", "orders")} == {"OFFSET_BELOW_MIN"}
    assert {row["reason"] for row in found if row["consumerGroup"] == "nobody-knows"} == {"NO_FILTER"}


def test_queues_are_as_big_as_their_files_say(views: Views, answers: CapturedAnswers) -> None:
    known: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for key, queue in answers.lag.queues.items():
        kept = (entry for number, entry in queue.entries.items() if number >= queue.minimum)
        known[key] = [(size, answers.records[at].store_timestamp) for at, size in kept if at in answers.records]
    by_topic: dict[str, list[list[tuple[int, int]]]] = defaultdict(list)
    for (topic, _), entries in known.items():
        by_topic[topic].append(entries)
    found = {(row["topic"], row["queueId"]): row for row in views["hot_queue"]}
    assert found.keys() == known.keys()
    for (topic, queue_id), entries in known.items():
        row, total = found[topic, queue_id], sum(map(len, by_topic[topic]))
        assert (row["messages"], row["bytes"]) == (len(entries), sum(size for size, _ in entries))
        share = len(entries) / total if total else None
        assert row["messagesShare"] == (None if share is None else pytest.approx(share))
        assert row["timesFairShare"] == (None if share is None else pytest.approx(share * len(by_topic[topic])))
        assert (row["firstStoreTimestamp"], row["lastStoreTimestamp"]) == spanned(entries)
        assert row["messagesPerSecond"] == rate(len(entries) - 1, *spanned(entries))
    brief = 0
    sizes = {row["topic"]: row for row in views["topic_size"]}
    assert sizes.keys() == by_topic.keys()
    for topic, queues in by_topic.items():
        entries = [entry for queue in queues for entry in queue]
        first, last = spanned(entries)
        row = sizes[topic]
        assert (row["queues"], row["messages"], row["bytes"]) == (len(queues), len(entries), sum(size for size, _ in entries))
        assert row["offsets"] == sum(queue.maximum for (name, _), queue in answers.lag.queues.items() if name == topic)
        assert row["messagesPerSecond"] == rate(len(entries) - 1, first, last)
        assert row["bytesPerSecond"] == rate(row["bytes"], first, last)
        brief += first is not None and last is not None and 0 < last - first < 1000
    assert brief, "no topic whose messages lie within a second"
    kinds = {topic: sizes[topic]["kind"] for topic in ("%RETRY%g-main", "SCHEDULE_TOPIC_XXXX", "orders")}
    assert kinds == {"%RETRY%g-main": "RETRY", "SCHEDULE_TOPIC_XXXX": "SCHEDULE", "orders": "NORMAL"}


def spanned(entries: list[tuple[int, int]]) -> tuple[int | None, int | None]:
    stamps = [stamp for _, stamp in entries]
    return (min(stamps), max(stamps)) if stamps else (None, None)


def rate(number: int, first: int | None, last: int | None) -> Any:
    """`number` a second from `first` to `last`, ms; None for less than a second, in which two messages would be a high rate."""
    return pytest.approx(number * 1000 / (last - first)) if first is not None and last is not None and last - first >= 1000 else None


def test_messages_are_what_the_clients_got(views: Views, answers: CapturedAnswers) -> None:
    found = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in views["message"]}
    got = 0
    with (answers.folder / "consumption.jsonl").open(encoding="utf-8") as lines:
        for one in map(json.loads, lines):
            row = found.get((one["mq_topic"], one["queueId"], one["queueOffset"]))
            if row is None:  # deleted before the capture
                continue
            got += 1
            assert (row["uniqKey"], row["msgId"]) == (one["msgId"], one["offsetMsgId"])
            assert (row["tags"], row["storeTimestamp"]) == (one["tags"], one["storeTimestamp"])
            if one["kind"] != "push-orderly":  # such clients count on their own
                assert row["reconsumeTimes"] == one["reconsumeTimes"]
            assert (row["keys"], row["keyList"]) == (one["keys"], one["keys"].split() if one["keys"] is not None else None)
            if row["bodyReason"] is None:
                body = row["bodyText"].encode()
                assert (len(body), row["bodySize"]) == (one["bodyLen"], one["bodyLen"])
                assert zlib.crc32(body) & 0x7FFFFFFF == one["bodyCrc32"] & 0x7FFFFFFF
            if one["topic"] != one["mq_topic"]:
                assert row["originTopic"] == one["topic"]
    assert got > 10_000


def test_documented_queries_for_messages_find_some(views: Views) -> None:
    queries = [query for query in documented() if "FROM message" in query]
    assert len(queries) == 9
    assert [query for query in queries if not views[query]] == []
