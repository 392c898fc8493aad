-- How fast each group consumes and how fast its queues grow, one row per queue with observations in lag_history. If a group's next message
-- is deleted, the group continues at minOffset; it did not consume the messages between. Broker source: ConsumeQueue.correctMinOffset,
-- DefaultMessageStore.getMessage.
CREATE OR REPLACE TEMPORARY VIEW group_pace (
  brokerName COMMENT 'broker that the row is about',
  consumerGroup COMMENT 'name of the consumer group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  consumerOffsetPerHour COMMENT 'messages per hour that the group consumes, at least: from the first to the last of the last ten observations with an offset. Messages that were deleted between two observations before the group consumed them do not count. Negative if the offset fell; NULL with fewer than two such observations',
  brokerOffsetPerHour COMMENT 'messages per hour that come to the queue, over the same ten observations; NULL with fewer than two',
  minOffsetPerHour COMMENT 'offsets per hour by which minOffset moves: from the first to the last of all observations; NULL with fewer than two. minOffset jumps when a file is deleted, so this says nothing about the future'
)
COMMENT 'How fast each group consumes and how fast its queues grow, from observations; one row per queue.'
AS
WITH recent AS (
  -- DOUBLE, because a client may have committed any number
  SELECT
    brokerName, consumerGroup, topic, queueId, observedAt, CAST(consumerOffset AS DOUBLE) AS consumerOffset, brokerOffset, minOffset,
    lag(CAST(consumerOffset AS DOUBLE)) OVER (PARTITION BY brokerName, consumerGroup, topic, queueId ORDER BY observedAt) AS offsetBefore,
    row_number() OVER (PARTITION BY brokerName, consumerGroup, topic, queueId ORDER BY observedAt DESC) AS newness
  FROM lag_history
  WHERE consumerOffset IS NOT NULL
), moves AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    max_by(consumerOffset, observedAt) - min_by(consumerOffset, observedAt)
      - coalesce(sum(least(consumerOffset, minOffset) - offsetBefore) FILTER (WHERE newness < 10 AND least(consumerOffset, minOffset) > offsetBefore), 0)
      AS consumed,
    max_by(brokerOffset, observedAt) - min_by(brokerOffset, observedAt) AS produced,
    (max(observedAt) - min(observedAt)) / 3600000 AS hours
  FROM recent
  WHERE newness <= 10
  GROUP BY brokerName, consumerGroup, topic, queueId
), begins AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    max_by(minOffset, observedAt) - min_by(minOffset, observedAt) AS deleted,
    (max(observedAt) - min(observedAt)) / 3600000 AS hours
  FROM lag_history
  GROUP BY brokerName, consumerGroup, topic, queueId
)
SELECT
  brokerName, consumerGroup, topic, queueId,
  try_divide(m.consumed, m.hours),
  try_divide(m.produced, m.hours),
  try_divide(b.deleted, b.hours)
FROM begins b
LEFT JOIN moves m USING (brokerName, consumerGroup, topic, queueId)
