-- Consumer lag, one row per group and queue: each queue with a stored offset, and each other queue of a topic on which the group has an
-- offset. The broker's own count is AdminBrokerProcessor.getConsumeStats. It takes a missing offset and an unknown time for 0; here both
-- are NULL. Unknown values are NULL, and reason says why.
CREATE OR REPLACE TEMPORARY VIEW consume_lag (
  brokerName COMMENT 'broker that the row is about',
  consumerGroup COMMENT 'name of the consumer group',
  topic COMMENT 'topic, as the broker spells it (%RETRY%group included)',
  queueId COMMENT 'number of the queue in its topic',
  minOffset COMMENT 'begin of the queue, ConsumeQueue.getMinOffsetInQueue; 0 if the store has no such queue',
  brokerOffset COMMENT 'end of the queue, ConsumeQueue.getMaxOffsetInQueue; 0 if the store has no such queue',
  consumerOffset COMMENT 'next offset that the group will consume; NULL if the group stored none',
  lag COMMENT 'consumer lag in messages: brokerOffset - consumerOffset. Negative if consumerOffset lies past the end of the queue; NULL if the group stored no offset, or if no BIGINT holds the difference',
  lagBytes COMMENT 'consumer lag in bytes: sum of the sizes of the entries from the greater of consumerOffset and minOffset on; NULL if the group stored no offset, or if a queue file is missing at that offset or after it',
  lagMillis COMMENT 'consumer lag in ms: asOf - storeTimestamp of entry consumerOffset, which is how long the next message has waited. 0 if lag is 0; NULL if that storeTimestamp is unknown',
  lastConsumedTimestamp COMMENT 'storeTimestamp of entry consumerOffset - 1, the message that the group consumed last, ms; NULL if unknown',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms',
  reason COMMENT 'why a column is NULL or odd; if several reasons hold, the first:
NO_OFFSET: the group has stored no offset for the queue, so its lag is unknown.
NO_QUEUE: an offset is stored, but the store has no such queue. The topic was deleted, or the offset came from elsewhere.
OFFSET_BEYOND_BROKER_OFFSET: the offset lies past the end of the queue, so lag is negative. The offset was set wrong, or the queue was created anew or restored from an older copy. No message waits; the broker corrects the offset at the next pull.
OFFSET_BELOW_MIN: the messages from consumerOffset to minOffset - 1 were deleted before the group consumed them. lag counts them, lagBytes does not.
PRE_BLANK: the next entry is a filler in front of the queue''s first real entry. It has no message; its size, 2147483647, counts in lagBytes.
NO_QUEUE_FILE: a file of the queue is missing at the offset or after it. lag counts the file''s entries; lagBytes is NULL.
MESSAGE_REMOVED: the queue has the next entry, but the commit log does not have its message. A pull skips the entry.
NOTHING_CONSUMED: consumerOffset is 0, so there is no last consumed message. Nothing is wrong.
LAST_CONSUMED_REMOVED: the message consumed last is no longer in the store. This is usual if a group keeps up and messages are few.'
)
COMMENT 'Consumer lag of each group in messages, bytes and ms; one row per queue.'
AS
WITH pairs AS (
  SELECT g.brokerName, g.consumerGroup, g.topic, q.queueId, CAST(NULL AS BIGINT) AS consumerOffset, q.minOffset, q.maxOffset
  FROM (SELECT DISTINCT brokerName, consumerGroup, topic FROM consumer_offset) g JOIN queue q USING (brokerName, topic)
  UNION ALL
  SELECT brokerName, consumerGroup, topic, queueId, consumerOffset, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT) FROM consumer_offset
), positions AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    max(consumerOffset) AS consumerOffset,
    max(maxOffset) IS NOT NULL AS hasQueue,
    coalesce(max(minOffset), 0) AS minOffset,
    coalesce(max(maxOffset), 0) AS brokerOffset,
    greatest(max(consumerOffset), max(minOffset), CASE WHEN max(minOffset) IS NULL THEN 0 END) AS countedFrom
  FROM pairs
  GROUP BY brokerName, consumerGroup, topic, queueId
), wanted AS (
  -- entries that give times and sizes: at most three per row, however long the queue is. A client may have committed any number, hence
  -- try_subtract. The group stays a column so that a filter on it reaches consumer_offset, and with it the partitions of consume_queue
  SELECT
    brokerName, consumerGroup, topic, queueId, consumerOffset, countedFrom,
    CASE entry WHEN 'last' THEN try_subtract(consumerOffset, 1L) WHEN 'next' THEN consumerOffset ELSE countedFrom END AS queueOffset
  FROM positions CROSS JOIN (VALUES ('last'), ('next'), ('counted')) AS e (entry)
  WHERE hasQueue AND consumerOffset IS NOT NULL AND (entry <> 'counted' OR countedFrom <> consumerOffset)
), found AS (
  -- one pass over three columns of consume_queue, not one per group: the few wanted entries are broadcast
  SELECT /*+ BROADCAST(w) */
    w.brokerName, w.consumerGroup, w.topic, w.queueId,
    -- bytes that are no message can have time 0, which getConsumeStats takes for no time
    max(CASE WHEN e.queueOffset < w.consumerOffset AND e.storeTimestamp > 0 THEN e.storeTimestamp END) AS lastTimestamp,
    max(CASE WHEN e.queueOffset = w.consumerOffset AND e.storeTimestamp > 0 THEN e.storeTimestamp END) AS nextTimestamp,
    max(CASE WHEN e.queueOffset = w.consumerOffset THEN e.size END) AS nextSize,
    max(CASE WHEN e.queueOffset = w.countedFrom THEN e.bytesBefore END) AS bytesBefore
  FROM consume_queue e
  JOIN wanted w
    ON e.brokerName = w.brokerName AND e.topic = w.topic AND e.queueId = w.queueId AND e.queueOffset = w.queueOffset
  GROUP BY w.brokerName, w.consumerGroup, w.topic, w.queueId
), file AS (
  SELECT brokerName, topic, queueId, fileFirstOffset, sum(entryBytes) AS bytes, sum(entryCount) AS entries
  FROM consume_queue_segment
  GROUP BY brokerName, topic, queueId, fileFirstOffset
), behind AS (
  -- for the files that reach past countedFrom: their bytes, and the number of entries from countedFrom on
  SELECT
    p.brokerName, p.consumerGroup, p.topic, p.queueId,
    sum(f.bytes) AS bytes,
    sum(f.fileFirstOffset + f.entries - greatest(f.fileFirstOffset, p.countedFrom)) AS entries
  FROM positions p
  JOIN file f
    ON f.brokerName = p.brokerName AND f.topic = p.topic AND f.queueId = p.queueId AND f.fileFirstOffset + f.entries > p.countedFrom
  GROUP BY p.brokerName, p.consumerGroup, p.topic, p.queueId
), measured AS (
  SELECT
    brokerName, consumerGroup, topic, queueId, p.minOffset, p.brokerOffset, p.consumerOffset,
    try_subtract(p.brokerOffset, p.consumerOffset) AS lag,
    CASE
      WHEN coalesce(b.entries, 0) < p.brokerOffset - p.countedFrom THEN NULL
      WHEN p.consumerOffset IS NOT NULL THEN coalesce(b.bytes, 0) - coalesce(n.bytesBefore, 0)
    END AS lagBytes,
    CASE WHEN p.brokerOffset = p.consumerOffset THEN 0 ELSE try_subtract(a.maxStoreTimestamp, n.nextTimestamp) END AS lagMillis,
    n.lastTimestamp AS lastConsumedTimestamp,
    a.maxStoreTimestamp AS asOf,
    p.hasQueue, p.countedFrom, n.nextSize, b.entries
  FROM positions p
  LEFT JOIN found n USING (brokerName, consumerGroup, topic, queueId)
  LEFT JOIN behind b USING (brokerName, consumerGroup, topic, queueId)
  LEFT JOIN broker a USING (brokerName)
)
SELECT
  brokerName, consumerGroup, topic, queueId, minOffset, brokerOffset, consumerOffset, lag, lagBytes, lagMillis, lastConsumedTimestamp, asOf,
  CASE
    WHEN consumerOffset IS NULL THEN 'NO_OFFSET'
    WHEN NOT hasQueue AND consumerOffset <> 0 THEN 'NO_QUEUE'
    WHEN consumerOffset > brokerOffset THEN 'OFFSET_BEYOND_BROKER_OFFSET'
    WHEN consumerOffset < minOffset THEN 'OFFSET_BELOW_MIN'
    WHEN lagMillis IS NULL AND nextSize = 2147483647 THEN 'PRE_BLANK'
    WHEN lagMillis IS NULL AND nextSize IS NULL OR coalesce(entries, 0) < brokerOffset - countedFrom THEN 'NO_QUEUE_FILE'
    WHEN lagMillis IS NULL THEN 'MESSAGE_REMOVED'
    WHEN lastConsumedTimestamp IS NULL AND consumerOffset = 0 THEN 'NOTHING_CONSUMED'
    WHEN lastConsumedTimestamp IS NULL THEN 'LAST_CONSUMED_REMOVED'
  END AS reason
FROM measured
