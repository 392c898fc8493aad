-- The filter that each group has on each topic, as far as it is known: what a capture saw last, else what the broker stored. The broker stores filters of
-- SQL92 only (ConsumerFilterManager); those of TAG it has from heartbeats, and forgets them when it stops.
CREATE OR REPLACE TEMPORARY VIEW group_filter (
  brokerName COMMENT 'broker that was told of it',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  expressionType COMMENT 'TAG or SQL92, or what the client calls it',
  expression COMMENT 'the filter; * for all messages',
  classFilterMode COMMENT 'whether a filter class of the client decides, which nobody else has',
  knownFrom COMMENT 'HEART_BEAT: a captured heartbeat; PULL_MESSAGE: a captured pull that brought it; CONSUMER_FILTER: config/consumerFilter.json; RETRY_TOPIC: nothing, but clients take all of their retry topic',
  micros COMMENT 'when it was told, microseconds since 1970; of CONSUMER_FILTER by the clock of the client; NULL for RETRY_TOPIC',
  filters COMMENT 'different filters that were seen: with more than one the group changed it, or its consumers do not agree'
)
COMMENT 'The filter that each group has on each topic, as far as it is known.'
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
