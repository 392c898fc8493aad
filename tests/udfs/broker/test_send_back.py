"""Messages that consumers send back: the queue of each recorded message, and the times at which delayed ones are delivered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.config.config_rows import SubscriptionGroupConfig
from store_format.record.message import Host, Message
from tests.runs.scenario_answers import answered, compared
from tests.truth.golden import golden_lines, needs_golden
from udfs.broker.schedule_delivery import correct_deliver_timestamp, due_messages, look_after
from udfs.broker.send_message import SendBackRequest, SendBrokerConfig, SendMessageProcessor, retry_level, send_back
from udfs.broker.subscription_group import SubscriptionGroupManager
from udfs.broker.topic_config import TopicConfigManager
from udfs.consumer.send_message_back import consumed_topic, resend

SENT = ("sendBack", "sendToRetryTopic", "delayedSend")
# rows change these settings; each row begins with them as they were at the start
AS_AT_THE_START = {"op": "brokerConfig", "set": {"brokerPermission": 6, "autoCreateSubscriptionGroup": True}}


@needs_golden
def test_every_recorded_message_goes_where_it_went() -> None:
    """One broker took all rows, because they share its queues of delayed messages."""
    rows = [row for row in golden_lines("broker", "consumer.jsonl") if row["kind"] in SENT]
    steps: list[dict[str, Any]] = [step for row in rows for step in [*row["steps"], AS_AT_THE_START]]
    whole = {"name": "all of them", "brokerBase": {}, "steps": steps}
    assert compared(whole, answered(whole)) == []
    assert len(rows) == 56


@pytest.mark.parametrize(("draw", "delay_level", "queue"), [(0, 0, 0), (7, 0, 3), (99_999_998, 0, 2), (7, -1, 0)])
def test_a_retry_queue_is_drawn_and_dead_letters_have_one(draw: int, delay_level: int, queue: int) -> None:
    groups = SubscriptionGroupManager()
    groups.update_subscription_group_config(SubscriptionGroupConfig(groupName="g", retryQueueNums=4))
    config = SendBrokerConfig(broker_cluster_name="c", broker_ip1="127.0.0.1")
    processor = SendMessageProcessor(config=config, topics=TopicConfigManager(), groups=groups)
    host = Host(address=bytes([127, 0, 0, 1]), port=10911)
    found = Message(
        topic=b"t",
        queue_id=0,
        body=b"x",
        properties=b"",
        born_host=host,
        store_host=host,
        born_timestamp=0,
        store_timestamp=0,
        queue_offset=0,
        physic_offset=0,
    )
    asked = SendBackRequest(group="g", delay_level=delay_level, max_reconsume_times=None, version=399)
    inner = send_back(processor, asked, found, draw)
    assert inner is not None
    assert (inner.topic, inner.queue_id) == ("%RETRY%g" if delay_level >= 0 else "%DLQ%g", queue)


@given(st.integers(-1, 40), st.integers(0, 40), st.integers(-1, 40))
def test_a_message_is_tried_as_often_as_it_may_be(delay_level: int, reconsume_times: int, most: int) -> None:
    level = retry_level(delay_level, reconsume_times, most)
    assert (level is None) == (delay_level < 0 or reconsume_times >= most)
    assert level in (None, delay_level, 3 + reconsume_times)
    assert level != 0


# delivery: ScheduleMessageService.executeOnTimeup


@pytest.mark.parametrize(
    ("timestamps", "now", "due"),
    [([], 0, 0), ([10, 20, 30], 9, 0), ([10, 20, 30], 20, 2), ([20, 10], 15, 0), ([10, 20_000], 100, 1), ([10, 5101, 50], 100, 3)],
)
def test_a_look_delivers_up_to_the_first_message_that_is_not_due(timestamps: list[int], now: int, due: int) -> None:
    delay = 30_000 if 20_000 in timestamps else 5000
    assert due_messages(timestamps, now, delay) == due


@pytest.mark.parametrize(("timestamp", "corrected"), [(90, 90), (5100, 5100), (5101, 100)])
def test_no_message_is_due_later_than_its_delay_from_now(timestamp: int, corrected: int) -> None:
    assert correct_deliver_timestamp(timestamp, 100, 5000) == corrected


@pytest.mark.parametrize(("due", "look"), [(0, 1500), (1500, 1500), (1501, 1600), (1600, 1600), (9999, 10_000)])
def test_the_broker_looks_ten_times_a_second_from_a_second_after_its_start(due: int, look: int) -> None:
    assert look_after(500, due) == look


# what a client sends itself: DefaultMQPushConsumerImpl.sendMessageBack, ConsumeMessageOrderlyService.sendMessageBack


@pytest.mark.parametrize(("orderly", "tries"), [(False, 3), (True, 2)])
def test_a_client_sends_what_the_broker_did_not_take_back_to_the_retry_topic(orderly: bool, tries: int) -> None:
    noted = {"TAGS": "a", "MAX_OFFSET": "9", "TRAN_MSG": "true", "RECONSUME_TIME": "2", "RETRY_TOPIC": "first"}
    topic = consumed_topic("%RETRY%g", noted, "g")
    resent = resend("g", topic, noted, 2, 16, orderly=orderly)
    assert (resent.topic, resent.reconsume_times, resent.max_reconsume_times) == ("%RETRY%g", tries, 16)
    assert resent.properties == {"TAGS": "a", "MAX_OFFSET": "9", "RETRY_TOPIC": "first", "DELAY": "5"}


@pytest.mark.parametrize(("topic", "properties"), [("t", {"RETRY_TOPIC": "first"}), ("%RETRY%g", {}), ("%RETRY%h", {"RETRY_TOPIC": "x"})])
def test_only_messages_of_the_groups_retry_topic_show_another_topic(topic: str, properties: dict[str, str]) -> None:
    assert consumed_topic(topic, properties, "g") == topic
