"""Encodes the files under config/ of a new store, with rows in the order of the broker's maps.

Broker source (4.9.3): encode of TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager and ScheduleMessageService; the maps
are ConcurrentHashMaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from store_format.config.config_files import encode_consumer_offsets, encode_delay_offsets, encode_subscription_groups, encode_topic_configs
from store_format.config.config_rows import (
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    SubscriptionGroupConfig,
    SubscriptionGroups,
    TopicConfig,
    TopicConfigs,
)
from store_format.java.hash_maps import concurrent_hash_map_order


def config_files(
    *,
    topics: Iterable[TopicConfig],
    groups: Iterable[SubscriptionGroupConfig],
    offsets: Mapping[str, Mapping[int, int]],
    delay_offsets: Mapping[int, int],
    versions: tuple[int, int],
    timestamp: int,
) -> dict[str, bytes]:
    """The names and bytes of the files, as the broker writes them when it shuts down.

    Args:
        topics: topics in the order in which they were created.
        groups: groups in the order in which they were created.
        offsets: `topic@group` -> queueId -> offset, in the order in which they were committed.
        delay_offsets: delay level -> offset.
        versions: counters of the topics' and of the groups' dataVersion.
        timestamp: timestamp of both dataVersions, ms.
    """
    topic_rows = {row.topicName: row for row in topics}
    group_rows = {row.groupName: row for row in groups}
    topic_table = tuple(topic_rows[name] for name in concurrent_hash_map_order(topic_rows, 1024))
    group_table = tuple(group_rows[name] for name in concurrent_hash_map_order(group_rows, 1024))
    of_topics, of_groups = (DataVersion(counter=counter, timestamp=timestamp) for counter in versions)
    offset_table = {key: offsets[key] for key in concurrent_hash_map_order(offsets, 512)}
    return {
        "topics.json": encode_topic_configs(TopicConfigs(topic_table, of_topics)),
        "subscriptionGroup.json": encode_subscription_groups(SubscriptionGroups(group_table, of_groups)),
        "consumerOffset.json": encode_consumer_offsets(ConsumerOffsets(offset_table)),
        "delayOffset.json": encode_delay_offsets(DelayOffsets(delay_offsets)),
    }
