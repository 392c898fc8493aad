-- The lag that a broker 5.x itself tells, beside consume_lag: a row a queue. Broker source (5.5.0): ConsumerLagCalculator, the source of the broker's
-- metrics rocketmq_consumer_lag_messages, _inflight_messages and _ready_messages. It counts what is in flight, and takes a missing offset for the end
-- of the queue. For groups with a filter it estimates how many messages match; these numbers here are without the filter (consume_lag_matched has one).
CREATE OR REPLACE TEMPORARY VIEW broker_lag (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  isPop COMMENT 'whether the group consumes by POP: it has check points or orderly POPs on the topic, and no pull offset',
  lag COMMENT 'of consume_lag: the end of the queue less the committed offset, which is the popped one for POP; NULL without an offset',
  brokerLag COMMENT 'what the broker tells as lag: lag, 0 without an offset; with POP the messages in flight are added',
  inFlight COMMENT 'messages at consumers: the pulled offset less the committed one; with POP those given out and not acknowledged',
  available COMMENT 'messages that no consumer has got yet',
  earliestUnconsumedTimestamp COMMENT 'storeTimestamp of the first message that counts as not consumed, ms; NULL where there is none',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'The lag that a broker 5.x itself tells, beside consume_lag.'
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
  -- ConsumerOffsetManager.queryPullOffset: the committed offset stands in for a pull offset
  greatest(try_subtract(p.brokerOffset, coalesce(CASE WHEN NOT p.isPop THEN p.pullOffset END, p.consumerOffset, p.brokerOffset)), 0L), f.storeTimestamp, p.asOf
FROM placed p
LEFT JOIN first f ON f.brokerName = p.brokerName AND f.consumerGroup = p.consumerGroup AND f.topic = p.topic AND f.queueId = p.queueId
