-- The consumer lag that a broker 5.x itself reports, one row per queue of consume_lag. Broker source (5.5.0): ConsumerLagCalculator, the
-- source of the broker's metrics rocketmq_consumer_lag_messages, _inflight_messages and _ready_messages. The broker counts messages in
-- flight, and treats a missing offset as the end of the queue. For groups with a filter it estimates how many messages match; the numbers
-- here ignore filters (consume_lag_matched applies them).
CREATE OR REPLACE TEMPORARY VIEW broker_lag (
  brokerName COMMENT 'broker that the row is about',
  consumerGroup COMMENT 'name of the consumer group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  isPop COMMENT 'whether the group consumes by POP: on the topic it has check points or orderly POPs, and no pull offset',
  lag COMMENT 'consumer lag in messages: lag of consume_lag. For a group that consumes by POP, the committed offset is the popped one; NULL if the group stored no offset',
  brokerLag COMMENT 'consumer lag in messages that the broker reports: lag, or 0 if lag is NULL or negative; for POP plus inFlight',
  inFlight COMMENT 'messages that consumers have got and not yet acknowledged: pull offset - committed offset; for POP the messages that are HELD or EXPIRED in pop_message',
  available COMMENT 'messages that no consumer has got yet: end of the queue - pull offset, or - committed offset for POP and for a group without a pull offset',
  earliestUnconsumedTimestamp COMMENT 'storeTimestamp of the first message that counts as not consumed, ms; NULL if there is none, or if the commit log no longer has it',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'Consumer lag as the metrics of a broker 5.x report it, beside the lag of consume_lag; one row per queue.'
AS
WITH popped AS (
  SELECT brokerName, consumerGroup, topic, queueId, count_if(state IN ('HELD', 'EXPIRED')) AS inFlight
  FROM pop_message
  GROUP BY brokerName, consumerGroup, topic, queueId
), mode AS (
  SELECT brokerName, consumerGroup, topic FROM popped
  EXCEPT
  SELECT brokerName, consumerGroup, topic FROM pull_offset
), counted AS (
  SELECT
    l.*, m.topic IS NOT NULL AS isPop, p.pullOffset,
    CASE
      WHEN m.topic IS NOT NULL THEN coalesce(n.inFlight, 0L)
      ELSE greatest(try_subtract(coalesce(p.pullOffset, 0L), coalesce(l.consumerOffset, p.pullOffset, 0L)), 0L)
    END AS inFlight
  FROM consume_lag l
  LEFT JOIN mode m ON m.brokerName = l.brokerName AND m.consumerGroup = l.consumerGroup AND m.topic = l.topic
  LEFT JOIN popped n ON n.brokerName = l.brokerName AND n.consumerGroup = l.consumerGroup AND n.topic = l.topic AND n.queueId = l.queueId
  LEFT JOIN pull_offset p ON p.brokerName = l.brokerName AND p.consumerGroup = l.consumerGroup AND p.topic = l.topic AND p.queueId = l.queueId
), placed AS (
  SELECT c.*, try_subtract(coalesce(consumerOffset, brokerOffset), CASE WHEN isPop THEN inFlight ELSE 0L END) AS unconsumed FROM counted c
), first AS (
  SELECT /*+ BROADCAST(p) */ p.brokerName, p.consumerGroup, p.topic, p.queueId, max(e.storeTimestamp) AS storeTimestamp
  FROM consume_queue e
  JOIN placed p ON e.brokerName = p.brokerName AND e.topic = p.topic AND e.queueId = p.queueId AND e.queueOffset = p.unconsumed
  WHERE e.storeTimestamp > 0
  GROUP BY p.brokerName, p.consumerGroup, p.topic, p.queueId
)
SELECT
  p.brokerName, p.consumerGroup, p.topic, p.queueId, p.isPop, p.lag,
  try_add(greatest(coalesce(p.lag, 0L), 0L), CASE WHEN p.isPop THEN p.inFlight ELSE 0L END), p.inFlight,
  -- ConsumerOffsetManager.queryPullOffset: without a pull offset, the committed offset is taken
  greatest(try_subtract(p.brokerOffset, coalesce(CASE WHEN NOT p.isPop THEN p.pullOffset END, p.consumerOffset, p.brokerOffset)), 0L), f.storeTimestamp, p.asOf
FROM placed p
LEFT JOIN first f ON f.brokerName = p.brokerName AND f.consumerGroup = p.consumerGroup AND f.topic = p.topic AND f.queueId = p.queueId
