"""Encodes the files under config/ of a new store, with rows in the order of the broker's maps.

Broker source (4.9.3): encode of TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager and ScheduleMessageService; the maps
are ConcurrentHashMaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from store_format.config import config_rows as cr
from store_format.config.config_files import encode_consumer_offsets, encode_delay_offsets, encode_subscription_groups, encode_topic_configs
from store_format.java.hash_maps import concurrent_hash_map_order


def config_files(
    *,
    topics: Iterable[cr.TopicConfig],
    groups: Iterable[cr.SubscriptionGroupConfig],
    offsets: Mapping[str, Mapping[int, int]],
    delay_offsets: Mapping[int, int],
    versions: tuple[int, int],
    timestamp: int,
) -> dict[str, bytes]:
    """The names and bytes of the files, as the broker writes them when it shuts down.

    Topics and groups are in the order of their creation. `offsets` (`topic@group` -> queueId -> offset) are in the order of the commits;
    `delay_offsets` are by delay level. `versions` are the counters of the topics' and of the groups' dataVersion, `timestamp` (ms) is that
    of both.
    """
    topic_rows = {row.topicName: row for row in topics}
    group_rows = {row.groupName: row for row in groups}
    topic_table = tuple(topic_rows[name] for name in concurrent_hash_map_order(topic_rows, 1024))
    group_table = tuple(group_rows[name] for name in concurrent_hash_map_order(group_rows, 1024))
    of_topics, of_groups = (cr.DataVersion(counter=counter, timestamp=timestamp) for counter in versions)
    offset_table = {key: offsets[key] for key in concurrent_hash_map_order(offsets, 512)}
    return {
        "topics.json": encode_topic_configs(cr.TopicConfigs(topic_table, of_topics)),
        "subscriptionGroup.json": encode_subscription_groups(cr.SubscriptionGroups(group_table, of_groups)),
        "consumerOffset.json": encode_consumer_offsets(cr.ConsumerOffsets(offset_table)),
        "delayOffset.json": encode_delay_offsets(cr.DelayOffsets(delay_offsets)),
    }
