-- Which groups are in trouble, without thresholds: the rules of Burrow (queue_status) over the last ten observations in lag_history, or, if
-- these are too few, over the last 50 seconds of captured traffic. For other windows or an allowed lag: SELECT * FROM
-- queue_status(intervals => 20, minimumComplete => 0.5, allowedLag => 100).
CREATE OR REPLACE TEMPORARY VIEW group_status (
  brokerName COMMENT 'broker that the row is about',
  consumerGroup COMMENT 'name of the consumer group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  status COMMENT 'status of the queue: OK, UNKNOWN, WARN, STOP, STALL or REWIND; why names the rule',
  why COMMENT 'the rule that decided the status; the first that holds:
NOT_OBSERVED: UNKNOWN, the group has stored an offset, but no observation and no captured commit shows the queue; OK if the queue never had a message.
NO_OFFSET: UNKNOWN, the group has stored no offset for the queue; OK if the queue never had a message.
INCOMPLETE_WINDOW: UNKNOWN, there are too few observations yet.
NO_LAG: OK, no message waits; for a queue that never had a message, one observation is enough.
NO_COMMITS: STOP, no queue of the topic has moved for longer than the window shows the group committing, and the offset lies before every end of the queue in the window. The consumers are gone, or hang.
OFFSET_WENT_BACK: REWIND, the offset fell and has not come back to its former value.
HAD_NO_LAG: OK, at some time in the window no message waited.
OFFSET_STANDS: STALL, the offset of this queue does not move, although the group commits offsets of other queues of the topic: for example, a message cannot be consumed.
LAG_NOT_DECREASING: WARN, the offset moves, but the lag never decreased.
MESSAGES_DELETED: WARN, the lag decreased only because messages were deleted before the group consumed them.
LAG_DECREASED: OK, the lag decreased at least once, because the group consumed.',
  groupStatus COMMENT 'the worst status of all queues of the group, in the order OK, UNKNOWN, WARN, STOP, STALL, REWIND; Burrow calls the last three ERR',
  lag COMMENT 'consumer lag in messages at the last observation, or in the store if the queue was not observed; 0 if the offset lies past the end of the queue; NULL if the lag is unknown',
  complete COMMENT 'share of the ten observations that have an offset of the queue, from 0 to 1',
  committedAt COMMENT 'time of the last observation that shows a commit of the group, ms since 1970: a queue of the topic had moved, or the window begins there; NULL if the queue was not observed',
  observedFrom COMMENT 'time of the first observation in the window, ms since 1970; NULL if the queue was not observed',
  observedAt COMMENT 'time of the broker''s last observation, ms since 1970: the rules take it as now; NULL if the queue was not observed',
  seenIn COMMENT 'source of the observations: LAG_HISTORY, or CAPTURE if captured offsets were sampled every 5 s; NULL if the queue was not observed'
)
COMMENT 'Status of each queue of each group, and the worst status of the group, by the rules of Burrow; one row per queue.'
AS
WITH judged AS (
  SELECT * FROM queue_status()
)
SELECT
  brokerName, consumerGroup, topic, queueId, status, why,
  element_at(
    array('OK', 'UNKNOWN', 'WARN', 'STOP', 'STALL', 'REWIND'),
    CAST(max(array_position(array('OK', 'UNKNOWN', 'WARN', 'STOP', 'STALL', 'REWIND'), status)) OVER (PARTITION BY brokerName, consumerGroup) AS INT)
  ),
  lag, complete, committedAt, observedFrom, observedAt, seenIn
FROM (
  SELECT brokerName, consumerGroup, topic, queueId, status, why, lag, complete, committedAt, observedFrom, observedAt, seenIn
  FROM judged
  UNION ALL
  SELECT
    o.brokerName, o.consumerGroup, o.topic, o.queueId,
    CASE WHEN o.consumerOffset = 0 AND coalesce(q.maxOffset, 0) = 0 THEN 'OK' ELSE 'UNKNOWN' END, 'NOT_OBSERVED',
    CASE WHEN q.maxOffset IS NOT NULL THEN greatest(coalesce(try_subtract(q.maxOffset, o.consumerOffset), 9223372036854775807), 0L) END, 0D, NULL, NULL, NULL, NULL
  FROM consumer_offset o
  LEFT JOIN queue q ON q.brokerName = o.brokerName AND q.topic = o.topic AND q.queueId = o.queueId
  LEFT JOIN judged j
    ON j.brokerName = o.brokerName AND j.consumerGroup = o.consumerGroup AND j.topic = o.topic AND j.queueId = o.queueId
  WHERE j.why IS NULL
) verdict
