-- Topics by size and rate, a row a topic: the queues of hot_queue together.
CREATE OR REPLACE TEMPORARY VIEW topic_size (
  brokerName COMMENT 'broker whose store it is',
  topic COMMENT 'topic, as the broker spells it',
  kind COMMENT 'RETRY, DLQ, SCHEDULE, TRANSACTION (half messages and their ends), or NORMAL',
  queues COMMENT 'queues that have a folder',
  offsets COMMENT 'sum of maxOffset: messages that were ever written, rocketmq_producer_offset of rocketmq-exporter',
  messages COMMENT 'messages that the store still has',
  bytes COMMENT 'their bytes in the commit log',
  bytesPerMessage COMMENT 'their bytes on the average; NULL where there is none',
  firstStoreTimestamp COMMENT 'storeTimestamp of the oldest of them, ms; NULL where there is none',
  lastStoreTimestamp COMMENT 'storeTimestamp of the newest of them, ms; NULL where there is none',
  messagesPerSecond COMMENT 'messages in a second, from the first to the last; NULL where less than a second lies between these two',
  bytesPerSecond COMMENT 'bytes in a second, likewise'
)
COMMENT 'Topics by size and rate.'
AS
WITH topics AS (
  SELECT
    brokerName, topic,
    count(*) AS queues, sum(maxOffset) AS offsets, sum(messages) AS messages, sum(bytes) AS bytes,
    min(firstStoreTimestamp) AS firstStoreTimestamp, max(lastStoreTimestamp) AS lastStoreTimestamp
  FROM hot_queue
  GROUP BY brokerName, topic
), timed AS (
  -- a damaged record may have any time
  SELECT *, try_subtract(lastStoreTimestamp, firstStoreTimestamp) AS seenMillis FROM topics
)
SELECT
  brokerName, topic,
  CASE
    WHEN startswith(topic, '%RETRY%') THEN 'RETRY'
    WHEN startswith(topic, '%DLQ%') THEN 'DLQ'
    WHEN topic = 'SCHEDULE_TOPIC_XXXX' THEN 'SCHEDULE'
    WHEN topic IN ('RMQ_SYS_TRANS_HALF_TOPIC', 'RMQ_SYS_TRANS_OP_HALF_TOPIC') THEN 'TRANSACTION'
    ELSE 'NORMAL'
  END,
  queues, offsets, messages, bytes,
  try_divide(bytes, messages),
  firstStoreTimestamp, lastStoreTimestamp,
  CASE WHEN seenMillis >= 1000 THEN (messages - 1) * 1000D / seenMillis END,
  CASE WHEN seenMillis >= 1000 THEN bytes * 1000D / seenMillis END
FROM timed
