-- When each group will have caught up if it goes on as it does, a row a queue of consume_lag: lag over the difference of two paces of group_pace.
CREATE OR REPLACE TEMPORARY VIEW catch_up (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  lag COMMENT 'messages behind now, as in consume_lag',
  consumerOffsetPerHour COMMENT 'how fast the group consumes, as in group_pace',
  brokerOffsetPerHour COMMENT 'how fast the queue grows, likewise',
  catchUpMillis COMMENT 'an estimate, ms from the last observation: lag / (consumerOffsetPerHour - brokerOffsetPerHour). 0 where nothing waits, NULL where reason says why',
  reason COMMENT 'why there is no estimate, the first of these:
NO_OFFSET: the group has stored no offset for the queue.
LAG_UNKNOWN: the lag is no number that fits.
NOTHING_WAITS: the group has caught up.
NO_HISTORY: lag_history has fewer than two observations of the queue with an offset: pullsim lag --record.
OFFSET_WENT_BACK: the offset fell within them, a pace of that says nothing.
DOES_NOT_CATCH_UP: the queue grows at least as fast as the group consumes.'
)
COMMENT 'When each group will have caught up if it goes on as it does.'
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
