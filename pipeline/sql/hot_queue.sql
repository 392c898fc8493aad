-- How the messages of a topic are spread over its queues, one row per queue: a queue with more than its share is hot. An entry counts if
-- the store still has its message.
CREATE OR REPLACE TEMPORARY VIEW hot_queue (
  brokerName COMMENT 'broker that the row is about',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  minOffset COMMENT 'begin of the queue: offset of its first message that can be consumed',
  maxOffset COMMENT 'end of the queue: number of messages that were ever written to it',
  messages COMMENT 'messages of the queue that the store still has: entries from minOffset on whose message is in the commit log',
  bytes COMMENT 'bytes in the commit log of the messages of the queue that the store still has',
  messagesShare COMMENT 'share of the topic''s messages that are in this queue, from 0 to 1; NULL if the topic has none',
  bytesShare COMMENT 'share of the topic''s bytes that are in this queue, from 0 to 1; NULL if the topic has none',
  timesFairShare COMMENT 'messagesShare * number of the topic''s queues: 1 if all queues get the same; NULL if the topic has no messages',
  firstStoreTimestamp COMMENT 'storeTimestamp of the oldest message that the store still has, ms; NULL if it has none',
  lastStoreTimestamp COMMENT 'storeTimestamp of the newest message that the store still has, ms; NULL if it has none',
  messagesPerSecond COMMENT 'messages per second between the oldest and the newest message in the store; NULL if these are less than 1 s apart'
)
COMMENT 'How the messages of a topic are spread over its queues; one row per queue.'
AS
WITH entry AS (
  SELECT
    e.brokerName, e.topic, e.queueId,
    count(*) AS messages, sum(e.size) AS bytes, min(e.storeTimestamp) AS firstStoreTimestamp, max(e.storeTimestamp) AS lastStoreTimestamp
  FROM consume_queue e
  JOIN queue q ON q.brokerName = e.brokerName AND q.topic = e.topic AND q.queueId = e.queueId AND e.queueOffset >= q.minOffset
  WHERE e.storeTimestamp IS NOT NULL
  GROUP BY e.brokerName, e.topic, e.queueId
), sized AS (
  -- try_subtract, because a damaged record may have any time
  SELECT
    q.*, coalesce(e.messages, 0L) AS messages, coalesce(e.bytes, 0L) AS bytes, e.firstStoreTimestamp, e.lastStoreTimestamp,
    try_subtract(e.lastStoreTimestamp, e.firstStoreTimestamp) AS seenMillis
  FROM queue q
  LEFT JOIN entry e USING (brokerName, topic, queueId)
)
SELECT
  brokerName, topic, queueId, minOffset, maxOffset, messages, bytes,
  try_divide(messages, sum(messages) OVER topic),
  try_divide(bytes, sum(bytes) OVER topic),
  try_divide(messages * count(*) OVER topic, sum(messages) OVER topic),
  firstStoreTimestamp, lastStoreTimestamp,
  CASE WHEN seenMillis >= 1000 THEN (messages - 1) * 1000D / seenMillis END
FROM sized
WINDOW topic AS (PARTITION BY brokerName, topic)
