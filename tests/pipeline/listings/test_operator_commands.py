"""The operator's commands over two real brokers: compared with the log of a captured one, and with the report of one at its shutdown."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.listings import table
from pipeline.simulation.scenario import read_scenario
from tests.makers.captured_lakes import captured_broker
from tests.makers.plain_lakes import add_broker
from tests.models.operator_answers import CapturedAnswers, Record
from tests.runs.in_session import NotHeard, Pullsim, pullsim_in
from tests.runs.sampling import ALL, sampled, slow_proof
from tests.runs.verdicts import on_one_line
from tests.truth.captured import PULL_MESSAGE, consumer_offsets, exchanges
from tests.truth.golden import needs_golden
from tests.truth.golden5 import needs_golden5, unpacked
from udfs.broker.system_groups import SYSTEM_GROUPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [needs_golden, needs_golden5]
CAPTURED, ASKED = "broker-a", "broker-5"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
HEART_BEAT, UNREGISTER, COMMIT, PULL = 34, 35, 15, 11
PULL_OFFSET_MOVED = 21
RESET_CONSUMER_CLIENT_OFFSET = 220
# how a body that a client compressed begins, by level
ZLIB = {b"x\x01", b"x\x5e", b"x\x9c", b"x\xda"}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def answers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CapturedAnswers:
    return CapturedAnswers(captured_broker(spark, tmp_path_factory))


@pytest.fixture(scope="module")
def live() -> Path:
    """The folder with the store of a 5.5.0 broker, and with what the broker reported just before its shutdown."""
    return unpacked("live") / "live"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, answers: CapturedAnswers, live: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of the captured broker, and the other broker's store."""
    folder = Path(shutil.copytree(answers.folder / "lake", tmp_path_factory.mktemp("operators") / "lake"))
    with pytest.MonkeyPatch.context() as patch:
        pullsim = pullsim_in(spark, patch, NotHeard())
        other = folder if ALL else folder.with_name("other")  # Spark alone imports into a lake of another broker
        assert pullsim("import", live / "store", "--lake", other, "--broker-name", ASKED, "--rules", "5.5.0")[0] == 0
    if not ALL:
        add_broker(folder, ASKED, other)
    return folder


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def rows(pullsim: Pullsim, lake: Path, *words: str) -> Rows:
    code, out, err = pullsim(*words, "--lake", lake, "--format", "json", "--engine", "duckdb")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def told(live: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((live / "broker.json").read_text("utf-8"))
    return answer


def test_groups_have_the_lag_of_the_files_and_the_commits_of_the_log(pullsim: Pullsim, lake: Path, answers: CapturedAnswers) -> None:
    found = {row["consumerGroup"]: row for row in rows(pullsim, lake, "groups", "--broker", CAPTURED)}
    lags: dict[str, int] = defaultdict(int)
    for (_, group, topic, _), row in answers.lag.rows(CAPTURED).items():
        lags[group] += 0 if topic.startswith("%RETRY%") else max(row["lag"] or 0, 0)
    assert {group: found[group]["lag"] for group in lags} == lags
    commits: dict[str, int] = {}
    for one in exchanges(answers.folder):
        ext = one["request"]["ext"] or {}
        if one["request"]["code"] == COMMIT or (one["request"]["code"] == PULL and int(ext["sysFlag"]) & 1):
            commits[ext["consumerGroup"]] = one["t_arrive_us"]
    assert {group for group, row in found.items() if row["lastCommitMicros"] is not None} == set(commits)
    assert all(abs(found[group]["lastCommitMicros"] - at) < 200_000 for group, at in commits.items())
    whole = {row["consumerGroup"]: row for row in rows(pullsim, lake, "groups", "--all", "--broker", CAPTURED)}
    never = [row for group, row in whole.items() if group not in lags]
    assert {(row["lag"], row["status"]) for row in never} == {(None, "UNKNOWN")}
    assert whole.keys() - found.keys() == set(SYSTEM_GROUPS), "nobody used these groups of subscriptionGroup.json"


def test_the_lag_of_push_groups_is_what_their_broker_said(pullsim: Pullsim, lake: Path, live: Path) -> None:
    found = {row["consumerGroup"]: row for row in rows(pullsim, lake, "groups", "--broker", ASKED)}
    wanted = {one["group"]: one["lag"] for one in told(live)["lag"] if not one["pop"]}
    assert {group: found[group]["lag"] for group in wanted} == wanted
    assert len(set(wanted.values())) > 2
    assert {row["clients"] for row in found.values()} == {None}, "no capture of this broker"


def test_topics_have_the_messages_of_their_queues(pullsim: Pullsim, lake: Path, live: Path) -> None:
    found = {row["topic"]: row for row in rows(pullsim, lake, "topics", "--broker", ASKED)}
    wanted: dict[str, int] = defaultdict(int)
    for queue in json.loads((live / "load-5.5.0.json").read_text("utf-8"))["queues"]:
        wanted[queue["topic"]] += queue["max"] - queue["min"]
    assert {topic: row["messages"] for topic, row in found.items() if row["queues"]} == wanted
    assert any(row["queues"] == 0 for row in found.values()), "topics of topics.json alone"
    groups: dict[str, set[str]] = defaultdict(set)
    for one in told(live)["offsets"]:
        groups[one["topic"]].add(one["group"])
    assert {topic: row["consumerGroups"] for topic, row in found.items() if row["consumerGroups"]} == {
        topic: len(names) for topic, names in groups.items()
    }


def test_clients_are_those_whose_heartbeats_the_broker_logged(pullsim: Pullsim, lake: Path, answers: CapturedAnswers) -> None:
    states: dict[tuple[str, str | None], str] = {}
    for one in exchanges(answers.folder):
        if one["request"]["code"] == HEART_BEAT:
            beat = json.loads(base64.b64decode(one["request"]["body_b64"]))
            states |= {(group["groupName"], beat["clientID"]): "CONNECTED" for group in beat["consumerDataSet"]}
        elif one["request"]["code"] == UNREGISTER and one["request"]["ext"].get("consumerGroup"):
            key = (one["request"]["ext"]["consumerGroup"], one["request"]["ext"]["clientID"])
            states |= {key: "UNREGISTERED"} if key in states else {}
    pulled = {one["request"]["ext"]["consumerGroup"] for one in answers.pulls} - {group for group, _ in states}
    found = rows(pullsim, lake, "clients")
    assert {(row["consumerGroup"], row["clientId"]): row["state"] for row in found if row["clientId"]} == states
    silent = [row for row in found if row["clientId"] is None]
    assert {row["consumerGroup"] for row in silent} >= pulled
    assert {row["state"] for row in silent} == {"CLOSED"}, "the connection ended before the capture did"
    assert Counter(pulls=sum(row["pulls"] for row in found)) == Counter(pulls=len(answers.pulls))
    assert pulled


def test_topics_of_a_client_are_those_that_it_subscribes_to_or_pulls_from(pullsim: Pullsim, lake: Path, answers: CapturedAnswers) -> None:
    topics: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in exchanges(answers.folder):
        if one["request"]["code"] == HEART_BEAT:
            for group in json.loads(base64.b64decode(one["request"]["body_b64"]))["consumerDataSet"]:
                topics[group["groupName"], one["peer"]] |= {data["topic"] for data in group["subscriptionDataSet"]}
    pulled: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in answers.pulls:
        pulled[one["request"]["ext"]["consumerGroup"], one["peer"]].add(one["request"]["ext"]["topic"])
    found = {(row["consumerGroup"], row["address"]): row["topics"] for row in rows(pullsim, lake, "clients")}
    assert found == {client: len(topics[client] or pulled[client]) for client in topics.keys() | pulled.keys()}
    assert any(client in topics and not topics[client] for client in found), "a client that only pulls tells no topics"


def test_queues_of_clients_are_those_that_the_broker_was_asked_for(pullsim: Pullsim, lake: Path, answers: CapturedAnswers) -> None:
    ids: dict[tuple[str, str], str] = {}
    for one in exchanges(answers.folder):
        if one["request"]["code"] == HEART_BEAT:
            beat = json.loads(base64.b64decode(one["request"]["body_b64"]))
            ids |= {(group["groupName"], one["peer"]): beat["clientID"] for group in beat["consumerDataSet"]}
    wanted: Counter[tuple[str, str, int, str]] = Counter()
    last: dict[tuple[str, str, int], str] = {}
    for one in sorted(answers.pulls, key=lambda one: one["t_arrive_us"]):
        asked = one["request"]["ext"]
        queue = asked["consumerGroup"], asked["topic"], int(asked["queueId"])
        wanted[*queue, one["peer"]] += 1
        last[queue] = one["peer"]
    found = rows(pullsim, lake, "clients", "--queues")
    assert {(row["consumerGroup"], row["topic"], row["queueId"], row["address"]): row["pulls"] for row in found} == wanted
    assert {row["clientId"] for row in found} - {None} <= set(ids.values())
    assert all(row["clientId"] == ids.get((row["consumerGroup"], row["address"])) for row in found)
    first = {(row["consumerGroup"], row["topic"], row["queueId"]): row["address"] for row in reversed(found)}
    assert sum(first[queue] == peer for queue, peer in last.items()) >= 0.9 * len(last)  # the broker's clock is not that of the packets
    code, _, err = pullsim("clients", "--lake", lake, "--topic", "orders")
    assert (code, "--topic cannot be used without --queues" in err) == (2, True)


def test_what_waits_in_a_queue_waits_for_the_client_that_pulled_last(pullsim: Pullsim, lake: Path) -> None:
    lags = {
        (row["consumerGroup"], row["topic"], row["queueId"]): (row["lag"], row["lagMillis"])
        for row in rows(pullsim, lake, "lag", "--broker", CAPTURED)
    }
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows(pullsim, lake, "clients", "--queues", "--broker", CAPTURED):
        found[row["consumerGroup"], row["topic"], row["queueId"]].append(row)
    waiting = 0
    for place, pulled in found.items():
        last, *others = sorted(pulled, key=lambda row: -row["lastMicros"])
        assert (last["lag"], last["lagMillis"]) == lags.get(place, (None, None))
        assert {(row["lag"], row["lagMillis"]) for row in others} <= {(None, None)}
        waiting += max(last["lag"] or 0, 0)
    assert waiting > 100
    told = on_one_line(pullsim("clients", "--queues", "--lake", lake, "--broker", CAPTURED)[1])
    assert f"{waiting:,} messages wait for " in told


def test_the_last_move_of_a_queue_leads_to_the_stored_offset(pullsim: Pullsim, lake: Path, answers: CapturedAnswers) -> None:
    stored = consumer_offsets(answers.folder)
    last: dict[tuple[str, str, int], int] = {}
    for group in sorted({group for _, group, _ in stored}):
        moves = rows(pullsim, lake, "offsets", "--group", group, "--sort", "micros:asc")
        last |= {(move["topic"], group, move["queueId"]): move["toOffset"] for move in moves}
    assert len(last) > 50
    assert last == {key: stored[key] for key in last}


def test_moves_back_are_those_that_the_broker_got(pullsim: Pullsim, lake: Path, answers: CapturedAnswers) -> None:
    committed: dict[tuple[str, int], list[int]] = defaultdict(list)
    for one in exchanges(answers.folder):
        ext = one["request"]["ext"] or {}
        if one["request"]["code"] == COMMIT and ext["consumerGroup"] == "g-pull":
            committed[ext["topic"], int(ext["queueId"])].append(int(ext["commitOffset"]))
    back = [(*queue, before, after) for queue, offsets in committed.items() for before, after in pairwise(offsets) if after < before]
    found = rows(pullsim, lake, "offsets", "--group", "g-pull", "--back")
    assert sorted((row["topic"], row["queueId"], row["fromOffset"], row["toOffset"]) for row in found) == sorted(back)
    assert back
    assert {(row["how"], row["clientId"]) for row in found} == {("BACK", "127.0.0.1@g-pull-1")}
    ends = {key: queue.maximum for key, queue in answers.lag.queues.items()}
    again = {}
    for topic, queue_id, before, after in back:
        # an offset past the end was set, not consumed: the group had consumed up to the greatest offset within the queue
        inside = [offset for offset in committed[topic, queue_id] if offset <= ends[topic, queue_id]]
        reached = before if before <= ends[topic, queue_id] else max(inside[: inside.index(after) + 1])
        again[topic, queue_id, before] = reached - after
    assert {(row["topic"], row["queueId"], row["fromOffset"]): row["readAgain"] for row in found} == again
    past_the_end = rows(pullsim, lake, "offsets", "--group", "g-first", "--back", "--topic", "ledger")
    # the offsets were past the end, so nothing is consumed twice
    assert {row["readAgain"] for row in past_the_end if row["how"] == "BACK"} == {0}
    assert any(row["fromOffset"] > ends["ledger", row["queueId"]] for row in past_the_end)


def plain(body: bytes) -> bytes:
    """A body as consumers get it; the bodies of these clients are words, so that a header of zlib is no word."""
    return zlib.decompress(body) if body[:2] in ZLIB else body


def test_pulls_that_were_sent_elsewhere_are_those_of_the_log(pullsim: Pullsim, lake: Path, answers: CapturedAnswers) -> None:
    logged = [one for one in exchanges(answers.folder) if one["request"]["code"] == PULL and (one.get("response") or {}).get("code") == 21]
    wanted = Counter((one["request"]["ext"]["consumerGroup"], int(one["response"]["ext"]["nextBeginOffset"])) for one in logged)
    found = rows(pullsim, lake, "pulls", "--broker", CAPTURED, "--outcome", "PULL_OFFSET_MOVED")
    assert Counter((row["consumerGroup"], row["nextBeginOffset"]) for row in found) == wanted


@pytest.mark.parametrize("options", [("--key", "main2-335"), ("--tag", "refund"), ("--text", "debit841"), ("--topic", "promo")])
def test_messages_are_found_by_what_is_in_them(pullsim: Pullsim, lake: Path, answers: CapturedAnswers, options: tuple[str, str]) -> None:
    kind, value = options
    tests = {
        "--key": lambda one: value in one.properties.get("KEYS", "").split(),
        "--tag": lambda one: one.properties.get("TAGS") == value,
        "--text": lambda one: value.encode() in plain(one.body),
        "--topic": lambda one: one.topic == value,
    }
    wanted = sorted((one.topic, one.queue_id, one.queue_offset) for one in answers.records.values() if tests[kind](one))
    topic, queue, offset = wanted[len(wanted) // 2]
    found = rows(pullsim, lake, "message", kind, value, "--broker", CAPTURED)
    assert sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in found) == wanted
    assert wanted
    stamps = [row["storeTimestamp"] for row in found]
    assert stamps == sorted(stamps, reverse=True)
    place = ("--topic", topic, "--queue", str(queue), "--offset", str(offset), "--broker", CAPTURED)
    [at] = rows(pullsim, lake, "message", *place)
    assert (at["topic"], at["queueId"], at["queueOffset"]) == (topic, queue, offset)


def test_a_message_is_found_by_either_of_its_ids_and_shown_whole(pullsim: Pullsim, lake: Path, live: Path) -> None:
    sent = [json.loads(line) for line in (live / "sent.jsonl").read_text("utf-8").splitlines()]
    one = next(line for line in sent if line["kind"] == "plain" and line["tags"] and line["keys"])
    for name in ("msgId", "offsetMsgId"):
        [found] = rows(pullsim, lake, "message", "--id", one[name])
        of_queue = ("--topic", one["topic"], "--queue", str(one["queueId"]))
        assert {row["queueId"] for row in rows(pullsim, lake, "lag", *of_queue)} == {one["queueId"]}
        assert [found[key] for key in ("topic", "queueId", "queueOffset", "uniqKey", "msgId", "tags", "keys")] == [
            one[key] for key in ("topic", "queueId", "queueOffset", "msgId", "offsetMsgId", "tags", "keys")
        ]
        code, out, _ = pullsim("message", "--id", one[name], "--lake", lake)
        assert code == 0
        whole, _, about = out.partition("\n\n")
        shown = dict(line.split("  ", 1) for line in whole.splitlines())
        assert about == (
            f"pullsim lag --topic {one['topic']} --queue {one['queueId']} shows which groups are past offset {one['queueOffset']}: they "
            "consumed it, unless their filter dropped it or they began after it; groups that broadcast store no offset\n"
        )
        assert (shown["Topic"].strip(), shown["Unique key"].strip(), shown["Tags"].strip()) == (one["topic"], one["msgId"], one["tags"])


def test_a_compressed_body_is_searched_and_shown_as_consumers_get_it(pullsim: Pullsim, lake: Path) -> None:
    compressed = rows(pullsim, lake, "sql", "SELECT * FROM message WHERE bodyReason = 'COMPRESSED' AND tags IS NOT NULL LIMIT 1")[0]
    text = zlib.decompress(bytes.fromhex(compressed["body"])).decode()
    found = rows(pullsim, lake, "message", "--text", text[len(text) // 2 : len(text) // 2 + 60])
    assert text in [row["bodyText"] for row in found]


def test_dead_letters_and_open_transactions_are_those_of_the_broker(pullsim: Pullsim, lake: Path, live: Path) -> None:
    dead = {queue["topic"]: queue for queue in told(live)["queues"] if queue["topic"].startswith("%DLQ%")}
    found = rows(pullsim, lake, "dlq")
    assert {f"%DLQ%{row['consumerGroup']}": (row["messages"], row["newestStoreTimestamp"]) for row in found} == {
        topic: (queue["max"] - queue["min"], queue["lastStoreTimestamp"]) for topic, queue in dead.items()
    }
    assert {row["originTopic"] for row in found} == {one["topic"] for one in told(live)["offsets"] if one["group"] == "cg-dead"}
    pending = {topic: one["count"] for topic, one in told(live)["transactions"]["pendingByTopic"].items()}
    found = rows(pullsim, lake, "transactions")
    assert Counter(row["topic"] for row in found if row["state"] == "PENDING") == pending
    prepared = [json.loads(line) for line in (live / "sent.jsonl").read_text("utf-8").splitlines()]
    unended = {line["msgId"] for line in prepared if line["kind"] == "transaction" and line["localState"] == "UNKNOW"}
    assert {row["uniqKey"] for row in found} == unended


def test_timers_and_pops_are_those_of_the_broker(pullsim: Pullsim, lake: Path, live: Path) -> None:
    said = told(live)
    counts = {topic: one["count"] for topic, one in said["timers"]["pendingByTopic"].items()}
    found = rows(pullsim, lake, "timers")
    assert {row["topic"]: row["pending"] for row in found} == {row["topic"]: row["counted"] for row in found} == counts
    messages = rows(pullsim, lake, "timers", "--messages", "--topic", "alarms")
    sent = [json.loads(line) for line in (live / "sent.jsonl").read_text("utf-8").splitlines()]
    read = said["timers"]["currReadTimeMs"]
    waiting = {line["msgId"]: line["deliverTimeMs"] for line in sent if line.get("deliverTimeMs", 0) - 1000 > read}
    assert {row["uniqKey"] for row in messages} == waiting.keys()
    for row in messages:  # the timer's steps are seconds, and a full second is the step before
        assert row["outMs"] == (waiting[row["uniqKey"]] - 1) // 1000 * 1000
    [checked] = rows(pullsim, lake, "sql", "SELECT count_if(problem IS NOT NULL) AS wrong, sum(messages) AS messages FROM timer_check")
    assert checked == {"wrong": 0, "messages": said["timers"]["slotsCounted"]}
    held = Counter((row["consumerGroup"], row["topic"], row["queueId"]) for row in rows(pullsim, lake, "pop"))
    in_flight = {
        (one["group"], one["topic"], queue): count
        for one in said["lag"]
        for queue, count in enumerate(one.get("popInFlightByQueue", ()))
        if count
    }
    assert held == in_flight
    popped = [json.loads(line) for line in (live / "popped.jsonl").read_text("utf-8").splitlines()]
    acked = {(one["group"], one["topic"], one["queueId"], one["queueOffset"]) for one in popped if one["op"] == "ack"}
    states: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for row in rows(pullsim, lake, "pop", "--all"):
        states[row["consumerGroup"], row["topic"], row["queueId"], row["queueOffset"]].add(row["state"])
    assert {key for key, found in states.items() if found == {"ACKED"}} == acked
    longer = {(one["group"], one["topic"], one["queueId"], one["queueOffset"]) for one in popped if one["op"].startswith("change")}
    assert {key for key, found in states.items() if "EXTENDED" in found} == longer
    assert all(states[key] == {"EXTENDED", "HELD"} for key in longer)
    revived = sum(found == {"REVIVED"} for found in states.values())
    assert revived == sum(queue["max"] for queue in said["queues"] if queue["topic"] == "%RETRY%cg-revive_steps")


def test_delayed_messages_are_those_that_the_broker_did_not_deliver(pullsim: Pullsim, lake: Path, live: Path) -> None:
    levels = {int(name.removeprefix("level")): one for name, one in told(live)["delayLevels"].items() if one["max"]}
    found = {row["delayLevel"]: row for row in rows(pullsim, lake, "delays", "--broker", ASKED)}
    assert {level: row["maxOffset"] for level, row in found.items()} == {level: one["max"] for level, one in levels.items()}
    # between the question and its end the broker delivered a message of level 3
    stored = {level: one["delivered"] for level, one in levels.items()} | {3: 12}
    assert {level: row["storedOffset"] for level, row in found.items()} == stored
    assert {level: row["waiting"] for level, row in found.items()} == {level: one["max"] - stored[level] for level, one in levels.items()}
    sent = [json.loads(line) for line in (live / "sent.jsonl").read_text("utf-8").splitlines()]
    minutes = {9: 5, 14: 10, 18: 120}
    later = {line["msgId"]: line["delayLevel"] for line in sent if line.get("delayLevel") in minutes}
    messages = rows(pullsim, lake, "delays", "--messages", "--broker", ASKED)
    assert {row["uniqKey"]: row["delayLevel"] for row in messages} == later
    assert len(messages) == len(later) > 10
    for row in messages:
        assert (row["state"], row["topic"]) == ("PENDING", "orders")
        assert row["dueMs"] == row["storeTimestamp"] + minutes[row["delayLevel"]] * 60_000


def is_stored_again(one: Record, answers: CapturedAnswers) -> bool:
    """Whether a delayed message was delivered, which means that it is stored again in its real topic."""
    key = one.properties["REAL_TOPIC"], one.properties["UNIQ_KEY"], one.reconsume_times
    return any(
        (other.topic, other.properties.get("UNIQ_KEY"), other.reconsume_times) == key and other.store_timestamp > one.store_timestamp
        for other in answers.records.values()
    )


def test_delayed_messages_of_4_9_3_are_those_without_a_copy_in_their_topic(pullsim: Pullsim, lake: Path, answers: CapturedAnswers) -> None:
    text = (answers.folder / "store" / "config" / "delayOffset.json").read_text("utf-8")
    stored = {int(level): int(offset) for level, offset in re.findall(r"(\d+):(\d+)", text)}
    found = rows(pullsim, lake, "delays", "--broker", CAPTURED)
    assert {row["delayLevel"]: row["storedOffset"] for row in found} == stored
    waiting = {
        (one.queue_id + 1, one.queue_offset, one.properties["REAL_TOPIC"])
        for one in answers.records.values()
        if one.topic == SCHEDULE
        if not is_stored_again(one, answers)
    }
    messages = rows(pullsim, lake, "delays", "--messages", "--broker", CAPTURED)
    assert {(row["delayLevel"], row["queueOffset"], row["topic"]) for row in messages} == waiting
    assert len(messages) == len(waiting) > 5
    assert {row["state"] for row in messages} == {"PENDING"}
    assert sum(row["waiting"] for row in found) == len(waiting)
    retries = sum(topic.startswith("%RETRY%") for _, _, topic in waiting)
    assert sum(row["retries"] for row in found) == retries > 0
    told = on_one_line(pullsim("delays", "--lake", lake, "--broker", CAPTURED)[1])
    assert f"{retries} sent back by groups: no retry lag counts them yet" in told


def test_offsets_that_an_administrator_reset_are_not_blamed_on_the_clients(pullsim: Pullsim, lake: Path, answers: CapturedAnswers) -> None:
    told = [one for one in exchanges(answers.folder) if one["request"]["code"] == RESET_CONSUMER_CLIENT_OFFSET]
    groups = {(one["request"]["ext"]["group"], one["request"]["ext"]["topic"]): one["t_arrive_us"] for one in told}
    [((group, topic), at)] = groups.items()
    moves = rows(pullsim, lake, "offsets", "--back", "--broker", CAPTURED)
    reset = [row for row in moves if row["resetMicros"] is not None]
    assert {(row["consumerGroup"], row["topic"]) for row in reset} == {(group, topic)}
    assert {row["queueId"] for row in reset} == {row["queueId"] for row in moves if row["consumerGroup"] == group}
    assert all(abs(row["resetMicros"] - at) < 1_000_000 < row["micros"] - row["resetMicros"] for row in reset)
    assert {row["asked"] for row in reset} == {"RESET_CONSUMER_CLIENT_OFFSET"}
    _, out, _ = pullsim("offsets", "--back", "--group", group, "--lake", lake, "--broker", CAPTURED)
    assert f"{len(reset)} by an administrator, such as with mqadmin resetOffsetByTime" in on_one_line(out)


def test_offsets_that_the_broker_corrected_are_told_apart(pullsim: Pullsim, lake: Path, answers: CapturedAnswers) -> None:
    sent: dict[tuple[Any, ...], list[int]] = defaultdict(list)  # (group, topic, queue, offset) -> when the broker sent the group there
    for one in exchanges(answers.folder):
        if one["request"]["code"] == PULL_MESSAGE and one.get("response") and one["response"]["code"] == 21:
            asked, told = one["request"]["ext"], one["response"]["ext"]
            place = asked["consumerGroup"], asked["topic"], int(asked["queueId"]), int(told["nextBeginOffset"]), one["peer"]
            sent[place].append(one["t_write_us"])
    moves = [row for row in rows(pullsim, lake, "offsets", "--broker", CAPTURED) if row["how"] in {"BACK", "FORWARD"}]
    found = {True: 0, False: 0}
    for row in moves:
        place = row["consumerGroup"], row["topic"], row["queueId"], row["toOffset"], row["address"]
        before = [row["micros"] - at for at in sent[place]]
        corrected = row["correctionMicros"] is not None
        # the capture's clock and the broker's are some milliseconds apart
        assert corrected == any(-50_000 < micros < 60_000_000 for micros in before), row
        assert (row["asked"] == "PULL_OFFSET_MOVED") == (corrected and row["resetMicros"] is None)
        found[corrected] += 1
    assert found[True] > 3
    assert found[False] > 50
    _, out, _ = pullsim("offsets", "--lake", lake, "--broker", CAPTURED)
    count = sum(row["asked"] == "PULL_OFFSET_MOVED" for row in rows(pullsim, lake, "offsets", "--broker", CAPTURED))
    assert f"{count} by the broker, which had answered PULL_OFFSET_MOVED" in on_one_line(out)


def test_pulls_from_where_groups_begin_are_told_among_the_moved_ones(pullsim: Pullsim, lake: Path, answers: CapturedAnswers) -> None:
    moved = [one["request"]["ext"] for one in answers.pulls if one["response"] and one["response"]["code"] == PULL_OFFSET_MOVED]
    first = sum(int(asked["queueOffset"]) <= 0 for asked in moved)
    _, out, _ = pullsim("pulls", "--lake", lake, "--outcome", "21", "--limit", "3")
    told = f"{len(moved):,} sent to another offset (PULL_OFFSET_MOVED), {first:,} of them from offset 0 or less"
    assert told in on_one_line(out)
    assert 0 < first < len(moved)


def test_messages_that_were_delivered_before_an_old_offset_are_told_from_those_that_wait(
    pullsim: Pullsim, answers: CapturedAnswers, tmp_path: Path
) -> None:
    store = shutil.copytree(answers.folder / "store", tmp_path / "store")
    offsets = store / "config" / "delayOffset.json"
    offsets.write_text(re.sub(r"(\d+):\d+", r"\1:0", offsets.read_text("utf-8")), "utf-8")
    lake = tmp_path / "lake"
    assert pullsim("import", store, "--lake", lake)[0] == 0
    found = {(row["delayLevel"], row["queueOffset"]): row["state"] for row in rows(pullsim, lake, "delays", "--messages")}
    delayed = [one for one in answers.records.values() if one.topic == SCHEDULE]
    wanted = {(one.queue_id + 1, one.queue_offset): "DELIVERED" if is_stored_again(one, answers) else "PENDING" for one in delayed}
    assert found == wanted


def test_the_broker_s_own_lag_is_told_beside_ours(pullsim: Pullsim, lake: Path, live: Path) -> None:
    query = (
        "SELECT consumerGroup, topic, max(isPop) AS pop, sum(brokerLag) AS lag, sum(inFlight) AS inFlight, "
        "sum(available) AS available, coalesce(min(earliestUnconsumedTimestamp), 0) AS earliestUnconsumedTimestamp "
        "FROM broker_lag GROUP BY consumerGroup, topic"
    )
    found = {(row.pop("consumerGroup"), row.pop("topic")): row for row in rows(pullsim, lake, "sql", query)}
    lags = told(live)["lag"]
    assert lags
    for one in lags:
        row = found[one["group"], one["topic"]]
        assert row == {name: one[name] for name in row}


def test_a_scenario_has_the_figures_of_its_group(pullsim: Pullsim, lake: Path, answers: CapturedAnswers, tmp_path: Path) -> None:
    code, out, err = pullsim("simulate", "--lake", lake, "--from-group", "g-tag", "--broker", CAPTURED)
    assert code == 0, err
    [variant] = read_scenario(out, "printed", ())
    scenario = variant.scenario
    of_topic = [one for one in answers.records.values() if one.topic == "orders"]
    stamps = [one.store_timestamp for one in of_topic]
    lags = [row["lag"] for (_, group, topic, _), row in answers.lag.rows(CAPTURED).items() if (group, topic) == ("g-tag", "orders")]
    _, expression = answers.filters()["g-tag", "orders"]
    assert (scenario.group, scenario.topic, scenario.subscription) == ("g-tag", "orders", expression)
    assert (scenario.messages.queues, scenario.messages.backlog) == (len(lags), sum(lags))
    [(begin, rate)] = scenario.messages.rate
    assert begin == 0
    asked = [one["t_arrive_us"] / 1000 for one in answers.pulls]
    since = max(min(asked), min(one.store_timestamp for one in answers.records.values()))
    until = min(max(asked), max(one.store_timestamp for one in answers.records.values()))
    came = sum(since < stamp <= until for stamp in stamps)
    assert rate == pytest.approx(came * 1000 / (until - since), rel=0.01)
    assert rate < 0.8 * len(of_topic) * 1000 / (max(stamps) - min(stamps)), "many messages were there before"
    tags = Counter(one.properties.get("TAGS", "no-tag") for one in of_topic)
    assert dict(scenario.messages.tags) == tags
    assert scenario.messages.body[0] == pytest.approx(sum(len(one.body) for one in of_topic) / len(of_topic), abs=1)
    asked_for = Counter(
        int(one["request"]["ext"]["maxMsgNums"])
        for one in answers.pulls
        if (one["request"]["ext"]["consumerGroup"], one["request"]["ext"]["topic"]) == ("g-tag", "orders")
    )
    assert scenario.consumer.pull_batch_size == asked_for.most_common(1)[0][0]
    assert [part.count for part in scenario.clients] == [1]
    assert "a guess" not in out


LISTS = (
    *(("groups",), ("topics",), ("clients",), ("offsets", "--group", "g-pull"), ("message", "--key", "main2-335"), ("dlq",)),
    *(("timers",), ("pop", "--all"), ("delays",), ("delays", "--messages"), ("pulls", "--outcome", "21"), ("groups", "--queues")),
    *(("transactions",), ("lag", "--behind"), ("lag", "--by", "topic", "--sort", "waited", "--limit", "5")),
)


# the views themselves are compared in tests/pipeline/embedded
@slow_proof
@pytest.mark.parametrize(("words", "form"), sampled([(words, form) for words in LISTS for form in ("table", "json")], 1), ids=str)
def test_spark_shows_the_same(pullsim: Pullsim, lake: Path, words: tuple[str, ...], form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "is_terminal", lambda: True)
    shown = [pullsim(*words, "--lake", lake, "--format", form, "--engine", engine) for engine in ("spark", "duckdb")]
    assert shown[0] == shown[1]
    assert shown[0][0] == 0
    if form == "table":
        assert max(map(len, shown[0][1].splitlines())) <= 100
    else:
        assert shown[0][1]


@slow_proof
@pytest.mark.parametrize("query", ["SELECT * FROM timer_check", "SELECT * FROM broker_lag"])
def test_spark_finds_the_same_rows(pullsim: Pullsim, lake: Path, query: str) -> None:
    asked = ("sql", "--lake", lake, "--format", "json", query, "--engine")
    (code, out, _), (other_code, other, _) = (pullsim(*asked, engine) for engine in ("spark", "duckdb"))
    assert (code, other_code) == (0, 0)
    assert sorted(out.splitlines()) == sorted(other.splitlines()) != []
