"""Filters that look into messages: find the requests that have one, and evaluate their conditions on the messages.

The verdict on an entry depends on the condition and on the message's properties, not on the pull. So each condition is evaluated once on
each segment that its pulls start in, from the packed properties in consume_queue_properties. The verdicts, one byte for each entry, are
joined to the packed requests.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.entry_colocation import Row
from pipeline.replay.touched_segments import range_condition
from pipeline.requests.packing import SCHEMA, Col, Packed, Repacker
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_of
from pipeline.settings.settings import PullSettings, SettingsError
from pipeline.tasks.computed_once import computed_once
from store_format.broker_version import BrokerVersion
from store_format.config.config_rows import BloomFilterData, ConsumerFilterData, ConsumerFilters, FilterDataMapByTopic
from udfs.filters.bloom_filter import BloomFilter, BloomFilterError
from udfs.filters.consumer_filter_manager import TAG, ConsumerFilterManager
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX, Condition
from udfs.filters.sql92_rules import TEXT_OPERATORS
from udfs.pull.pull_filter import FilterRules, PullFilter, PullFilterError, Verdicts

SPLIT_SCHEMA = f"{SCHEMA}, condition STRING"
_SPLIT_ARROW = arrow_of(SPLIT_SCHEMA)
_KEY = ("topic", "queueId", "wide", "key", "condition")
_JUDGED = "topic STRING, queueId INT, wide BOOLEAN, key BIGINT, condition STRING, firstQueueOffset BIGINT, verdicts BINARY"
_JUDGED_ARROW = arrow_of(_JUDGED)
# up to this many segments are joined by broadcast, so that the properties of other segments are not shuffled
_FEW_SEGMENTS = 10_000
_OF_RETRY_TOPIC = ""  # no expression that compiles is empty
_NOT_JUDGED = 255


# requests and their conditions ---------------------------------------------------------------------------------------------------------


def looks_into_messages(settings: PullSettings) -> Column:
    """Whether a request's filter needs, or may need, more of a message than its tag's hash code."""
    other = F.col("filterType").isNotNull() & (F.col("filterType") != TAG)
    retry = F.col("topic").startswith(RETRY_GROUP_TOPIC_PREFIX) & F.col("filterType").isNotNull()
    return (other | retry) if settings.filter_support_retry else other


def pulls_into_messages(requests: pa.Table, settings: PullSettings) -> pa.ChunkedArray:
    """As `looks_into_messages`, for requests on the driver."""
    kind = requests["filterType"]
    others = pc.fill_null(pc.not_equal(kind, TAG), False)
    if not settings.filter_support_retry:
        return others
    return pc.or_(others, pc.and_(pc.is_valid(kind), pc.starts_with(requests["topic"], RETRY_GROUP_TOPIC_PREFIX)))


def with_filter_text(requests: DataFrame) -> DataFrame:
    """Requests with `expression` replaced by the whole filter as JSON: filterType, expression, registeredBy."""
    by_group = F.when(F.col("registered"), F.col("consumerGroup"))
    return requests.withColumn("expression", F.to_json(F.struct("filterType", "expression", by_group.alias("registeredBy"))))


def pulls_with_filter_text(requests: pa.Table) -> pa.Table:
    """As `with_filter_text`, for requests on the driver."""
    rows = requests.select(["filterType", "expression", "registered", "consumerGroup"]).to_pylist()
    texts = [
        json.dumps(
            {
                "filterType": row["filterType"],
                "expression": row["expression"],
                "registeredBy": row["consumerGroup"] if row["registered"] else None,
            }
        )
        for row in rows
    ]
    place = requests.column_names.index("expression")
    return requests.set_column(place, "expression", pa.array(texts, pa.string()))


def filter_of(text: str) -> PullFilter:
    """The pull filter in a text of `with_filter_text`."""
    fields = json.loads(text)
    return PullFilter(expression_type=fields["filterType"], expression=fields.get("expression"), registered_by=fields.get("registeredBy"))


def filter_rules(broker: OpenedBroker, settings: PullSettings) -> FilterRules:
    """The filter rules of a broker: its bloom filter, and the filters that consumer groups have registered.

    Raises:
        SettingsError: the settings make no valid bloom filter; no broker starts with them.
    """
    registered = [("topic", "ascending"), ("consumerGroup", "ascending")]
    rows = broker.remembered("filters", [t.CONSUMER_FILTER], lambda: broker.rows(t.CONSUMER_FILTER).sort_by(registered).to_pylist())
    topics = [
        FilterDataMapByTopic(topic, tuple(map(_filter_data, of_topic)))
        for topic, of_topic in groupby(rows, key=lambda row: str(row["topic"]))
    ]
    rate, consumers = settings.max_error_rate_of_bloom_filter, settings.expect_consumer_num_use_filter
    version = BrokerVersion(settings.rules_version)
    try:
        bloom_filter = BloomFilter.create_by_fn(rate, consumers)
    except BloomFilterError as error:
        names = "maxErrorRateOfBloomFilter and expectConsumerNumUseFilter"
        raise SettingsError("the broker's settings", names, "1 to 99 and at least 1", f"{rate} and {consumers}") from error
    manager = ConsumerFilterManager(bloom_filter, text_operators=TEXT_OPERATORS.of(version).value)
    manager.load(ConsumerFilters(tuple(topics)), 0)
    return FilterRules(manager=manager, support_retry=settings.filter_support_retry, retry=settings.retry_rules)


def _filter_data(row: Row) -> ConsumerFilterData:
    positions, bits = row["bloomBitPositions"], row["bloomBitNum"]
    bloom = None if bits is None else BloomFilterData(bitPos=None if positions is None else tuple(positions), bitNum=bits)
    names = ("topic", "consumerGroup", "expression", "expressionType", "bornTime", "deadTime", "clientVersion")
    return ConsumerFilterData(**{name: row[name] for name in names}, bloomFilterData=bloom)


def _condition_text(rules: FilterRules, topic: str, text: str) -> str | None:
    try:
        condition = rules.message_filter(topic, filter_of(text)).commit_log_condition()
    except PullFilterError:
        return None
    return None if condition is None else condition.expression or _OF_RETRY_TOPIC


def split_by_condition(rules: FilterRules, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split packed rows whose filters are texts of `with_filter_text` into rows of one condition each.

    The column `condition` is NULL if the filter has no condition on messages.
    """
    for batch in batches:
        rows = [part for row in batch.to_pylist() for part in split(rules, row)]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_SPLIT_ARROW)


def split(rules: FilterRules, row: Row) -> list[Row]:
    """As `split_by_condition`, for one packed row."""
    texts = [_condition_text(rules, row["topic"], text) for text in row["filters"]]
    different = list(dict.fromkeys(texts))
    packed, repacker = Packed.of(row), Repacker()
    if len(different) == 1:
        return [row | {"requests": packed.matrix.tobytes(), "condition": different[0]}]
    repacker.add(packed, np.array([different.index(text) for text in texts], np.int64)[packed.matrix[:, Col.FILTER]])
    parts = [part for batch in repacker.take() for part in batch.to_pylist()]
    return [part | {"key": row["key"], "wide": row["wide"], "condition": different[part["key"]]} for part in parts]


# verdicts -----------------------------------------------------------------------------------------------------------------------------


def with_verdicts(broker: OpenedBroker, placed: DataFrame, rules: FilterRules, segments: Column) -> DataFrame:
    """Add to rows of `split_by_condition` a column `verdicts`: the condition's verdicts on the entries that the requests may scan.

    Args:
        broker: the broker whose store is read.
        placed: rows of `split_by_condition`.
        rules: the broker's filter rules.
        segments: gives the numbers of the segments that a row's requests may scan.
    """
    conditions = placed.where("condition IS NOT NULL AND key >= 0").select(*_KEY).distinct()
    by_segment = conditions.withColumn("segment", F.explode(segments)).groupBy("topic", "queueId", "segment", "wide", "key")
    wanted = computed_once(by_segment.agg(F.collect_list("condition").alias("conditions")))
    properties = broker.table(t.CONSUME_QUEUE_PROPERTIES).drop("brokerName")
    properties = properties.where(range_condition(wanted, "segment"))
    if wanted.limit(_FEW_SEGMENTS + 1).count() <= _FEW_SEGMENTS:
        wanted = F.broadcast(wanted)
    judged = properties.join(wanted, ["topic", "queueId", "segment"]).mapInArrow(partial(_judge_batches, rules), _JUDGED)
    verdicts = judged.groupBy(*_KEY).agg(F.collect_list(F.struct("firstQueueOffset", "verdicts")).alias("verdicts"))
    return placed.join(verdicts, list(_KEY), "left")


def _judge_batches(rules: FilterRules, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (judged for batch in batches for judged in judge(rules, batch.to_pylist()))


def judge(rules: FilterRules, stored: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    """Evaluate the conditions of each row of consume_queue_properties on its messages; gives a batch for each condition."""
    rows_of_condition: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in stored:
        for text in row["conditions"]:
            rows_of_condition[row["topic"] if text == _OF_RETRY_TOPIC else "", text].append(row)
    for (topic, text), rows in rows_of_condition.items():
        condition = Condition(expression=None if text == _OF_RETRY_TOPIC else text)
        lengths = [np.frombuffer(row["lengths"], "<i4") for row in rows]
        properties = np.concatenate([np.frombuffer(row["properties"], np.uint8) for row in rows])
        verdicts = rules.verdicts(topic, condition, np.concatenate(lengths), properties)
        parts = np.split(verdicts, np.cumsum([len(one) for one in lengths])[:-1])
        judged = [row | {"condition": text, "verdicts": part.tobytes()} for row, part in zip(rows, parts, strict=True)]
        yield pa.RecordBatch.from_pylist(judged, schema=_JUDGED_ARROW)


def verdicts_of(row: Row, first_offset: int, count: int) -> Verdicts | None:
    """The verdicts in a row of `with_verdicts` on `count` entries from `first_offset` on; None if the row has no condition.

    Raises:
        LakeError: the tables lack the properties of an entry.
    """
    if row["condition"] is None:
        return None
    out = np.full(count, _NOT_JUDGED, np.uint8)
    for part in row["verdicts"] or ():
        verdicts = np.frombuffer(part["verdicts"], np.uint8)
        skipped, at = max(first_offset - part["firstQueueOffset"], 0), max(part["firstQueueOffset"] - first_offset, 0)
        found = verdicts[skipped : skipped + max(count - at, 0)]
        out[at : at + len(found)] = found
    if (out == _NOT_JUDGED).any():
        at = first_offset + int((out == _NOT_JUDGED).argmax())
        raise LakeError(
            f"consume_queue_properties: expected the properties of entry {at} of queue {row['queueId']} of {row['topic']!r}, found none; "
            "import the store again"
        )
    return out
