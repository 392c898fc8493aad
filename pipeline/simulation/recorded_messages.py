"""Read the recorded messages of a topic for a simulation that replays them.

This is no rule of the broker. Messages stored before the simulation's start are its backlog. A queue has the messages from its minOffset
on, which the broker can find. The group's committed offsets are those of the import.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.generate.workload_fields import unknown_name
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import tables as t
from pipeline.simulation.plans import RecordedTopic, check_tags
from pipeline.simulation.scenario import GroupScenario
from pipeline.simulation.scenario_fields import ScenarioError
from udfs.broker.message_queue import MessageQueue
from udfs.filters.tags import parse_subscription, split_tags
from udfs.simulation.arrivals import MATCHES_AT_BROKER, MATCHES_AT_CLIENT
from udfs.simulation.group_plan import Recorded
from udfs.simulation.world import MS

# each task holds all messages: 25 bytes a message
MOST_MESSAGES = 10_000_000


def recorded_topic(broker: OpenedBroker, scenario: GroupScenario, where: str) -> RecordedTopic:
    """Return the recorded messages of the scenario's topic.

    Raises:
        ScenarioError: the topic is unknown, has no messages or too many, or a tag of the subscription never occurs.
    """
    queues = _queues(broker, scenario, where)
    rows = _rows(broker, scenario.topic)
    count = rows.count()
    if not 0 < count <= MOST_MESSAGES:
        found = f"{count:,}" if count else "none"
        raise ScenarioError(f"{where}, topic", f"a topic with messages, {MOST_MESSAGES:,} at most, in the lake", found)
    found_rows = rows.orderBy("queueId", "queueOffset").toArrow()
    check_tags(scenario.subscription, {tag for tag in found_rows["tags"].unique().to_pylist() if tag}, where)
    begins = scenario.messages.begins or int(found_rows["storeTimestamp"].to_numpy().min())
    messages = recorded_messages(found_rows, len(queues), scenario.subscription, begins, where)
    return RecordedTopic(queues, messages, _committed(broker, scenario, len(queues)), begins)


def _queues(broker: OpenedBroker, scenario: GroupScenario, where: str) -> tuple[MessageQueue, ...]:
    """Return the queues of the topic that its configuration or the store's folders have; a store may lack the configuration."""
    mine = broker.is_mine
    told = broker.lake.table(t.TOPIC_CONFIG).where(mine).select("topic", F.col("readQueueNums").alias("queues"))
    there = broker.lake.table(t.QUEUE).where(mine).select("topic", (F.col("queueId") + 1).alias("queues"))
    topics = {row["topic"]: row["queues"] for row in told.union(there).groupBy("topic").agg(F.max("queues").alias("queues")).collect()}
    if scenario.topic not in topics:
        raise unknown_name(f"{where}, topic", f"a topic of {broker.name}", scenario.topic, sorted(topics) or [""])
    return tuple(MessageQueue(scenario.topic, broker.name, number) for number in range(topics[scenario.topic]))


def _rows(broker: OpenedBroker, topic: str) -> DataFrame:
    mine = F.col("topic") == topic
    log = broker.table(t.COMMIT_LOG).where(mine).select("physicOffset", "tags", F.length("body").alias("bodySize"))
    bounds = broker.table(t.QUEUE).where(mine).select("queueId", "minOffset", "maxOffset")
    entries = broker.table(t.CONSUME_QUEUE).where(mine).join(F.broadcast(bounds), "queueId")
    there = entries.where("queueOffset >= minOffset AND queueOffset < maxOffset AND storeTimestamp IS NOT NULL")
    code = F.coalesce("extUnit.tagsCode", "tagsCode").alias("tagsCode")
    return there.join(log, "physicOffset", "left").select(
        "queueId", "queueOffset", "storeTimestamp", "size", code, "tags", F.coalesce("bodySize", F.lit(0)).alias("bodySize")
    )


def recorded_messages(rows: pa.Table, queues: int, subscription: str, begins: int, where: str) -> Recorded:
    """Return the recorded messages of a topic of `queues` queues for a simulation that starts at `begins`, ms since 1970.

    `rows` have queueId, queueOffset, storeTimestamp, size, tagsCode, tags and bodySize of each message, sorted by the first two.

    Raises:
        ScenarioError: an offset is missing.
    """
    queue_ids, offsets = rows["queueId"].to_numpy(), rows["queueOffset"].to_numpy().astype(np.int64)
    first = np.searchsorted(queue_ids, np.arange(queues + 1)).astype(np.int64)
    times = (rows["storeTimestamp"].to_numpy().astype(np.int64) - begins) * MS
    first_offset = np.zeros(queues, np.int64)
    for queue in range(queues):
        begin, end = first[queue], first[queue + 1]
        if begin == end:
            continue
        first_offset[queue] = offsets[begin]
        if offsets[end - 1] - offsets[begin] + 1 != end - begin:
            raise ScenarioError(f"{where}, topic", f"every offset of queue {queue} in consume_queue", "some that are missing")
        times[begin:end] = np.maximum.accumulate(times[begin:end])  # the broker's clock may have been set back
    sizes = np.column_stack((rows["size"].to_numpy(), rows["bodySize"].to_numpy())).astype(np.int32)
    return Recorded(first=first, first_offset=first_offset, times=times, flags=_flags(rows, subscription), sizes=sizes)


def _flags(rows: pa.Table, subscription: str) -> NDArray[np.uint8]:
    """Return the MATCHES_* flags of each message: the broker compares the tag's hash code, the client its text."""
    codes, tags = parse_subscription(subscription), split_tags(subscription)
    if codes is None or tags is None:
        return np.full(len(rows), MATCHES_AT_BROKER | MATCHES_AT_CLIENT, np.uint8)
    at_broker = np.isin(rows["tagsCode"].to_numpy(), sorted(codes))
    encoded = rows["tags"].combine_chunks().dictionary_encode()
    wanted = np.array([tag in tags for tag in encoded.dictionary.to_pylist()] + [False])
    at_client = wanted[encoded.indices.fill_null(len(wanted) - 1).to_numpy()]
    flags: NDArray[np.uint8] = (at_broker * MATCHES_AT_BROKER + at_client * MATCHES_AT_CLIENT).astype(np.uint8)
    return flags


def _committed(broker: OpenedBroker, scenario: GroupScenario, queues: int) -> tuple[int, ...]:
    mine = broker.is_mine & (F.col("topic") == scenario.topic) & (F.col("consumerGroup") == scenario.group)
    rows = broker.lake.table(t.CONSUMER_OFFSET).where(mine).select("queueId", "consumerOffset").collect()
    offsets = {row["queueId"]: row["consumerOffset"] for row in rows}
    return tuple(max(int(offsets.get(number, -1)), -1) for number in range(queues))
