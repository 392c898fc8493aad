-- When each group will have caught up if it keeps its present pace, one row per queue of consume_lag: lag divided by the difference of the
-- two paces in group_pace.
CREATE OR REPLACE TEMPORARY VIEW catch_up (
  brokerName COMMENT 'broker that the row is about',
  consumerGroup COMMENT 'name of the consumer group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  lag COMMENT 'consumer lag in messages: lag of consume_lag',
  consumerOffsetPerHour COMMENT 'messages per hour that the group consumes: consumerOffsetPerHour of group_pace',
  brokerOffsetPerHour COMMENT 'messages per hour that come to the queue: brokerOffsetPerHour of group_pace',
  catchUpMillis COMMENT 'estimated time from the last observation until the group has caught up, ms: lag / (consumerOffsetPerHour - brokerOffsetPerHour). 0 if no message waits; NULL if reason says why there is no estimate',
  reason COMMENT 'why there is no estimate; the first that holds:
NO_OFFSET: the group has stored no offset for the queue.
LAG_UNKNOWN: no BIGINT holds the lag.
NOTHING_WAITS: the group has caught up.
NO_HISTORY: lag_history has fewer than two observations of the queue with an offset; pullsim lag --record adds one.
OFFSET_WENT_BACK: the offset fell between these observations, so its pace says nothing.
DOES_NOT_CATCH_UP: the queue grows at least as fast as the group consumes.'
)
COMMENT 'When each group will have caught up if it keeps its present pace; one row per queue.'
AS
WITH judged AS (
  SELECT
    l.brokerName, l.consumerGroup, l.topic, l.queueId, l.consumerOffset, l.lag,
    p.consumerOffsetPerHour, p.brokerOffsetPerHour
  FROM consume_lag l
  LEFT JOIN group_pace p USING (brokerName, consumerGroup, topic, queueId)
), reasoned AS (
  SELECT
    *,
    CASE
      WHEN consumerOffset IS NULL THEN 'NO_OFFSET'
      WHEN lag IS NULL THEN 'LAG_UNKNOWN'
      WHEN lag <= 0 THEN 'NOTHING_WAITS'
      WHEN consumerOffsetPerHour IS NULL THEN 'NO_HISTORY'
      WHEN consumerOffsetPerHour < 0 THEN 'OFFSET_WENT_BACK'
      WHEN consumerOffsetPerHour <= brokerOffsetPerHour THEN 'DOES_NOT_CATCH_UP'
    END AS reason
  FROM judged
)
SELECT
  brokerName, consumerGroup, topic, queueId, lag, consumerOffsetPerHour, brokerOffsetPerHour,
  CASE
    WHEN reason = 'NOTHING_WAITS' THEN 0L
    WHEN reason IS NULL THEN CAST(least(lag * 3600000D / (consumerOffsetPerHour - brokerOffsetPerHour), 9E18D) AS BIGINT)
  END,
  reason
FROM reasoned
