-- The filter of each group on each topic, as far as it is known: the newest one that a capture saw or that the broker stored. The broker
-- stores SQL92 filters only (ConsumerFilterManager). It learns TAG filters from heartbeats, and forgets them when it stops.
CREATE OR REPLACE TEMPORARY VIEW group_filter (
  brokerName COMMENT 'broker that got the filter',
  consumerGroup COMMENT 'name of the consumer group',
  topic COMMENT 'topic, as the broker spells it',
  expressionType COMMENT 'type of the filter: TAG, SQL92, or another name that the client gave',
  expression COMMENT 'the filter; * passes all messages',
  classFilterMode COMMENT 'whether a filter class of the client decides; the lake does not have this class',
  knownFrom COMMENT 'where the filter was found:
HEART_BEAT: in a captured heartbeat.
PULL_MESSAGE: in a captured pull that had the filter in it.
CONSUMER_FILTER: in config/consumerFilter.json.
RETRY_TOPIC: nowhere; it is *, because clients take all messages of their own retry topic.',
  micros COMMENT 'when the broker got the filter, microseconds since 1970; for CONSUMER_FILTER by the client''s clock; NULL for RETRY_TOPIC',
  filters COMMENT 'number of different filters that were found. If more than 1, the group changed its filter, or its consumers do not agree'
)
COMMENT 'Filter of each group on each topic, as far as it is known; one row per group and topic.'
AS
WITH told AS (
  SELECT
    brokerName, consumerGroup, topic, coalesce(expressionType, 'TAG') AS expressionType, subString AS expression,
    coalesce(classFilterMode, false) AS classFilterMode, 'HEART_BEAT' AS knownFrom, micros
  FROM subscription
  WHERE event = 'HEART_BEAT' AND topic IS NOT NULL
  UNION ALL
  SELECT
    brokerName, consumerGroup, topic, coalesce(expressionType, 'TAG'), subscription, coalesce(sysFlag & 8, 0) <> 0, 'PULL_MESSAGE', arrivalMicros
  FROM pull_request
  WHERE subscription IS NOT NULL
  UNION ALL
  SELECT brokerName, consumerGroup, topic, expressionType, expression, false, 'CONSUMER_FILTER', clientVersion * 1000 FROM consumer_filter
  UNION ALL
  SELECT DISTINCT brokerName, consumerGroup, topic, 'TAG', '*', false, 'RETRY_TOPIC', CAST(NULL AS BIGINT)
  FROM consumer_offset
  WHERE topic = concat('%RETRY%', consumerGroup)
)
SELECT
  brokerName, consumerGroup, topic, last.expressionType, last.expression, last.classFilterMode, last.knownFrom, last.micros, filters
FROM (
  SELECT
    brokerName, consumerGroup, topic,
    max_by(struct(expressionType, expression, classFilterMode, knownFrom, micros), coalesce(micros, -1)) AS last,
    count(DISTINCT expressionType, expression) AS filters
  FROM told
  GROUP BY brokerName, consumerGroup, topic
)
