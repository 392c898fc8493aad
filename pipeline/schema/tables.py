"""The tables of a lake: every column with its type and its meaning, in one place.

Columns have the broker's own names. A queue is (brokerName, topic, queueId). Offsets are the broker's: `queueOffset` counts entries of a
queue, `physicOffset` bytes of the commit log. Timestamps are ms since 1970, UTC.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.schema.capture_tables import CAPTURED
from pipeline.schema.follow_tables import FOLLOWED
from pipeline.schema.lag_tables import OBSERVED
from pipeline.schema.scenario_tables import ANSWERED_SCENARIOS
from pipeline.schema.simulation_tables import SIMULATED
from pipeline.schema.table import BROKER_NAME, QUEUE_ID, RUN_ID, TOPIC, Column, nullable
from pipeline.schema.table import Layout as Layout  # noqa: PLC0414 (most callers name it and Table beside the tables)
from pipeline.schema.table import Table as Table  # noqa: PLC0414
from pipeline.schema.timer_tables import TIMER_LOG, TIMER_SLOT

# Version of the tables' definitions, stored in a lake's lake_version. A change of a column's meaning or type raises it, and so does an
# added or removed column, or a constraint that existing rows may break. A new table, or a constraint that always held, does not raise it.
TABLES_VERSION = 2
PARTITION_COLUMNS = ("topic", "queueId")
# columns whose statistics prune files; statistics of other columns cost time at import and prune nothing
_STATS = ("brokerName", "topic", "queueId", "queueOffset", "physicOffset", "storeTimestamp")

_QUEUE_KEY = (BROKER_NAME, TOPIC, QUEUE_ID)

EXT_FILES_TYPE = "ARRAY<STRUCT<name: STRING, fromOffset: BIGINT, length: BIGINT, wrote: BIGINT>>"
EXT_UNIT_TYPE = "STRUCT<tagsCode: BIGINT, msgStoreTime: BIGINT, filterBitMap: BINARY>"

COMMIT_LOG = Table(
    "commit_log",
    "One row per message of the commit log, with every field of the record.",
    (
        *_QUEUE_KEY,
        Column("queueOffset", "BIGINT", "offset of the message in its queue; 0 for prepared and rolled back transaction messages"),
        Column("physicOffset", "BIGINT", "position of the record's first byte in the commit log"),
        Column("storeSize", "INT", "length of the record in bytes"),
        Column("bodyCrc", "INT", "CRC-32 of the stored body without the CRC's top bit; 0 for an empty body"),
        Column("flag", "INT", "flag that the producer set"),
        Column(
            "sysFlag",
            "INT",
            "bits: 1 compressed (bits 8 to 10: 0 and 3 zlib, 1 LZ4, 2 zstd); 4, 8 and 12 transaction prepared, "
            "commit and rollback; 16 and 32 IPv6 addresses",
        ),
        Column("bornTimestamp", "BIGINT", "when the producer sent the message, ms since 1970 by the client's clock"),
        Column("bornHost", "STRING", "address of the client that sent the message"),
        Column("bornPort", "INT", "port of the client that sent the message"),
        Column("storeTimestamp", "BIGINT", "when the broker stored the message, ms since 1970 by the broker's clock"),
        Column("storeHost", "STRING", "address of the broker that stored the message"),
        Column("storePort", "INT", "port of the broker that stored the message"),
        Column("reconsumeTimes", "INT", "how often consumers sent the message back"),
        Column("preparedTransactionOffset", "BIGINT", "commit log offset of the prepared message of the transaction"),
        Column("body", "BINARY", "the body as stored, compressed if sysFlag says so"),
        Column("propertiesRaw", "BINARY", "the properties as stored bytes; only these keep order and duplicates"),
        Column("properties", "MAP<STRING, STRING>", "the properties as the broker decodes them"),
        nullable("tags", "STRING", "property TAGS of the message; NULL if it has none"),
        nullable("keys", "STRING", "property KEYS of the message: its keys with spaces between them; NULL if it has none"),
        nullable(
            "msgId",
            "STRING",
            "offset message id: the broker's address and the record's offset in the commit log; NULL if the broker's decoder gives null",
        ),
        Column("recordCrc32", "BIGINT", "CRC-32 of the record's bytes"),
    ),
    key=("brokerName", "physicOffset"),
    checks=("physicOffset >= 0", "storeSize > 0", "recordCrc32 >= 0"),
    by_queue=True,
    cluster_by=("topic", "queueId", "queueOffset"),
    stats=_STATS,
)

CONSUME_QUEUE = Table(
    "consume_queue",
    "One row per entry of a consume queue.",
    (
        *_QUEUE_KEY,
        Column("queueOffset", "BIGINT", "offset of the entry in its queue"),
        Column("physicOffset", "BIGINT", "position in the commit log where the entry's message starts"),
        Column("size", "INT", "length of the entry's message in bytes; 2147483647 together with physicOffset 0 marks a pre-blank"),
        Column(
            "tagsCode",
            "BIGINT",
            "hash code of the message's tag; in SCHEDULE_TOPIC_XXXX the time at which the message is due, ms; or "
            "the address of the entry's ext unit",
        ),
        nullable("extUnit", EXT_UNIT_TYPE, "unit of the entry in the consume queue extension; NULL if it has none"),
        nullable("storeTimestamp", "BIGINT", "storeTimestamp of the entry's message, ms; NULL if the commit log no longer has the message"),
        Column("bytesBefore", "BIGINT", "sum of the sizes of the entries before this one in the same queue file, bytes"),
    ),
    key=("brokerName", "topic", "queueId", "queueOffset"),
    checks=("queueOffset >= 0",),
    by_queue=True,
    cluster_by=("topic", "queueId", "queueOffset"),
    stats=_STATS,
)

# row groups of about 16 runs, for tables whose rows are runs of thousands of entries or records; a pull needs one or two runs
_FEW_RUNS_BYTES = 4 << 20

CONSUME_QUEUE_SEGMENT = Table(
    "consume_queue_segment",
    "The entries of consume_queue packed, one row per run of entries of one queue file; replays read this table.",
    (
        *_QUEUE_KEY,
        Column("segment", "BIGINT", "number of the run in its queue; the count includes runs of missing files"),
        Column("firstQueueOffset", "BIGINT", "offset of the run's first entry"),
        Column("entryCount", "INT", "number of entries in the run"),
        Column("entries", "BINARY", "the run's entries, 20 bytes each, followed by the entries that a pull at the end of the run may scan"),
        Column(
            "storeTimestamps",
            "BINARY",
            "storeTimestamp of each entry of the run, 8 bytes little endian each; the least BIGINT for an entry without one",
        ),
        Column("minStoreTimestamp", "BIGINT", "the least value in storeTimestamps, ms"),
        Column("fileFirstOffset", "BIGINT", "offset of the first entry of the run's queue file"),
        Column("entryBytes", "BIGINT", "sum of the sizes of the run's entries, bytes"),
        Column("bytesBefore", "BIGINT", "sum of the sizes of the entries before the run in the same queue file, bytes"),
        Column("oddEntries", "ARRAY<INT>", "places in the run, from 0, of entries whose bytes are no record of commit_log"),
        nullable("extUnits", "BINARY", "units of the consume queue extension, one for each entry in entries; NULL if there are none"),
    ),
    key=("brokerName", "topic", "queueId", "firstQueueOffset"),
    checks=(
        "fileFirstOffset BETWEEN 0 AND firstQueueOffset",
        "entryCount > 0",
        "length(entries) >= 20 * entryCount",
        "length(storeTimestamps) = 8 * entryCount",
    ),
    cluster_by=(),
    row_group_bytes=_FEW_RUNS_BYTES,
)

CONSUME_QUEUE_PROPERTIES = Table(
    "consume_queue_properties",
    "Packed properties of the messages to which the entries of consume_queue_segment point; filters by expression read this table.",
    (
        *_QUEUE_KEY,
        Column("segment", "BIGINT", "number of the run of entries, as in consume_queue_segment"),
        Column("firstQueueOffset", "BIGINT", "offset of the first entry of this part of the run"),
        Column(
            "lengths",
            "BINARY",
            "length of each entry's properties in bytes, 4 bytes little endian each; negative if the broker decodes no properties",
        ),
        Column("properties", "BINARY", "the properties as stored, one entry's after the other's"),
    ),
    key=("brokerName", "topic", "queueId", "firstQueueOffset"),
    checks=("firstQueueOffset >= 0", "length(lengths) > 0"),
    row_group_bytes=_FEW_RUNS_BYTES,
)

ODD_ENTRY = Table(
    "odd_entry",
    "What the broker delivers for an entry of a queue if the entry's bytes are no record of commit_log.",
    (
        BROKER_NAME,
        Column("physicOffset", "BIGINT", "physicOffset of the entry"),
        Column("size", "INT", "size of the entry, bytes"),
        Column("startOffset", "BIGINT", "position in the commit log where the delivered bytes start"),
        nullable("queueOffset", "BIGINT", "queueOffset in the delivered bytes; NULL if the bytes do not decode"),
        nullable("messagePhysicOffset", "BIGINT", "physicOffset in the delivered bytes; NULL if the bytes do not decode"),
        nullable("msgId", "STRING", "offset message id in the delivered bytes; NULL if the bytes do not decode"),
        nullable("tags", "STRING", "property TAGS in the delivered bytes; NULL if they do not decode or have no such property"),
        nullable("keys", "STRING", "property KEYS in the delivered bytes; NULL if they do not decode or have no such property"),
        nullable("bodyCrc", "INT", "bodyCrc in the delivered bytes; NULL if the bytes do not decode"),
        nullable("storeTimestamp", "BIGINT", "storeTimestamp in the delivered bytes; NULL if the bytes do not decode"),
        Column("recordCrc32", "BIGINT", "CRC-32 of the delivered bytes"),
    ),
    key=("brokerName", "physicOffset", "size"),
    checks=("recordCrc32 >= 0",),
)

COMMIT_LOG_SEGMENT = Table(
    "commit_log_segment",
    "Ends and store timestamps of the commit log's records, packed: they give the end of the log at a given time.",
    (
        BROKER_NAME,
        Column("firstPhysicOffset", "BIGINT", "offset of the run's first record"),
        Column("endPhysicOffset", "BIGINT", "offset after the run's last record"),
        Column("recordCount", "INT", "number of records in the run"),
        Column("ends", "BINARY", "offset after each record of the run, 8 bytes little endian each"),
        Column("storeTimestamps", "BINARY", "storeTimestamp of each record of the run, 8 bytes little endian each"),
        Column("minStoreTimestamp", "BIGINT", "the least value in storeTimestamps, ms"),
    ),
    key=("brokerName", "firstPhysicOffset"),
    checks=(
        "firstPhysicOffset BETWEEN 0 AND endPhysicOffset - 1",
        "recordCount > 0",
        "length(ends) = 8 * recordCount",
        "length(storeTimestamps) = 8 * recordCount",
    ),
    row_group_bytes=_FEW_RUNS_BYTES,
)

QUEUE = Table(
    "queue",
    "Begin and end of each queue that has a folder, as the broker has them after load and start.",
    (
        *_QUEUE_KEY,
        Column("minOffset", "BIGINT", "begin of the queue, ConsumeQueue.getMinOffsetInQueue"),
        Column("maxOffset", "BIGINT", "end of the queue (the broker offset), ConsumeQueue.getMaxOffsetInQueue"),
    ),
    key=("brokerName", "topic", "queueId"),
    checks=("minOffset BETWEEN 0 AND maxOffset",),
)

STORE_FILE = Table(
    "store_file",
    "Every file of the store, and every empty folder.",
    (
        BROKER_NAME,
        Column(
            "kind",
            "STRING",
            "kind of the file: commitlog, consumequeue, consumequeue_ext, index, config, checkpoint, abort, lock "
            "or other; folder for an empty folder",
        ),
        nullable("topic", "STRING", "topic of a consume queue file; NULL for other files"),
        nullable("queueId", "INT", "queueId of a consume queue file; NULL for other files"),
        Column("name", "STRING", "name of the file; for a mapped file twenty digits, the offset of its first byte"),
        nullable("fromOffset", "BIGINT", "offset of the first byte of a mapped file, its name as a number; NULL for other files"),
        Column("length", "BIGINT", "length of the file in bytes"),
        nullable("wrote", "BIGINT", "bytes of a mapped file that are in use after load and start; NULL for other files"),
        nullable(
            "mtimeMs",
            "BIGINT",
            "last modification of the file, ms since 1970; look-ups by time depend on it; 0 for a file that start created",
        ),
        Column("path", "STRING", "path of the file below the store's directory, with slashes"),
    ),
    key=("brokerName", "path"),
    checks=("length >= 0", "wrote BETWEEN 0 AND length", "fromOffset >= 0"),
)

STORE_FILE_RANGE = Table(
    "store_file_range",
    "Bytes of the store that no row of commit_log or consume_queue can restore: blanks, tails, odd "
    "records, all other files. Zeros are left out.",
    (
        BROKER_NAME,
        Column("kind", "STRING", "kind of the file, as in store_file"),
        Column("name", "STRING", "name of the file"),
        Column("position", "BIGINT", "position of these bytes in the file"),
        Column("bytes", "BINARY", "the bytes at this position, 1 MiB at most"),
        Column("path", "STRING", "path of the file, as in store_file"),
    ),
    key=("brokerName", "path", "position"),
    checks=("position >= 0", "length(bytes) BETWEEN 1 AND 1048576"),
)

INDEX_ENTRY = Table(
    "index_entry",
    "One row per entry of an index file: a message under the hash code of one of its keys.",
    (
        BROKER_NAME,
        Column("file", "STRING", "name of the index file: the time when the broker began it"),
        Column("entry", "INT", "number of the entry in its file, from 1"),
        Column("keyHash", "INT", "absolute value of String.hashCode of topic#key; different keys may have the same"),
        Column("slot", "INT", "hash slot whose chain has the entry: keyHash % maxHashSlotNum"),
        Column("phyOffset", "BIGINT", "position in the commit log where the message starts"),
        Column("timeDiff", "INT", "seconds from the file's beginTimestamp to the message's storeTimestamp"),
        Column("storeTimestamp", "BIGINT", "the message's time as a search by time computes it, ms: beginTimestamp + 1000 * timeDiff"),
        Column("previous", "INT", "number of the entry before this one in the chain of its slot; 0 if there is none"),
    ),
    key=("brokerName", "file", "entry"),
    checks=("entry >= 1",),
)

CHECKPOINT = Table(
    "checkpoint",
    "The checkpoint file: up to which storeTimestamp each part of the store is known to be on disk. A store without the file has no row.",
    (
        BROKER_NAME,
        Column("physicMsgTimestamp", "BIGINT", "storeTimestamp of the last message that was flushed to the commit log, ms"),
        Column("logicsMsgTimestamp", "BIGINT", "storeTimestamp of the last message that was dispatched to its queue, ms"),
        Column("indexMsgTimestamp", "BIGINT", "storeTimestamp of the last message in the last full index file, ms"),
        nullable(
            "masterFlushedOffset", "BIGINT", "offset in the commit log up to which the master flushed it; NULL in the file of a broker 4.9"
        ),
        nullable(
            "confirmPhyOffset",
            "BIGINT",
            "offset in the commit log up to which it may be read; 0 if it was never set; NULL in the file of a broker 4.9",
        ),
        nullable(
            "logicsPhysicalOffset",
            "BIGINT",
            "offset in the commit log up to which the queues have its messages; NULL in the file of a broker 4.9",
        ),
    ),
    key=("brokerName",),
)

TOPIC_CONFIG = Table(
    "topic_config",
    "config/topics.json: one row per topic.",
    (
        BROKER_NAME,
        TOPIC,
        Column("readQueueNums", "INT", "number of queues that can be pulled"),
        Column("writeQueueNums", "INT", "number of queues that can be written"),
        Column("perm", "INT", "permissions, added up: 4 read, 2 write, 1 inherit"),
        nullable("topicFilterType", "STRING", "SINGLE_TAG or MULTI_TAG; NULL if the file has none"),
        Column("topicSysFlag", "INT", "1 unit, 2 has unit sub"),
        Column("order", "BOOLEAN", "whether the topic is ordered"),
        Column("json", "STRING", "the whole JSON object as stored"),
    ),
    key=("brokerName", "topic"),
)

SUBSCRIPTION_GROUP = Table(
    "subscription_group",
    "config/subscriptionGroup.json: one row per consumer group.",
    (
        BROKER_NAME,
        Column("consumerGroup", "STRING", "name of the consumer group"),
        Column("consumeEnable", "BOOLEAN", "whether the group may pull"),
        Column("consumeFromMinEnable", "BOOLEAN", "whether the group may start from the min offset"),
        Column("consumeBroadcastEnable", "BOOLEAN", "whether the group may consume in broadcast mode"),
        Column("retryQueueNums", "INT", "number of queues of the group's retry topic"),
        Column("retryMaxTimes", "INT", "number of retries before a message goes to the dead letter queue"),
        Column("brokerId", "BIGINT", "id of the broker from which the group pulls"),
        Column("whichBrokerWhenConsumeSlowly", "BIGINT", "id of the broker from which the group pulls when it consumes slowly"),
        Column("notifyConsumerIdsChangedEnable", "BOOLEAN", "whether the broker notifies the group's clients when its members change"),
        Column("json", "STRING", "the whole JSON object as stored"),
    ),
    key=("brokerName", "consumerGroup"),
)

CONSUMER_OFFSET = Table(
    "consumer_offset",
    "config/consumerOffset.json (lmqConsumerOffset.json with enableLmq): the offset that a group committed, one row per group and queue.",
    (
        BROKER_NAME,
        Column("consumerGroup", "STRING", "name of the consumer group"),
        TOPIC,
        QUEUE_ID,
        Column("consumerOffset", "BIGINT", "next offset that the group will consume"),
    ),
    key=("brokerName", "consumerGroup", "topic", "queueId"),
)

DELAY_OFFSET = Table(
    "delay_offset",
    "config/delayOffset.json: up to which offset the broker delivered each delay level.",
    (
        BROKER_NAME,
        Column("delayLevel", "INT", "delay level, 1 is the first; its queue in SCHEDULE_TOPIC_XXXX is delayLevel - 1"),
        Column("offset", "BIGINT", "next offset of the level's queue to deliver"),
    ),
    key=("brokerName", "delayLevel"),
)

CONSUMER_FILTER = Table(
    "consumer_filter",
    "config/consumerFilter.json: the SQL92 filters that groups registered.",
    (
        BROKER_NAME,
        TOPIC,
        Column("consumerGroup", "STRING", "name of the consumer group"),
        nullable("expression", "STRING", "the filter; NULL if the file has none"),
        nullable("expressionType", "STRING", "SQL92; NULL if the file has none"),
        Column("bornTime", "BIGINT", "when the filter was registered, ms since 1970"),
        Column("deadTime", "BIGINT", "when the last consumer with the filter left, ms since 1970; 0 while a consumer is there"),
        Column("clientVersion", "BIGINT", "version of the subscription, ms since 1970 by the client's clock"),
        nullable("bloomBitPositions", "ARRAY<INT>", "bits of the group's filter in the bloom filter; NULL if the file has none"),
        nullable("bloomBitNum", "INT", "length of the bloom filter in bits; NULL if the file has none"),
        Column("json", "STRING", "the whole JSON object as stored"),
    ),
    key=("brokerName", "topic", "consumerGroup"),
)

PULL_OFFSET = Table(
    "pull_offset",
    "pullOffsetTable in config/consumerOffset.json of a broker 5.x: the offset after the last pull of each group.",
    (
        BROKER_NAME,
        Column("consumerGroup", "STRING", "name of the consumer group"),
        TOPIC,
        QUEUE_ID,
        Column("pullOffset", "BIGINT", "offset after the last message that a pull of the group got"),
    ),
    key=("brokerName", "consumerGroup", "topic", "queueId"),
)

CONSUMER_ORDER_INFO = Table(
    "consumer_order_info",
    "config/consumerOrderInfo.json of a broker 5.x: the messages that an orderly POP holds, one row per group and queue.",
    (
        BROKER_NAME,
        Column("consumerGroup", "STRING", "name of the consumer group"),
        TOPIC,
        QUEUE_ID,
        Column("popTime", "BIGINT", "when the messages were given out, ms since 1970"),
        nullable("invisibleTime", "BIGINT", "how long the messages are hidden from other consumers, ms; NULL if the file has none"),
        Column("queueOffsets", "ARRAY<BIGINT>", "offsets of the messages in the queue"),
        Column("lastConsumeTimestamp", "BIGINT", "when a message of the queue was last given out or acknowledged, ms since 1970"),
        Column("commitOffsetBit", "BIGINT", "bit n is set if the message at place n of queueOffsets (from 0) was acknowledged"),
        Column("json", "STRING", "the whole JSON object as stored"),
    ),
    key=("brokerName", "consumerGroup", "topic", "queueId"),
)

PENDING_MESSAGES = Table(
    "pending_messages",
    "config/timermetrics and config/transactionMetrics of a broker 5.x: how many messages of each topic the broker counts as pending.",
    (
        BROKER_NAME,
        Column("file", "STRING", "timermetrics: timer messages, with POP's check points; transactionMetrics: half messages"),
        Column("topic", "STRING", "topic to which the messages will go"),
        Column("count", "BIGINT", "number of messages that the broker counts"),
        Column("timeStamp", "BIGINT", "when the count last changed, ms since 1970"),
    ),
    key=("brokerName", "file", "topic"),
    checks=("file IN ('timermetrics', 'transactionMetrics')",),
)

TIMER_CHECKPOINT = Table(
    "timer_checkpoint",
    "config/timercheck of a broker 5.x: how far its timer has come. A store without the file has no row.",
    (
        BROKER_NAME,
        Column("lastReadTimeMs", "BIGINT", "the timer's clock, ms since 1970: the timer has delivered all messages that were due earlier"),
        Column("lastTimerLogFlushPos", "BIGINT", "offset in timerlog up to which it was flushed"),
        Column("lastTimerQueueOffset", "BIGINT", "offset in the queue of rmq_sys_wheel_timer up to which its messages are in timerlog"),
        Column(
            "masterTimerQueueOffset",
            "BIGINT",
            "offset in the queue of rmq_sys_wheel_timer up to which its messages are in the master's timerlog",
        ),
        Column("stateVersion", "BIGINT", "stateVersion in the file's data version"),
        Column("timestamp", "BIGINT", "timestamp in the file's data version, ms since 1970"),
        Column("counter", "BIGINT", "counter in the file's data version"),
    ),
    key=("brokerName",),
)

BROKER = Table(
    "broker",
    "The brokers in the lake, one row per broker.",
    (
        BROKER_NAME,
        Column("store", "STRING", "directory from which the store was imported"),
        Column("properties", "MAP<STRING, STRING>", "broker settings that were given at import"),
        Column("minPhyOffset", "BIGINT", "first offset of the commit log; -1 if it has no file"),
        Column("maxPhyOffset", "BIGINT", "end of the commit log: offset after its last record"),
        Column("mappedFileSizeCommitLog", "BIGINT", "length of a commit log file in bytes"),
        Column("mappedFileSizeConsumeQueue", "BIGINT", "length of a queue file in bytes"),
        nullable("maxHashSlotNum", "INT", "number of slots in an index file; NULL if damaged files do not show it"),
        nullable("maxIndexNum", "INT", "number of entries that an index file can hold; NULL if damaged files do not show it"),
        nullable(
            "maxStoreTimestamp",
            "BIGINT",
            "the greatest storeTimestamp in the store, ms: when the store was last written; NULL if the store has no message",
        ),
        Column("layout", "STRING", "layout of the broker's tables: partitioned or clustered"),
        Column("brokerRole", "STRING", "SYNC_MASTER, ASYNC_MASTER or SLAVE"),
        nullable("asFound", "BOOLEAN", "whether the files were imported as they were, without the changes that load and start make"),
        nullable(
            "followedFrom",
            "BIGINT",
            "end of the commit log when the store's other files were last read (by the import, or by a follow "
            "for those of the timer); NULL if the store was not followed",
        ),
    ),
    key=("brokerName",),
    checks=(
        "minPhyOffset BETWEEN -1 AND maxPhyOffset",
        "layout IN ('partitioned', 'clustered')",
        "brokerRole IN ('SYNC_MASTER', 'ASYNC_MASTER', 'SLAVE')",
    ),
)

LAKE_VERSION = Table(
    "lake_version",
    "The commit point of the lake: a run counts once it has a row here, and readers read the tables in the Delta versions of the last row.",
    (
        Column("version", "BIGINT", "number of the lake version: 1, 2, 3, ..."),
        RUN_ID,
        Column("what", "STRING", "kind of the run: import, replay, ..."),
        Column("brokerName", "STRING", "broker that the run was about"),
        Column("tables", "MAP<STRING, BIGINT>", "Delta version of each table, by the table's name"),
        Column("committedAt", "TIMESTAMP", "when the run was committed, by the wall clock"),
        nullable("checkpoint", "STRING", "checkpoint of the stream that wrote the batch; NULL if the run is no stream"),
        nullable("batchId", "BIGINT", "number of the stream's batch; NULL if the run is no stream"),
        nullable(
            "tablesVersion",
            "INT",
            "version of the table definitions that the tables follow; NULL means 1, because older lakes do not record it",
        ),
    ),
    key=("version",),
    checks=("version >= 1",),
)

# a request may lack topic and queueId
_QUEUE_KEY_OR_NULL = (BROKER_NAME, replace(TOPIC, nullable=True), replace(QUEUE_ID, nullable=True))

REPLAY_RUN = Table(
    "replay_run",
    "One row per finished replay; a stream has a row from its first batch on.",
    (
        BROKER_NAME,
        RUN_ID,
        Column("source", "STRING", "file, folder or table from which the requests came"),
        nullable("sourceDigest", "STRING", "SHA-256 of the request file; NULL if the source is no single file"),
        Column(
            "settings",
            "MAP<STRING, STRING>",
            "settings that were given, and `behind`, the slave lag (bytes or ms), if a slave with slave lag answered",
        ),
        Column("at", "STRING", "the state of the store that answered: snapshot, request-time or recorded-max"),
        Column("lakeVersion", "BIGINT", "version of the lake that the run read"),
        Column("startedAt", "TIMESTAMP", "when the run began, by the wall clock"),
        nullable("finishedAt", "TIMESTAMP", "when the run ended, by the wall clock; NULL while a stream is running"),
    ),
    key=("brokerName", "runId"),
    checks=("at IN ('snapshot', 'request-time', 'recorded-max')",),
)

ENTRIES_TYPE = "ARRAY<STRUCT<queueOffset: BIGINT, physicOffset: BIGINT, size: INT>>"

PULL_RESPONSE = Table(
    "pull_response",
    "One row per answered pull request: what the broker would have answered.",
    (
        *_QUEUE_KEY_OR_NULL,
        RUN_ID,
        Column("requestId", "STRING", "id of the request: digest of its source and line, the same each time the source is read"),
        nullable("consumerGroup", "STRING", "consumer group in the request; NULL if the request has none"),
        nullable("queueOffset", "BIGINT", "offset from which the pull asked for messages; NULL if the request has none"),
        nullable("maxMsgNums", "INT", "number of messages that the pull asked for at most; NULL if the request has none"),
        nullable("status", "STRING", "GetMessageStatus; NULL if the store answers null or throws, or if pullsim cannot answer"),
        nullable(
            "code",
            "INT",
            "response code of the answer. Without a status it is NULL, except for captured pulls: the code of "
            "the refusal, or SYSTEM_ERROR if the store throws or answers null",
        ),
        nullable("nextBeginOffset", "BIGINT", "offset from which the client should pull next; NULL if there is no status"),
        nullable("minOffset", "BIGINT", "begin of the queue (min offset) in the answer; NULL if there is no status"),
        nullable("maxOffset", "BIGINT", "end of the queue (max offset) in the answer; NULL if there is no status"),
        nullable("messageCount", "INT", "number of messages in the answer; NULL if there is no status"),
        nullable("bufferTotalSize", "INT", "bytes of the messages in the answer; NULL if there is no status"),
        nullable("suggestPullingFromSlave", "BOOLEAN", "whether the last entry read lies on disk; NULL if there is no status"),
        nullable(
            "msgCount4Commercial",
            "INT",
            "blocks of 64 KiB (4 KiB by the rules of 5.5.0) that the messages in the answer count as; NULL if there is no status",
        ),
        nullable(
            "diskFallBehind", "BIGINT", "bytes from the last entry read to the end of the commit log; NULL if the broker does not record it"
        ),
        nullable("exception", "STRING", "class of the exception that the store throws; NULL if it throws none"),
        nullable("error", "STRING", "why there is no answer; NULL if there is one"),
        nullable(
            "bodySha256", "STRING", "SHA-256 of the answer's message records as the broker sends them; NULL unless the pull was captured"
        ),
        nullable("heldMillis", "BIGINT", "when a held pull (long polling) began to wait, ms since 1970; NULL if the pull was not held"),
        nullable(
            "wokenMillis",
            "BIGINT",
            "when a held pull was woken and answered from the store as of that time, ms since 1970; NULL if the pull was not held",
        ),
        nullable("entries", ENTRIES_TYPE, "entries of the messages in the answer, in order; NULL if there is no status"),
    ),
    key=("brokerName", "runId", "requestId"),
    stats=("brokerName", "runId", "topic", "queueId", "queueOffset", "error"),
    checks=("(status = 'FOUND') = (messageCount > 0)", "messageCount = array_size(entries)", "wokenMillis >= heldMillis"),
)

REPLAYED = (REPLAY_RUN, PULL_RESPONSE)

# an import replaces a broker's rows in these tables
IMPORTED = (
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_SEGMENT,
    CONSUME_QUEUE_PROPERTIES,
    ODD_ENTRY,
    COMMIT_LOG_SEGMENT,
    QUEUE,
    STORE_FILE,
    STORE_FILE_RANGE,
    INDEX_ENTRY,
    CHECKPOINT,
    TOPIC_CONFIG,
    SUBSCRIPTION_GROUP,
    CONSUMER_OFFSET,
    DELAY_OFFSET,
    CONSUMER_FILTER,
    BROKER,
)
# the same for files that only a broker 5.x writes: an import writes such a table if it finds rows, or if the lake has the table
IMPORTED_OF_5 = (PULL_OFFSET, CONSUMER_ORDER_INFO, PENDING_MESSAGES, TIMER_CHECKPOINT, TIMER_LOG, TIMER_SLOT)
TABLES = {
    table.name: table for table in (*IMPORTED, *IMPORTED_OF_5, *FOLLOWED, *CAPTURED, *REPLAYED, *ANSWERED_SCENARIOS, *OBSERVED, *SIMULATED)
}
