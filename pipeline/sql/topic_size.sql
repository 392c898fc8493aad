-- Size and rate of each topic, one row per topic: sums over the queues of hot_queue.
CREATE OR REPLACE TEMPORARY VIEW topic_size (
  brokerName COMMENT 'broker that the row is about',
  topic COMMENT 'topic, as the broker spells it',
  kind COMMENT 'RETRY, DLQ, SCHEDULE, TRANSACTION (half messages and their ends) or NORMAL',
  queues COMMENT 'queues of the topic that have a folder',
  offsets COMMENT 'sum of maxOffset of the queues: number of messages that were ever written to the topic, rocketmq_producer_offset of rocketmq-exporter',
  messages COMMENT 'messages that the store still has',
  bytes COMMENT 'bytes in the commit log of the messages that the store still has',
  bytesPerMessage COMMENT 'average bytes per message; NULL if the store has no message of the topic',
  firstStoreTimestamp COMMENT 'storeTimestamp of the oldest message that the store still has, ms; NULL if it has none',
  lastStoreTimestamp COMMENT 'storeTimestamp of the newest message that the store still has, ms; NULL if it has none',
  messagesPerSecond COMMENT 'messages per second between the oldest and the newest message in the store; NULL if these are less than 1 s apart',
  bytesPerSecond COMMENT 'bytes per second between the oldest and the newest message in the store; NULL if these are less than 1 s apart'
)
COMMENT 'Size and rate of each topic; one row per topic.'
AS
WITH topics AS (
  SELECT
    brokerName, topic,
    count(*) AS queues, sum(maxOffset) AS offsets, sum(messages) AS messages, sum(bytes) AS bytes,
    min(firstStoreTimestamp) AS firstStoreTimestamp, max(lastStoreTimestamp) AS lastStoreTimestamp
  FROM hot_queue
  GROUP BY brokerName, topic
), timed AS (
  -- try_subtract, because a damaged record may have any time
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
