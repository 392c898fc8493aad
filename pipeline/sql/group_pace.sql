-- How fast each group consumes and how fast its queues move, a row a queue with observations in lag_history. A group whose next message is deleted
-- goes on at minOffset: what it jumped over it has not consumed. Broker source: ConsumeQueue.correctMinOffset, DefaultMessageStore.getMessage.
CREATE OR REPLACE TEMPORARY VIEW group_pace (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  consumerOffsetPerHour COMMENT 'how fast the group consumes, at least: from the first to the last of the last ten observations that have an offset, without the messages that were deleted between two of them before the group had consumed them; negative where the offset fell, NULL with fewer than two',
  brokerOffsetPerHour COMMENT 'how fast the queue grows, over the same observations',
  minOffsetPerHour COMMENT 'how fast minOffset moves: from the first to the last of all observations; NULL with fewer than two. It moves in jumps, whenever a file is deleted, and says nothing of what comes'
)
COMMENT 'How fast each group consumes and how fast its queues grow, from observations.'
AS
WITH recent AS (
  -- a client may have committed any number
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
