-- All that is known of each topic, a row a topic: what `pullsim topics` shows. Topics come from topics.json and from the queues of the store.
CREATE OR REPLACE TEMPORARY VIEW topic_overview (
  brokerName COMMENT 'broker whose store it is',
  topic COMMENT 'topic, as the broker spells it',
  kind COMMENT 'RETRY, DLQ, SCHEDULE, TRANSACTION or NORMAL, as in topic_size; NULL where the store has no queue of it',
  queues COMMENT 'queues that have a folder; 0 where no message ever came',
  messages COMMENT 'messages that the store still has',
  bytes COMMENT 'their bytes in the commit log',
  messagesPerSecond COMMENT 'messages in a second, as in topic_size',
  firstStoreTimestamp COMMENT 'storeTimestamp of the oldest of them, ms; NULL where there is none',
  lastStoreTimestamp COMMENT 'storeTimestamp of the newest of them, ms; NULL where there is none',
  consumerGroups COMMENT 'groups that have an offset on it',
  lag COMMENT 'messages that wait, of all these groups together; a queue in which an offset lies past the end counts as 0; NULL where no lag is known',
  queuesNegative COMMENT 'queues in which an offset lies past the end, one for each group',
  perm COMMENT '4 read, 2 write, 1 inherit, added; NULL where topics.json has no such topic',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'All that is known of each topic.'
AS
WITH known AS (
  SELECT brokerName, topic FROM topic_config
  UNION
  SELECT brokerName, topic FROM queue
), consumed AS (
  SELECT
    brokerName, topic,
    count(DISTINCT consumerGroup) AS consumerGroups, try_sum(if(lag < 0, 0L, lag)) AS lag, count_if(lag < 0) AS queuesNegative
  FROM consume_lag
  GROUP BY brokerName, topic
)
SELECT
  k.brokerName, k.topic, s.kind, coalesce(s.queues, 0L), coalesce(s.messages, 0L), coalesce(s.bytes, 0L), s.messagesPerSecond,
  s.firstStoreTimestamp, s.lastStoreTimestamp, coalesce(c.consumerGroups, 0L), c.lag, coalesce(c.queuesNegative, 0L), t.perm, b.maxStoreTimestamp
FROM known k
LEFT JOIN topic_size s ON s.brokerName = k.brokerName AND s.topic = k.topic
LEFT JOIN consumed c ON c.brokerName = k.brokerName AND c.topic = k.topic
LEFT JOIN topic_config t ON t.brokerName = k.brokerName AND t.topic = k.topic
LEFT JOIN broker b ON b.brokerName = k.brokerName
