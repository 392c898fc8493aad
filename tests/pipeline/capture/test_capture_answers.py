"""Captured pulls get the recorded answers, except for races, from a plain broker without Spark over the store of the captured broker.

The tests find from the capture which pulls are refused, which filters the others have, and what the bodies are. The analysis beside the
capture was made in the broker's process: it counts the answers that follow from the recorded maxOffset.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from pipeline.capture.exchanges import PULL, SUBSCRIPTION, Row
from pipeline.capture.pull_checks import broker_config, check
from pipeline.capture.registrations import registered
from pipeline.schema.capture_tables import PULL_REQUEST
from pipeline.schema.capture_tables import SUBSCRIPTION as SUBSCRIPTIONS
from pipeline.schema.table import Table
from pipeline.settings.settings import BrokerSettings
from tests.makers.recorded_pulls import CODES, DEFAULTS, bytes_at
from tests.models.slow_broker import Bounds, SlowBroker
from tests.runs.sampling import sampled
from tests.truth.captured import CAPTURES, config, properties, rows_of, unpack
from tests.truth.golden import needs_golden

OWN_SUBSCRIPTION = 4
NO_OFFSETS = {1, 16, 17, 23, 24, 25, 26, 27, 28}


def of_table(table: Table, row: Row) -> Row:
    return {name: row.get(name) for name in table.names}


def events(rows: list[tuple[str, Row]]) -> Iterator[tuple[tuple[Any, ...], Row]]:
    """(sort key, row) of what `registered` walks: each heartbeat as early and each pull as late as possible, and the other way round."""
    for kind, row in rows:
        if kind == PULL and not row["sysFlag"] & OWN_SUBSCRIPTION:
            pull = of_table(PULL_REQUEST, row)
            late = pull["answerMicros"] or pull["arrivalMicros"]
            for order, micros in enumerate((late, late if pull["held"] else pull["arrivalMicros"])):
                yield (pull["consumerGroup"], micros, order, True, pull["sequence"]), {"order": order, "event": None, "pull": pull}
        elif kind == SUBSCRIPTION:
            event = of_table(SUBSCRIPTIONS, row)
            for order, micros in enumerate((event["micros"], event["answerMicros"] or event["micros"])):
                yield (event["consumerGroup"], micros, order, False, event["sequence"]), {"order": order, "event": event, "pull": None}


class Answered:
    """The pulls of a capture that have an answer, each with the result of the broker's checks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = list(rows_of(folder / "traffic.pcap"))
        walked = sorted(events(rows), key=lambda one: one[0])
        pulls = [pull for _, group in groupby(walked, lambda one: one[0][0]) for pull in registered(row for _, row in group)]
        pulls += [of_table(PULL_REQUEST, row) for kind, row in rows if kind == PULL and row["sysFlag"] & OWN_SUBSCRIPTION]
        assert len(pulls) == sum(kind == PULL for kind, _ in rows)
        topics = config(folder, "topics.json")["topicConfigTable"]
        groups = config(folder, "subscriptionGroup.json")["subscriptionGroupTable"]
        settings = broker_config(BrokerSettings.from_sources(properties=folder / "broker.conf"), "b")
        nothing: dict[str, Any] = {}
        self.pulls: list[tuple[Row, Row]] = []
        for pull in pulls:
            if pull["recordedCode"] is not None:
                topic, group = topics.get(pull["topic"], nothing), groups.get(pull["consumerGroup"], nothing)
                of_topic = {name: topic.get(name) for name in ("readQueueNums", "perm")}
                of_group = {name: group.get(name) for name in ("consumeEnable", "consumeBroadcastEnable")}
                self.pulls.append((pull, check(settings, pull | of_topic | of_group)))

    def broker(self) -> SlowBroker:
        given = {
            name: int(value) for name, value in properties(self.folder).items() if name.startswith(("max", "mapped")) and value.isdigit()
        }
        given["filterSupportRetry"] = properties(self.folder).get("filterSupportRetry") == "true"
        store = self.folder / "store"
        end = max(int(path.name) for path in (store / "commitlog").iterdir()) + given["mappedFileSizeCommitLog"]
        return SlowBroker(store, DEFAULTS | given, end)


GIVEN: list[Any] = sampled(CAPTURES, 1) or [pytest.param("none", marks=needs_golden)]


@pytest.fixture(scope="module", params=GIVEN)
def answered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answered:
    return Answered(unpack(request.param, tmp_path_factory.mktemp("capture"), store=True))


def test_every_pull_that_the_broker_refused_is_refused_with_its_code_and_no_other(answered: Answered) -> None:
    wrong: Counter[tuple[int | None, int | None]] = Counter()
    for pull, found in answered.pulls:
        recorded = pull["recordedCode"] if pull["recordedCode"] in NO_OFFSETS else None
        wrong[recorded, found.get("refusedCode")] += recorded != found.get("refusedCode")
    assert {codes: count for codes, count in wrong.items() if count} == {}


def ours(broker: SlowBroker, store: Path, pull: Row, found: Row) -> tuple[int, int, str | None]:
    """Code, nextBeginOffset and digest of the body, with the recorded bounds of the queue."""
    asked = {
        "group": pull["consumerGroup"],
        "topic": pull["topic"],
        "queueId": pull["queueId"],
        "offset": pull["queueOffset"],
        "maxMsgNums": pull["maxMsgNums"],
    }
    asked["filter"] = {"type": found["filterType"], "expression": found["expression"]} if found["filterType"] else None
    answer = broker.get_message(asked, Bounds(pull["recordedMinOffset"], pull["recordedMaxOffset"], broker.log_end))
    empty = answer["status"] == "NO_MESSAGE_IN_QUEUE"
    code = (19 if pull["queueOffset"] == 0 else 21) if empty else CODES.get(answer["status"], -1)
    body = b"".join(bytes_at(store, one["startOffset"], one["storeSize"]) for one in answer["messages"])
    return code, answer["nextBeginOffset"], hashlib.sha256(body).hexdigest() if body else None


def is_gone(broker: SlowBroker, pull: Row) -> bool:
    """Whether the first entry that the pull asked for points into a file that was deleted later."""
    unit = 20
    entries_a_file = broker.config["mappedFileSizeConsumeQueue"] // unit
    file = broker.queue(pull["topic"], pull["queueId"]).get(pull["queueOffset"] // entries_a_file * entries_a_file)
    if file is None:
        return True
    (physic,) = struct.unpack_from(">q", file, pull["queueOffset"] % entries_a_file * unit)
    return bool(physic < min(broker.log))


def test_every_answer_follows_from_the_recorded_maximum_but_for_the_races_of_the_broker(answered: Answered) -> None:
    analysis = json.loads((answered.folder / "analysis.json").read_text("utf-8"))
    broker, store = answered.broker(), answered.folder / "store"
    counts, by_tag = Counter[str](), 0
    for pull, found in answered.pulls:
        if found.get("refusedCode"):
            continue
        by_tag += found["filterType"] == "TAG"
        recorded = (pull["recordedCode"], pull["recordedNextBeginOffset"], pull["recordedBodySha256"])
        same = ours(broker, store, pull, found) == recorded
        race = not same and pull["recordedNextBeginOffset"] > pull["recordedMaxOffset"]
        counts["same" if same else "race" if race else "gone" if is_gone(broker, pull) else "differs"] += 1
    assert counts["differs"] == 0
    assert counts["race"] == len(analysis["recorded_max_but_different"])
    assert by_tag == analysis["recomputed"]["TAG recomputed"]
    assert counts["gone"] < 0.08 * sum(counts.values())  # one capture has files deleted while it ran
