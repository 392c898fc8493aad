"""Names and numbers that the broker and its clients agree on, against the recorded ones."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from store_format.log import dispatch_request, put_message
from store_format.record import record_columns
from tests.truth.golden import golden_lines, needs_golden
from udfs.broker import send_message, transaction_check, transactional_message
from udfs.broker.system_groups import is_sys_consumer_group
from udfs.broker.topic_config import DLQ_GROUP_TOPIC_PREFIX, REPLY_TOPIC_POSTFIX
from udfs.consumer import pull_api_wrapper, send_message_back
from udfs.filters import message_filter

# where our name is a shorter one than that of MessageConst
LONGER = {
    "PROPERTY_DELAY": "PROPERTY_DELAY_TIME_LEVEL",
    "PROPERTY_UNIQ_KEY": "PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX",
    "PROPERTY_MULTI_DISPATCH": "PROPERTY_INNER_MULTI_DISPATCH",
    "PROPERTY_MULTI_QUEUE_OFFSET": "PROPERTY_INNER_MULTI_QUEUE_OFFSET",
    "PROPERTY_CHECK_TIMES": "PROPERTY_TRANSACTION_CHECK_TIMES",
    "PROPERTY_CHECK_IMMUNITY_TIME": "PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS",
    "PROPERTY_PREPARED_QUEUE_OFFSET": "PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET",
}
MODULES = [
    dispatch_request,
    put_message,
    record_columns,
    message_filter,
    send_message,
    transaction_check,
    transactional_message,
    pull_api_wrapper,
    send_message_back,
]


def codec(kind: str) -> list[dict[str, Any]]:
    return [row for row in golden_lines("broker", "codec.jsonl") if row["kind"] == kind]


@needs_golden
def test_topics_of_a_group_are_named_as_recorded() -> None:
    rows = codec("names")
    for row in rows:
        group = row["group"]
        assert message_filter.RETRY_GROUP_TOPIC_PREFIX + group == row["retryTopic"]
        assert DLQ_GROUP_TOPIC_PREFIX + group == row["dlqTopic"]
        assert f"{group}_{REPLY_TOPIC_POSTFIX}" == row["replyTopic"]
        assert is_sys_consumer_group(group) is row["isSysConsumerGroup"]
    assert len(rows) == 7


@needs_golden
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_properties_are_named_as_recorded(module: ModuleType) -> None:
    (row,) = codec("messageConst")
    ours = {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in vars(module).items()
        if name.startswith("PROPERTY_") and name != "PROPERTY_SEPARATOR"
    }
    assert ours == {name: row["names"][LONGER.get(name, name)] for name in ours}
    assert ours


@needs_golden
def test_clients_say_how_often_to_try_from_the_recorded_version_on() -> None:
    (row,) = codec("version")
    assert row["V3_4_9"] == send_message.V3_4_9
