"""The bit map that a message gets in the consume queue extension: which consumers' expressions it matches.

Broker source (4.9.3): CommitLogDispatcherCalcBitMap.dispatch, ConsumerFilterManager.decode, BloomFilter.createByFn and hashTo.
Rule: every consumer of the topic whose expression is true sets its bits, byte position / 8, mask 1 << position % 8.
Surprises: consumers that died long ago set their bits too. A topic without consumers gives no bit map, not an empty one. One consumer whose
bits were made by another bloom filter, and the broker forgets all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.settings import BrokerSettings
from pipeline.store_files import StoreFiles
from store_format.config_files import decode_consumer_filters, load
from store_format.config_rows import ConsumerFilterData, ConsumerFilters
from store_format.dispatcher import BitMapOf
from store_format.store_paths import CONFIG
from udfs.bloom_filter import BloomFilter
from udfs.sql92 import matches

CONSUMER_FILTER = "consumerFilter.json"


def bloom_size(settings: BrokerSettings) -> tuple[int, int]:
    """BloomFilter.createByFn: (k bits a consumer, of m)."""
    filter_ = BloomFilter.create_by_fn(settings.value("maxErrorRateOfBloomFilter"), settings.value("expectConsumerNumUseFilter"))
    return filter_.k, filter_.m


def bit_map_of(files: StoreFiles, settings: BrokerSettings) -> BitMapOf | None:
    """The bit maps of a store's messages.

    Args:
        files: of the store, for config/consumerFilter.json.
        settings: enableCalcFilterBitMap and the size of the bloom filter.

    Returns:
        (topic, properties) -> bit map, None where the topic has no consumers; None altogether where the broker makes none.
    """
    if not settings.value("enableCalcFilterBitMap") or not settings.value("enableConsumeQueueExt"):
        return None
    path = files.path_of(CONFIG, CONSUMER_FILTER)
    main, bak = files.read(CONFIG, CONSUMER_FILTER), files.read(CONFIG, f"{CONSUMER_FILTER}.bak")
    k, m = bloom_size(settings)
    consumers = _consumers(load(main, bak, path, decode_consumer_filters).table, k, m)

    def bit_map(topic: str, properties: Mapping[str, str]) -> bytes | None:
        if topic not in consumers:
            return None
        return _bits([consumer for consumer in consumers[topic] if matches(consumer.expression or "", properties)], m)

    return bit_map


def _consumers(table: ConsumerFilters, k: int, m: int) -> dict[str, tuple[ConsumerFilterData, ...]]:
    """ConsumerFilterManager.decode: the consumers of each topic that has some, none at all where one has other bits."""
    for topic in table.filterDataByTopic:
        for consumer in topic.groupFilterData:
            bloom = consumer.bloomFilterData
            if bloom is None or bloom.bitNum != m or len(bloom.bitPos or ()) != k:
                return {}
    return {topic.topic: topic.groupFilterData for topic in table.filterDataByTopic if topic.groupFilterData}


def _bits(consumers: list[ConsumerFilterData], m: int) -> bytes:
    bits = bytearray(m // 8)
    for consumer in consumers:
        for position in (consumer.bloomFilterData.bitPos or ()) if consumer.bloomFilterData else ():
            bits[position // 8] |= 1 << position % 8
    return bytes(bits)
