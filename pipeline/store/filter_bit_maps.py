"""Computes the bit map of a message in the consume queue extension: the consumers whose expressions it matches.

Broker source (4.9.3): CommitLogDispatcherCalcBitMap.dispatch.
Rule: each consumer of the topic whose expression is true sets its bits.
Surprises: consumers that died long ago set their bits too. The messages of a topic without consumers get no bit map, not an empty one. If
a consumer has a bit outside of the filter, the message gets no bit map.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.files.store_files import StoreFiles
from pipeline.settings.settings import BrokerSettings
from store_format.config.config_files import decode_consumer_filters, load
from store_format.store.dispatcher import BitMapOf
from store_format.store_paths import CONFIG
from udfs.filters.bloom_filter import BitsArray, BloomFilter, BloomFilterError
from udfs.filters.consumer_filter_manager import ConsumerFilterManager, compiled
from udfs.filters.sql92 import matches
from udfs.filters.sql92_rules import TEXT_OPERATORS

CONSUMER_FILTER = "consumerFilter.json"


def bloom_filter(settings: BrokerSettings) -> BloomFilter:
    """The broker's bloom filter: k of its m bits for each consumer."""
    return BloomFilter.create_by_fn(settings.value("maxErrorRateOfBloomFilter"), settings.value("expectConsumerNumUseFilter"))


def bit_map_of(files: StoreFiles, settings: BrokerSettings) -> BitMapOf | None:
    """The function that computes the bit map of a message, None if the broker computes none.

    Args:
        files: the store's files, for config/consumerFilter.json.
        settings: enableCalcFilterBitMap and the size of the bloom filter.

    Returns:
        (topic, properties) -> bit map; it returns None for a topic without consumers.
    """
    if not settings.value("enableCalcFilterBitMap") or not settings.value("enableConsumeQueueExt"):
        return None
    path = files.path_of(CONFIG, CONSUMER_FILTER)
    main, bak = files.read_config(CONSUMER_FILTER), files.read_config(f"{CONSUMER_FILTER}.bak")
    text_operators: bool = TEXT_OPERATORS.of(settings.version).value
    manager = ConsumerFilterManager(bloom_filter(settings))
    # the time at which a consumer died makes no difference here
    manager.load(load(main, bak, path, decode_consumer_filters).table, now=0)

    def bit_map(topic: str, properties: Mapping[str, str]) -> bytes | None:
        consumers = manager.of_topic(topic).values()
        bits = BitsArray(manager.bloom_filter.m)
        try:
            for consumer in consumers:
                is_compiled = compiled(consumer, text_operators=text_operators) is not None
                holds = is_compiled and matches(consumer.expression or "", properties, text_operators=text_operators)
                if holds and consumer.bloomFilterData:
                    manager.bloom_filter.hash_to(consumer.bloomFilterData.bitPos or (), bits)
        except BloomFilterError:  # a bit is outside of the filter: the broker throws, and the message gets no bit map
            return None
        return bytes(bits) if consumers else None

    return bit_map
