-- All that is known of each topic, one row per topic: `pullsim topics` shows it. Topics come from topics.json and from the queues of the
-- store.
CREATE OR REPLACE TEMPORARY VIEW topic_overview (
  brokerName COMMENT 'broker that the row is about',
  topic COMMENT 'topic, as the broker spells it',
  kind COMMENT 'RETRY, DLQ, SCHEDULE, TRANSACTION (half messages and their ends) or NORMAL; NULL if the store has no queue of the topic',
  queues COMMENT 'queues of the topic that have a folder; 0 if no message ever came',
  messages COMMENT 'messages that the store still has',
  bytes COMMENT 'bytes in the commit log of the messages that the store still has',
  messagesPerSecond COMMENT 'messages per second between the oldest and the newest message in the store; NULL if these are less than 1 s apart',
  firstStoreTimestamp COMMENT 'storeTimestamp of the oldest message that the store still has, ms; NULL if it has none',
  lastStoreTimestamp COMMENT 'storeTimestamp of the newest message that the store still has, ms; NULL if it has none',
  consumerGroups COMMENT 'groups that have an offset on the topic',
  lag COMMENT 'messages of the topic that wait for its groups: sum over all groups; a queue in which a group''s offset lies past the end counts as 0; NULL if no lag is known',
  queuesNegative COMMENT 'pairs of group and queue in which the group''s offset lies past the end of the queue',
  perm COMMENT 'permissions, added up: 4 read, 2 write, 1 inherit; NULL if topics.json does not have the topic',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'All that is known of each topic; one row per topic.'
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
