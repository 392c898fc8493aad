-- Consumer lag in messages that the group wants, one row per queue of consume_lag: the waiting messages that the group's own filter
-- (group_filter) passes. Broker source: ExpressionMessageFilter.isMatchedByConsumeQueue and isMatchedByCommitLog. For tags the broker
-- compares hash codes. A message with another tag of the same hash code counts too, because the broker delivers it; the client drops it.
CREATE OR REPLACE TEMPORARY VIEW consume_lag_matched (
  brokerName COMMENT 'broker that the row is about',
  consumerGroup COMMENT 'name of the consumer group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  minOffset COMMENT 'begin of the queue: offset of its first message that can be consumed',
  brokerOffset COMMENT 'end of the queue: offset after its last message',
  consumerOffset COMMENT 'next offset that the group will consume; NULL if the group stored none',
  expressionType COMMENT 'type of the group''s filter: TAG or SQL92; NULL if no filter is known',
  expression COMMENT 'the group''s filter; NULL if no filter is known',
  knownFrom COMMENT 'where the filter was found, as in group_filter: HEART_BEAT, PULL_MESSAGE, CONSUMER_FILTER or RETRY_TOPIC',
  lag COMMENT 'consumer lag in messages: lag of consume_lag; it counts messages whether the filter passes them or not',
  lagMatched COMMENT 'messages from consumerOffset on that the store still has and that the filter passes; NULL if reason says why',
  lagMatchedBytes COMMENT 'bytes of the messages counted in lagMatched; NULL if lagMatched is NULL',
  lagMatchedMillis COMMENT 'how long the oldest message counted in lagMatched has waited, ms: asOf - its storeTimestamp. 0 if no message waits; NULL if lagMatched is NULL',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms',
  reason COMMENT 'why lagMatched is NULL; if lagMatched is known, the reason of consume_lag:
NO_OFFSET: the group has stored no offset for the queue.
NO_FILTER: the group''s filter is unknown; pullsim capture learns it from heartbeats and pulls.
CLASS_FILTER: a filter class of the client decides which messages pass.
FILTER_NOT_PARSED: the broker cannot parse the filter and refuses the pulls.
NEEDS_PYTHON: SQL92 filters are evaluated in Python, which spark-sql lacks; use pullsim sql.
NO_QUEUE_FILE: a file of the queue is missing at the offset or after it.'
)
COMMENT 'Consumer lag of each group in messages that its own filter passes; one row per queue.'
AS
WITH positions AS (
  SELECT l.*, greatest(l.consumerOffset, l.minOffset) AS countedFrom, f.expressionType, f.expression, f.classFilterMode, f.knownFrom
  FROM consume_lag l
  LEFT JOIN group_filter f USING (brokerName, consumerGroup, topic)
), waiting AS (
  SELECT
    p.brokerName, p.consumerGroup, p.topic, p.queueId, p.expressionType, p.expression,
    e.physicOffset, e.size, e.storeTimestamp,
    CASE WHEN e.extUnit IS NOT NULL THEN e.extUnit.tagsCode WHEN e.tagsCode >= -2147483648 THEN e.tagsCode END AS tagsCode
  FROM positions p
  JOIN consume_queue e
    ON e.brokerName = p.brokerName AND e.topic = p.topic AND e.queueId = p.queueId
    AND e.queueOffset >= p.countedFrom AND e.queueOffset < p.brokerOffset
  WHERE p.expressionType IS NOT NULL AND NOT p.classFilterMode
), judged AS (
  SELECT brokerName, consumerGroup, topic, queueId, size, storeTimestamp, tag_matches(expression, tagsCode) AS matches
  FROM waiting
  WHERE expressionType = 'TAG'
  UNION ALL
  SELECT
    w.brokerName, w.consumerGroup, w.topic, w.queueId, w.size, w.storeTimestamp,
    coalesce(sql92_matches(w.expression, m.properties), false)
  FROM waiting w
  LEFT JOIN commit_log m ON m.brokerName = w.brokerName AND m.physicOffset = w.physicOffset
  WHERE w.expressionType <> 'TAG'
), matched AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    count(*) AS entries,
    count_if(matches IS NULL) AS notParsed,
    count(storeTimestamp) FILTER (WHERE matches) AS messages,
    sum(size) FILTER (WHERE matches AND storeTimestamp IS NOT NULL) AS bytes,
    min(storeTimestamp) FILTER (WHERE matches) AS waitsSince
  FROM judged
  GROUP BY brokerName, consumerGroup, topic, queueId
), reasoned AS (
  SELECT
    p.*, m.messages, m.bytes, m.waitsSince,
    CASE
      WHEN p.consumerOffset IS NULL THEN 'NO_OFFSET'
      WHEN p.expressionType IS NULL THEN 'NO_FILTER'
      WHEN p.classFilterMode THEN 'CLASS_FILTER'
      WHEN m.notParsed > 0 AND p.expressionType = 'TAG' THEN 'FILTER_NOT_PARSED'
      WHEN m.notParsed > 0 THEN 'NEEDS_PYTHON'
      WHEN coalesce(m.entries, 0) < p.brokerOffset - p.countedFrom THEN 'NO_QUEUE_FILE'
    END AS whyNot
  FROM positions p
  LEFT JOIN matched m USING (brokerName, consumerGroup, topic, queueId)
)
SELECT
  brokerName, consumerGroup, topic, queueId, minOffset, brokerOffset, consumerOffset, expressionType, expression, knownFrom, lag,
  CASE WHEN whyNot IS NULL THEN coalesce(messages, 0L) END,
  CASE WHEN whyNot IS NULL THEN coalesce(bytes, 0L) END,
  CASE WHEN whyNot IS NULL THEN CASE WHEN waitsSince IS NULL THEN 0L ELSE try_subtract(asOf, waitsSince) END END,
  asOf,
  coalesce(whyNot, reason)
FROM reasoned
