"""Transactions: compared with what the broker's own classes stored and decided, and what must hold for any check.

The rows were recorded with TransactionalMessageServiceImpl, TransactionalMessageBridge and EndTransactionProcessor of 4.9.3, over queues in
memory; ages are as of the moment the check began.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.layout import TRANSACTION_COMMIT_TYPE
from store_format.log.put_message import InnerMessage
from store_format.record.message import Host, Message
from tests.truth.golden import golden_lines, needs_golden
from tests.truth.places import DATA
from udfs.broker import transactional_message
from udfs.broker.transaction_check import (
    OPS_AT_ONCE,
    CheckSettings,
    HalfMessage,
    Look,
    OpMessage,
    OpRead,
    check_queue,
    checked_properties,
    look_at,
)
from udfs.broker.transactional_message import (
    EndTransactionRequest,
    check_prepare_message,
    committed_message,
    discarded_half_message,
    half_message,
    is_prepared,
    op_message,
    renewed_half_message,
    renewed_immune_half_message,
)
from udfs.filters.tags import tags_code

Row = dict[str, Any]
ROWS: list[Row] = [json.loads(line) for line in (DATA / "transactions.jsonl").read_text("utf-8").splitlines()]
HOST = Host(address=bytes([127, 0, 0, 1]), port=10911)
NOW = 1_700_000_000_000
DEFAULT = CheckSettings()


def rows(kind: str) -> list[Row]:
    return [row for row in ROWS if row["kind"] == kind]


# what is stored -----------------------------------------------------------------------------------------------------------------------


def shown(inner: InnerMessage) -> Row:
    return {
        "topic": inner.topic,
        "queueId": inner.queue_id,
        "body": inner.body.decode(),
        "propertiesString": inner.properties_string,
        "flag": inner.flag,
        "sysFlag": inner.sys_flag,
        "reconsumeTimes": inner.reconsume_times,
        "preparedTransactionOffset": inner.prepared_transaction_offset,
    }


def recorded(told: Row) -> Row:
    return {name: value for name, value in told.items() if name != "tagsCode"}


def sent(row: Row) -> InnerMessage:
    told = row["sent"]
    return InnerMessage(
        topic=told["topic"],
        queue_id=told["queueId"],
        body=b"body",
        born_host=HOST,
        store_host=HOST,
        born_timestamp=1_600_000_000_000,
        properties=told["properties"],
        flag=told["flag"],
        sys_flag=told["sysFlag"],
        reconsume_times=told["reconsumeTimes"],
    )


def stored(inner: InnerMessage) -> Message:
    """The half message at queue offset 17 and physical offset 4711."""
    return Message(
        queue_id=inner.queue_id,
        queue_offset=17,
        physic_offset=4711,
        born_timestamp=inner.born_timestamp,
        born_host=HOST,
        store_timestamp=NOW,
        store_host=HOST,
        body=inner.body,
        topic=inner.topic.encode(),
        properties=(inner.properties_string or "").encode(),
        flag=inner.flag,
        sys_flag=inner.sys_flag,
        reconsume_times=inner.reconsume_times,
    )


@pytest.mark.parametrize("row", rows("transactionMessages"), ids=lambda row: row["sent"]["topic"])
def test_what_is_stored_of_a_transaction_is_what_the_broker_stored(row: Row) -> None:
    half = stored(half_message(sent(row)))
    assert is_prepared(row["sent"]["properties"])
    assert shown(half_message(sent(row))) == recorded(row["half"])
    properties = half.properties_map()
    assert shown(renewed_half_message(half, properties)) == recorded(row["renewed"])
    assert shown(renewed_immune_half_message(half, properties)) == recorded(row["renewedImmune"])
    assert shown(discarded_half_message(half, properties)) == recorded(row["discarded"])
    op = op_message(half, HOST, NOW)
    assert [shown(committed_message(half)), shown(op)] == [recorded(one) for one in row["commit"]]
    assert [shown(op)] == [recorded(one) for one in row["rollback"]]
    assert tags_code(op.properties["TAGS"]) == row["rollback"][0]["tagsCode"]


@pytest.mark.parametrize("row", rows("transactionMessages"), ids=lambda row: row["sent"]["topic"])
def test_a_transaction_is_ended_by_its_own_producer_only(row: Row) -> None:
    half = stored(half_message(sent(row)))
    for end in row["ends"]:
        request = EndTransactionRequest(
            producer_group=end["producerGroup"],
            tran_state_table_offset=end["tranStateTableOffset"],
            commit_log_offset=end["commitLogOffset"],
        )
        code, remark = check_prepare_message(half if end["found"] else None, request)
        assert int(code) == end["code"]
        assert remark == (end["remark"] if end["code"] else None)
        assert end["stored"] == (end["code"] == 0)


@needs_golden
def test_transaction_flags_are_the_recorded_ones() -> None:
    flags = [row for row in golden_lines("broker", "codec.jsonl") if row["kind"] == "messageSysFlag"]
    for row in flags:
        assert transactional_message.transaction_value(row["flag"]) == row["transactionValue"]
        assert transactional_message.reset_transaction_value(row["flag"], TRANSACTION_COMMIT_TYPE) == row["resetToCommit"]
    assert len(flags) == 7


# what a check does --------------------------------------------------------------------------------------------------------------------


@dataclass
class Queues:
    """A half queue and its op queue in memory."""

    halves: list[HalfMessage]
    op_messages: Sequence[OpMessage] = ()
    op_min_offset: int = 0
    holes: frozenset[int] = frozenset()
    put: list[Row] = field(default_factory=list)

    def half(self, offset: int) -> HalfMessage | int | None:
        if offset >= len(self.halves):
            return None
        if offset not in self.holes:
            return self.halves[offset]
        return next(later for later in range(offset, len(self.halves) + 1) if later not in self.holes)

    def ops(self, offset: int) -> OpRead:
        if offset < self.op_min_offset:
            return OpRead(None, self.op_min_offset, is_illegal=True)
        found = self.op_messages[offset - self.op_min_offset :][:OPS_AT_ONCE]
        return OpRead(found or None, offset + len(found))

    def put_back(self, half: HalfMessage, properties: Mapping[str, str], *, immune: bool) -> None:
        make = renewed_immune_half_message if immune else renewed_half_message
        message = Message(
            queue_id=0,
            queue_offset=half.queue_offset,
            physic_offset=0,
            born_timestamp=half.born_timestamp,
            born_host=HOST,
            store_timestamp=half.store_timestamp,
            store_host=HOST,
            body=b"x",
            topic=b"RMQ_SYS_TRANS_HALF_TOPIC",
            properties=b"",
        )
        kept = make(message, properties).properties
        self.put.append({"id": half.properties.get("ID"), "properties": kept})
        self.halves.append(
            HalfMessage(queue_offset=len(self.halves), born_timestamp=half.born_timestamp, store_timestamp=2 * NOW, properties=kept)
        )


def checked(row: Row) -> Row:
    """A recorded check, made anew."""
    halves = [
        HalfMessage(queue_offset=i, born_timestamp=NOW - age, store_timestamp=NOW - store_age, properties={**properties, "ID": str(i)})
        for i, (age, store_age, properties) in enumerate(row["halves"])
    ]
    ops = [OpMessage(i, body, NOW + born, tag) for i, (body, tag, born) in enumerate(row["ops"], row["opMinOffset"])]
    queues = Queues(halves, ops, row["opMinOffset"], frozenset(row["holes"]))
    result = check_queue(queues, row["halfOffset"], row["opOffset"], NOW, DEFAULT)
    return {
        "halfOffset": result.half_offset,
        "opOffset": result.op_offset,
        "asked": [half.properties["ID"] for half in result.asked],
        "discarded": [half.properties["ID"] for half in result.discarded],
        "putBack": queues.put,
    }


def test_every_recorded_check_comes_out_the_same() -> None:
    cases = rows("transactionCheck")
    differing = [(row, ours) for row in cases if (ours := checked(row)) != row["result"]]
    assert differing == []
    assert len(cases) == 200
    assert {bool(row["result"][name]) for row in cases for name in ("asked", "discarded", "putBack")} == {True, False}


def half_of(age: int, **properties: str) -> HalfMessage:
    return HalfMessage(queue_offset=0, born_timestamp=NOW - age, store_timestamp=NOW - 70_000, properties=properties)


@pytest.mark.parametrize(
    ("half", "look"),
    [
        # TransactionalMessageServiceImpl.check, at the limits that no recording can hit to the millisecond
        (half_of(5999), Look.LATER),
        (half_of(6000), Look.MORE_OPS),
        (half_of(6001), Look.ASK),
        (half_of(0), Look.LATER),
        (half_of(-1), Look.ASK),
        (half_of(72 * 3_600_000), Look.ASK),
        (half_of(72 * 3_600_000 + 1), Look.DISCARD),
        (half_of(6001, TRANSACTION_CHECK_TIMES="14"), Look.ASK),
        (half_of(6001, TRANSACTION_CHECK_TIMES="15"), Look.DISCARD),
        (half_of(9999, CHECK_IMMUNITY_TIME_IN_SECONDS="10"), Look.IMMUNE),
        (half_of(10_000, CHECK_IMMUNITY_TIME_IN_SECONDS="10"), Look.MORE_OPS),
        (half_of(10_001, CHECK_IMMUNITY_TIME_IN_SECONDS="10"), Look.ASK),
    ],
)
def test_a_half_message_is_looked_at_by_its_age(half: HalfMessage, look: Look) -> None:
    assert look_at(half, None, started=NOW, now=NOW, settings=DEFAULT) is look


def test_a_message_that_has_just_been_stored_ends_the_check() -> None:
    half = HalfMessage(queue_offset=0, born_timestamp=NOW - 10_000, store_timestamp=NOW)
    assert look_at(half, None, started=NOW, now=NOW, settings=DEFAULT) is Look.LATER


def test_a_check_waits_for_the_millisecond_that_is_missing_but_not_for_more_than_a_minute() -> None:
    assert len(check_queue(Queues([half_of(6000)]), 0, 0, NOW, DEFAULT).asked) == 1
    unreadable = {"TRAN_PREPARED_QUEUE_OFFSET": "x", "CHECK_IMMUNITY_TIME_IN_SECONDS": "70"}
    assert len(check_queue(Queues([half_of(10_002, **unreadable)]), 0, 0, NOW, DEFAULT).asked) == 1
    assert check_queue(Queues([half_of(9999, **unreadable)]), 0, 0, NOW, DEFAULT).half_offset == 0


def test_a_half_message_that_nobody_ends_is_asked_about_fifteen_times() -> None:
    queues, offset, now, asked = Queues([half_of(6001)]), 0, NOW, 0
    for _ in range(20):
        result = check_queue(queues, offset, 0, now, DEFAULT)
        asked += len(result.asked)
        offset, now = result.half_offset, now + 60_000
        queues.halves = [
            HalfMessage(
                queue_offset=one.queue_offset,
                born_timestamp=one.born_timestamp,
                store_timestamp=min(one.store_timestamp, now - 1),
                properties=one.properties,
            )
            for one in queues.halves
        ]
    assert asked == 15
    assert offset == len(queues.halves)


@given(st.lists(st.integers(6001, 10**6), max_size=12), st.data())
def test_every_half_message_is_ended_or_its_producer_asked(ages: list[int], data: st.DataObject) -> None:
    halves = [
        HalfMessage(queue_offset=i, born_timestamp=NOW - age, store_timestamp=NOW - age, properties={"ID": str(i)})
        for i, age in enumerate(ages)
    ]
    ended = data.draw(st.permutations(range(len(ages)))) if ages else []
    ended = ended[: data.draw(st.integers(0, len(ages)))]
    ops = [OpMessage(i, str(offset), NOW - 1) for i, offset in enumerate(ended)]
    result = check_queue(Queues(list(halves), ops), 0, 0, NOW, DEFAULT)
    assert sorted([*ended, *(half.queue_offset for half in result.asked)]) == list(range(len(ages)))
    assert (result.half_offset, result.op_offset) == (len(ages), len(ops))


@pytest.mark.parametrize(("times", "after"), [(None, "1"), ("3", "4"), ("x", "0"), ("+14", "15"), (" 3", "0"), ("-3", "-2")])
def test_a_check_is_counted(times: str | None, after: str) -> None:
    properties = {} if times is None else {"TRANSACTION_CHECK_TIMES": times}
    assert checked_properties(properties)["TRANSACTION_CHECK_TIMES"] == after
