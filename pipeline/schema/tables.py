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
    "One row a message of the commit log, every field of the record.",
    (
        *_QUEUE_KEY,
        Column("queueOffset", "BIGINT", "offset in its queue; 0 for prepared and rolled back transaction messages"),
        Column("physicOffset", "BIGINT", "offset of the record's first byte in the commit log"),
        Column("storeSize", "INT", "length of the record in bytes"),
        Column("bodyCrc", "INT", "CRC-32 of the stored body without its top bit; 0 for an empty body"),
        Column("flag", "INT", "the producer's flag"),
        Column(
            "sysFlag",
            "INT",
            "1 compressed (bits 8 to 10: 0 and 3 zlib, 1 LZ4, 2 zstd), 4/8/12 transaction prepared/commit/rollback, 16 and 32 IPv6 hosts",
        ),
        Column("bornTimestamp", "BIGINT", "ms, clock of the client"),
        Column("bornHost", "STRING", "address of the client"),
        Column("bornPort", "INT", "port of the client"),
        Column("storeTimestamp", "BIGINT", "ms, clock of the broker when it appended the record"),
        Column("storeHost", "STRING", "address of the broker"),
        Column("storePort", "INT", "port of the broker"),
        Column("reconsumeTimes", "INT", "how often a consumer sent it back"),
        Column("preparedTransactionOffset", "BIGINT", "commit log offset of the prepared message"),
        Column("body", "BINARY", "body as stored, compressed if sysFlag says so"),
        Column("propertiesRaw", "BINARY", "the properties' bytes: order and duplicates survive here only"),
        Column("properties", "MAP<STRING, STRING>", "the properties as the broker decodes them"),
        nullable("tags", "STRING", "property TAGS"),
        nullable("keys", "STRING", "property KEYS"),
        nullable("msgId", "STRING", "offset message id; NULL where the broker's decoder gives null"),
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
    "One row an entry of a consume queue.",
    (
        *_QUEUE_KEY,
        Column("queueOffset", "BIGINT", "offset of the entry in its queue"),
        Column("physicOffset", "BIGINT", "where its message starts in the commit log"),
        Column("size", "INT", "length of its message in bytes; 2147483647 with physicOffset 0 is a pre-blank"),
        Column("tagsCode", "BIGINT", "hash code of the tag, deliver time in SCHEDULE_TOPIC_XXXX, or place of its ext unit"),
        nullable("extUnit", EXT_UNIT_TYPE, "its unit in the consume queue extension; NULL where there is none"),
        nullable("storeTimestamp", "BIGINT", "of its message, ms; NULL where the commit log no longer has it"),
        Column("bytesBefore", "BIGINT", "sizes of the entries before it in the same queue file"),
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
    "The entries of consume_queue packed, a run of one queue file a row: what a replay reads.",
    (
        *_QUEUE_KEY,
        Column("segment", "BIGINT", "number of the run in its queue, counting those of missing files too"),
        Column("firstQueueOffset", "BIGINT", "offset of the run's first entry"),
        Column("entryCount", "INT", "entries of the run"),
        Column("entries", "BINARY", "the run's 20-byte entries, and those after it that a pull at its end may scan"),
        Column("storeTimestamps", "BINARY", "storeTimestamp of each entry, 8 bytes little endian; the least number where it has none"),
        Column("minStoreTimestamp", "BIGINT", "the least of storeTimestamps"),
        Column("fileFirstOffset", "BIGINT", "offset of the first entry of the run's file"),
        Column("entryBytes", "BIGINT", "sizes of the run's entries"),
        Column("bytesBefore", "BIGINT", "sizes of the entries of the same file before the run"),
        Column("oddEntries", "ARRAY<INT>", "positions in the run of entries whose bytes are no record of commit_log"),
        nullable("extUnits", "BINARY", "units in the consume queue extension, one for each of `entries`; NULL where there are none"),
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
    "Properties of the messages that the entries of consume_queue_segment point to, packed: what filters by expression read.",
    (
        *_QUEUE_KEY,
        Column("segment", "BIGINT", "run of entries, that of consume_queue_segment"),
        Column("firstQueueOffset", "BIGINT", "offset of the first entry of this part of the run"),
        Column("lengths", "BINARY", "bytes of each entry's properties, 4 bytes little endian; negative where the broker decodes none"),
        Column("properties", "BINARY", "the properties as stored, one entry's after the other's"),
    ),
    key=("brokerName", "topic", "queueId", "firstQueueOffset"),
    checks=("firstQueueOffset >= 0", "length(lengths) > 0"),
    row_group_bytes=_FEW_RUNS_BYTES,
)

ODD_ENTRY = Table(
    "odd_entry",
    "What the broker delivers for an entry whose bytes are no record of commit_log.",
    (
        BROKER_NAME,
        Column("physicOffset", "BIGINT", "of the entry"),
        Column("size", "INT", "of the entry"),
        Column("startOffset", "BIGINT", "where the delivered bytes start"),
        nullable("queueOffset", "BIGINT", "as decoded from the bytes; NULL where they do not decode, like all that follow"),
        nullable("messagePhysicOffset", "BIGINT", "as decoded"),
        nullable("msgId", "STRING", "as decoded"),
        nullable("tags", "STRING", "as decoded"),
        nullable("keys", "STRING", "as decoded"),
        nullable("bodyCrc", "INT", "as decoded"),
        nullable("storeTimestamp", "BIGINT", "as decoded"),
        Column("recordCrc32", "BIGINT", "CRC-32 of the delivered bytes"),
    ),
    key=("brokerName", "physicOffset", "size"),
    checks=("recordCrc32 >= 0",),
)

COMMIT_LOG_SEGMENT = Table(
    "commit_log_segment",
    "Ends and store timestamps of the commit log's records packed: the log's end as of a time.",
    (
        BROKER_NAME,
        Column("firstPhysicOffset", "BIGINT", "offset of the run's first record"),
        Column("endPhysicOffset", "BIGINT", "offset after the run's last record"),
        Column("recordCount", "INT", "records of the run"),
        Column("ends", "BINARY", "offset after each record, 8 bytes little endian"),
        Column("storeTimestamps", "BINARY", "storeTimestamp of each record, 8 bytes little endian"),
        Column("minStoreTimestamp", "BIGINT", "the least of storeTimestamps"),
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
    "Bounds of each queue that has a folder, as the broker has them after load and start.",
    (
        *_QUEUE_KEY,
        Column("minOffset", "BIGINT", "ConsumeQueue.getMinOffsetInQueue"),
        Column("maxOffset", "BIGINT", "ConsumeQueue.getMaxOffsetInQueue, the broker offset"),
    ),
    key=("brokerName", "topic", "queueId"),
    checks=("minOffset BETWEEN 0 AND maxOffset",),
)

STORE_FILE = Table(
    "store_file",
    "Every file of the store, and every folder that is empty.",
    (
        BROKER_NAME,
        Column(
            "kind",
            "STRING",
            "commitlog, consumequeue, consumequeue_ext, index, config, checkpoint, abort, lock, other; folder for an empty folder",
        ),
        nullable("topic", "STRING", "of a consume queue file"),
        nullable("queueId", "INT", "of a consume queue file"),
        Column("name", "STRING", "of a mapped file twenty digits, the offset of its first byte"),
        nullable("fromOffset", "BIGINT", "the same as a number; NULL for a file that is no mapped one"),
        Column("length", "BIGINT", "bytes"),
        nullable("wrote", "BIGINT", "bytes of a mapped file in use after load and start"),
        nullable("mtimeMs", "BIGINT", "last modification, ms: look-ups by time depend on it; 0 for a file that start made"),
        Column("path", "STRING", "below the store's directory, with slashes"),
    ),
    key=("brokerName", "path"),
    checks=("length >= 0", "wrote BETWEEN 0 AND length", "fromOffset >= 0"),
)

STORE_FILE_RANGE = Table(
    "store_file_range",
    "Bytes that no row of commit_log or consume_queue gives back: blanks, tails, odd records, all other files. Zeros are left out.",
    (
        BROKER_NAME,
        Column("kind", "STRING", "that of store_file"),
        Column("name", "STRING", "of the file"),
        Column("position", "BIGINT", "in the file"),
        Column("bytes", "BINARY", "the bytes there, 1 MiB at most"),
        Column("path", "STRING", "of the file, that of store_file"),
    ),
    key=("brokerName", "path", "position"),
    checks=("position >= 0", "length(bytes) BETWEEN 1 AND 1048576"),
)

INDEX_ENTRY = Table(
    "index_entry",
    "One row an entry of an index file: a message under the hash of one of its keys.",
    (
        BROKER_NAME,
        Column("file", "STRING", "name of the index file: when it was begun"),
        Column("entry", "INT", "number of the entry in its file, the first being 1"),
        Column("keyHash", "INT", "absolute value of String.hashCode of topic#key; another key may have the same"),
        Column("slot", "INT", "hash slot that the entry is chained from: keyHash % maxHashSlotNum"),
        Column("phyOffset", "BIGINT", "where the message starts in the commit log"),
        Column("timeDiff", "INT", "seconds between the file's beginTimestamp and the message's storeTimestamp"),
        Column("storeTimestamp", "BIGINT", "ms, as a search by time counts it: beginTimestamp + 1000 * timeDiff"),
        Column("previous", "INT", "number of the entry before it in its slot, 0 for none"),
    ),
    key=("brokerName", "file", "entry"),
    checks=("entry >= 1",),
)

CHECKPOINT = Table(
    "checkpoint",
    "The checkpoint file: up to which storeTimestamp each part is known to be on disk; no row where there is no file.",
    (
        BROKER_NAME,
        Column("physicMsgTimestamp", "BIGINT", "ms, of the last message flushed to the commit log"),
        Column("logicsMsgTimestamp", "BIGINT", "ms, of the last message dispatched to its queue"),
        Column("indexMsgTimestamp", "BIGINT", "ms, of the last message of the last full index file"),
        nullable("masterFlushedOffset", "BIGINT", "offset in the log that the master flushed; NULL in the file of a broker 4.9"),
        nullable(
            "confirmPhyOffset", "BIGINT", "offset in the log up to which it may be read, 0 if never set; NULL in that of a broker 4.9"
        ),
        nullable("logicsPhysicalOffset", "BIGINT", "end in the log of what the queues have; NULL in that of a broker 4.9"),
    ),
    key=("brokerName",),
)

TOPIC_CONFIG = Table(
    "topic_config",
    "config/topics.json.",
    (
        BROKER_NAME,
        TOPIC,
        Column("readQueueNums", "INT", "queues that can be pulled"),
        Column("writeQueueNums", "INT", "queues that can be written"),
        Column("perm", "INT", "4 read, 2 write, 1 inherit"),
        nullable("topicFilterType", "STRING", "SINGLE_TAG or MULTI_TAG"),
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
        nullable("expression", "STRING", "the filter"),
        nullable("expressionType", "STRING", "SQL92"),
        Column("bornTime", "BIGINT", "ms, when it was registered"),
        Column("deadTime", "BIGINT", "ms, when its last consumer left; 0 while one is there"),
        Column("clientVersion", "BIGINT", "version of the subscription"),
        nullable("bloomBitPositions", "ARRAY<INT>", "bits of the bloom filter"),
        nullable("bloomBitNum", "INT", "length of the bloom filter in bits"),
        Column("json", "STRING", "the whole object as stored"),
    ),
    key=("brokerName", "topic", "consumerGroup"),
)

PULL_OFFSET = Table(
    "pull_offset",
    "config/consumerOffset.json of a broker 5.x, pullOffsetTable: the offset of the last pull of each group.",
    (
        BROKER_NAME,
        Column("consumerGroup", "STRING", "name of the group"),
        TOPIC,
        QUEUE_ID,
        Column("pullOffset", "BIGINT", "offset after the last message that a pull was given"),
    ),
    key=("brokerName", "consumerGroup", "topic", "queueId"),
)

CONSUMER_ORDER_INFO = Table(
    "consumer_order_info",
    "config/consumerOrderInfo.json of a broker 5.x: the messages that an orderly POP holds, a row a queue.",
    (
        BROKER_NAME,
        Column("consumerGroup", "STRING", "name of the group"),
        TOPIC,
        QUEUE_ID,
        Column("popTime", "BIGINT", "ms, when the messages were given out"),
        nullable("invisibleTime", "BIGINT", "for how many ms"),
        Column("queueOffsets", "ARRAY<BIGINT>", "offsets of the messages in the queue"),
        Column("lastConsumeTimestamp", "BIGINT", "ms, when one was last given out or acknowledged"),
        Column("commitOffsetBit", "BIGINT", "bit n: the message at place n of queueOffsets, counted from 0, was acknowledged"),
        Column("json", "STRING", "the whole object as stored"),
    ),
    key=("brokerName", "consumerGroup", "topic", "queueId"),
)

PENDING_MESSAGES = Table(
    "pending_messages",
    "config/timermetrics and config/transactionMetrics of a broker 5.x: how many messages of a topic the broker counts as pending.",
    (
        BROKER_NAME,
        Column("file", "STRING", "timermetrics: timer messages, POP's check points among them; transactionMetrics: half messages"),
        Column("topic", "STRING", "topic to which the messages will go"),
        Column("count", "BIGINT", "number of messages"),
        Column("timeStamp", "BIGINT", "ms, when the number last changed"),
    ),
    key=("brokerName", "file", "topic"),
    checks=("file IN ('timermetrics', 'transactionMetrics')",),
)

TIMER_CHECKPOINT = Table(
    "timer_checkpoint",
    "config/timercheck of a broker 5.x: how far its timer has come; no row where there is no file.",
    (
        BROKER_NAME,
        Column("lastReadTimeMs", "BIGINT", "ms: messages due earlier were delivered"),
        Column("lastTimerLogFlushPos", "BIGINT", "offset in timerlog up to which it was flushed"),
        Column("lastTimerQueueOffset", "BIGINT", "offset in the queue of rmq_sys_wheel_timer up to which messages are in timerlog"),
        Column("masterTimerQueueOffset", "BIGINT", "the same on the master"),
        Column("stateVersion", "BIGINT", "of the file's version"),
        Column("timestamp", "BIGINT", "of the file's version, ms"),
        Column("counter", "BIGINT", "of the file's version"),
    ),
    key=("brokerName",),
)

BROKER = Table(
    "broker",
    "The brokers in the lake: one row each.",
    (
        BROKER_NAME,
        Column("store", "STRING", "directory that was imported"),
        Column("properties", "MAP<STRING, STRING>", "settings given at import"),
        Column("minPhyOffset", "BIGINT", "first offset of the commit log, -1 where it has no file"),
        Column("maxPhyOffset", "BIGINT", "end of the commit log"),
        Column("mappedFileSizeCommitLog", "BIGINT", "bytes"),
        Column("mappedFileSizeConsumeQueue", "BIGINT", "bytes"),
        nullable("maxHashSlotNum", "INT", "slots of an index file; NULL where damaged files do not tell it"),
        nullable("maxIndexNum", "INT", "entries of an index file; likewise"),
        nullable("maxStoreTimestamp", "BIGINT", "the greatest storeTimestamp, ms: the moment the store was last written"),
        Column("layout", "STRING", "partitioned or clustered"),
        Column("brokerRole", "STRING", "SYNC_MASTER, ASYNC_MASTER or SLAVE"),
        nullable("asFound", "BOOLEAN", "whether the files were taken as they lay there, without what load and start make of them"),
        nullable(
            "followedFrom",
            "BIGINT",
            "where the commit log ended when the files beside it were read: by the import, or those of the timer by a follow; NULL where "
            "the store was not followed",
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
    "The commit point of the lake: a run counts from its row on, and the tables are read as its row says.",
    (
        Column("version", "BIGINT", "1, 2, 3, ..."),
        RUN_ID,
        Column("what", "STRING", "import, replay, ..."),
        Column("brokerName", "STRING", "broker it was about"),
        Column("tables", "MAP<STRING, BIGINT>", "Delta version of each table"),
        Column("committedAt", "TIMESTAMP", "wall clock"),
        nullable("checkpoint", "STRING", "of a stream: which checkpoint its batch belongs to"),
        nullable("batchId", "BIGINT", "of a stream: number of its batch"),
        nullable("tablesVersion", "INT", "version of the contract that the tables follow; NULL, before it was recorded, is 1"),
    ),
    key=("version",),
    checks=("version >= 1",),
)

# a request may lack topic and queueId
_QUEUE_KEY_OR_NULL = (BROKER_NAME, replace(TOPIC, nullable=True), replace(QUEUE_ID, nullable=True))

REPLAY_RUN = Table(
    "replay_run",
    "One row a finished replay, or a stream from its first batch on.",
    (
        BROKER_NAME,
        RUN_ID,
        Column("source", "STRING", "file, folder or table of the requests"),
        nullable("sourceDigest", "STRING", "SHA-256 of the file"),
        Column("settings", "MAP<STRING, STRING>", "settings that were given, and `behind` where a slave answered that was"),
        Column("at", "STRING", "snapshot, request-time or recorded-max"),
        Column("lakeVersion", "BIGINT", "version of the lake that was read"),
        Column("startedAt", "TIMESTAMP", "wall clock"),
        nullable("finishedAt", "TIMESTAMP", "wall clock; NULL while a stream goes on"),
    ),
    key=("brokerName", "runId"),
    checks=("at IN ('snapshot', 'request-time', 'recorded-max')",),
)

ENTRIES_TYPE = "ARRAY<STRUCT<queueOffset: BIGINT, physicOffset: BIGINT, size: INT>>"

PULL_RESPONSE = Table(
    "pull_response",
    "One row an answered pull request: what the broker would have answered.",
    (
        *_QUEUE_KEY_OR_NULL,
        RUN_ID,
        Column("requestId", "STRING", "digest of the source and the line: the same whenever the source is read"),
        nullable("consumerGroup", "STRING", "of the request"),
        nullable("queueOffset", "BIGINT", "offset asked for"),
        nullable("maxMsgNums", "INT", "messages asked for"),
        nullable("status", "STRING", "GetMessageStatus; NULL where the store answers null, throws, or we cannot answer"),
        nullable("code", "INT", "response code that goes with the status"),
        nullable("nextBeginOffset", "BIGINT", "offset to ask for next"),
        nullable("minOffset", "BIGINT", "of the queue"),
        nullable("maxOffset", "BIGINT", "of the queue"),
        nullable("messageCount", "INT", "messages given"),
        nullable("bufferTotalSize", "INT", "their bytes"),
        nullable("suggestPullingFromSlave", "BOOLEAN", "the last entry read lies on disk"),
        nullable("msgCount4Commercial", "INT", "messages counted in units of 64 KiB"),
        nullable("diskFallBehind", "BIGINT", "bytes between the last entry read and the log's end; NULL where not recorded"),
        nullable("exception", "STRING", "class that the store throws"),
        nullable("error", "STRING", "why there is no answer"),
        nullable("bodySha256", "STRING", "SHA-256 of the records of its messages as the broker sends them; of captured pulls only"),
        nullable("heldMillis", "BIGINT", "when a pull that was held (long polling) began to wait, ms; NULL for all others"),
        nullable("wokenMillis", "BIGINT", "when a pull that was held was asked again and answered, ms; the store was asked as of then"),
        nullable("entries", ENTRIES_TYPE, "entries given, in order"),
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
