"""The tables of what the broker's ConfigManagers keep under config/."""

from __future__ import annotations

from pipeline.schema.table import BROKER_NAME, QUEUE_ID, TOPIC, Column, Table

TOPIC_CONFIG = Table(
    "topic_config",
    "config/topics.json.",
    (
        BROKER_NAME,
        TOPIC,
        Column("readQueueNums", "INT", "queues that can be pulled"),
        Column("writeQueueNums", "INT", "queues that can be written"),
        Column("perm", "INT", "4 read, 2 write, 1 inherit"),
        Column("topicFilterType", "STRING", "SINGLE_TAG or MULTI_TAG", nullable=True),
        Column("topicSysFlag", "INT", "1 unit, 2 has unit sub"),
        Column("order", "BOOLEAN", "ordered topic"),
        Column("json", "STRING", "the whole object as stored"),
    ),
    key=("brokerName", "topic"),
)

SUBSCRIPTION_GROUP = Table(
    "subscription_group",
    "config/subscriptionGroup.json.",
    (
        BROKER_NAME,
        Column("consumerGroup", "STRING", "name of the group"),
        Column("consumeEnable", "BOOLEAN", "may the group pull"),
        Column("consumeFromMinEnable", "BOOLEAN", "start from the minimum offset"),
        Column("consumeBroadcastEnable", "BOOLEAN", "may it consume in broadcast mode"),
        Column("retryQueueNums", "INT", "queues of its retry topic"),
        Column("retryMaxTimes", "INT", "retries before a message goes to the dead letter queue"),
        Column("brokerId", "BIGINT", "broker to pull from"),
        Column("whichBrokerWhenConsumeSlowly", "BIGINT", "broker to pull from when it is slow"),
        Column("notifyConsumerIdsChangedEnable", "BOOLEAN", "tell clients of changes"),
        Column("json", "STRING", "the whole object as stored"),
    ),
    key=("brokerName", "consumerGroup"),
)

CONSUMER_OFFSET = Table(
    "consumer_offset",
    "config/consumerOffset.json: the offset that each group committed.",
    (
        BROKER_NAME,
        Column("consumerGroup", "STRING", "name of the group"),
        TOPIC,
        QUEUE_ID,
        Column("consumerOffset", "BIGINT", "next offset that the group will consume"),
    ),
    key=("brokerName", "consumerGroup", "topic", "queueId"),
)

DELAY_OFFSET = Table(
    "delay_offset",
    "config/delayOffset.json: how far each delay level was delivered.",
    (
        BROKER_NAME,
        Column("delayLevel", "INT", "1 is the first; its queue in SCHEDULE_TOPIC_XXXX is delayLevel - 1"),
        Column("offset", "BIGINT", "next offset to deliver"),
    ),
    key=("brokerName", "delayLevel"),
)

CONSUMER_FILTER = Table(
    "consumer_filter",
    "config/consumerFilter.json: the SQL92 filters that groups registered.",
    (
        BROKER_NAME,
        TOPIC,
        Column("consumerGroup", "STRING", "name of the group"),
        Column("expression", "STRING", "the filter", nullable=True),
        Column("expressionType", "STRING", "SQL92", nullable=True),
        Column("bornTime", "BIGINT", "ms, when it was registered"),
        Column("deadTime", "BIGINT", "ms, when its last consumer left; 0 while one is there"),
        Column("clientVersion", "BIGINT", "version of the subscription"),
        Column("bloomBitPositions", "ARRAY<INT>", "bits of the bloom filter", nullable=True),
        Column("bloomBitNum", "INT", "length of the bloom filter in bits", nullable=True),
        Column("json", "STRING", "the whole object as stored"),
    ),
    key=("brokerName", "topic", "consumerGroup"),
)
