-- How far each group is behind in messages that it wants, a row a queue of consume_lag: what its own filter (group_filter) lets pass of what waits.
-- Broker source: ExpressionMessageFilter.isMatchedByConsumeQueue and isMatchedByCommitLog. By tags the broker compares hash codes, so what another
-- tag of the same code has is counted, as it is given; the client drops it.
CREATE OR REPLACE TEMPORARY VIEW consume_lag_matched (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  minOffset COMMENT 'begin of the queue',
  brokerOffset COMMENT 'end of the queue',
  consumerOffset COMMENT 'next offset that the group will consume; NULL where it stored none',
  expressionType COMMENT 'TAG or SQL92; NULL where no filter is known',
  expression COMMENT 'the filter; NULL where none is known',
  knownFrom COMMENT 'where it is known from, as in group_filter',
  lag COMMENT 'all messages behind, as in consume_lag',
  lagMatched COMMENT 'of the messages from consumerOffset on that the store still has those that the filter lets pass',
  lagMatchedBytes COMMENT 'their bytes',
  lagMatchedMillis COMMENT 'asOf less storeTimestamp of the first of them: how long the next message that the group wants has waited, ms; 0 where none waits',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms',
  reason COMMENT 'why lagMatched is NULL; else that of consume_lag:
NO_OFFSET: the group has stored no offset for the queue.
NO_FILTER: it is not known what the group subscribed to; pullsim capture learns it from heartbeats and pulls.
CLASS_FILTER: a filter class of the client decides.
FILTER_NOT_PARSED: the broker cannot parse the filter and refuses the pulls.
NEEDS_PYTHON: filters of SQL92 are evaluated in Python, which spark-sql has not; pullsim sql has.
NO_QUEUE_FILE: a file of the queue is missing at the offset or after it.'
)
COMMENT 'How far each group is behind in messages that its own filter lets pass.'
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
