-- How messages are spread over the queues of a topic, a row a queue: one that gets more than its share is hot. Counted are the entries that the store
-- still has a message for.
CREATE OR REPLACE TEMPORARY VIEW hot_queue (
  brokerName COMMENT 'broker whose store it is',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  minOffset COMMENT 'begin of the queue',
  maxOffset COMMENT 'end of the queue: messages that were ever written to it',
  messages COMMENT 'entries from minOffset on whose message is in the store',
  bytes COMMENT 'their bytes in the commit log',
  messagesShare COMMENT 'part of the messages of the topic that they are, from 0 to 1; NULL where the topic has none',
  bytesShare COMMENT 'part of the bytes of the topic, likewise',
  timesFairShare COMMENT 'messagesShare times the queues of the topic: 1 where all queues get the same',
  firstStoreTimestamp COMMENT 'storeTimestamp of the oldest of them, ms; NULL where there is none',
  lastStoreTimestamp COMMENT 'storeTimestamp of the newest of them, ms; NULL where there is none',
  messagesPerSecond COMMENT 'messages in a second, from the first to the last; NULL where less than a second lies between these two'
)
COMMENT 'How messages are spread over the queues of a topic.'
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
  -- a damaged record may have any time
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
