-- Which groups are in trouble, without thresholds: the rules of Burrow (queue_status) over the last ten observations in lag_history, or else over the
-- last 50 seconds of captured traffic. Other windows and an allowed lag: SELECT * FROM queue_status(intervals => 20, minimumComplete => 0.5, allowedLag => 100).
CREATE OR REPLACE TEMPORARY VIEW group_status (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  status COMMENT 'OK, UNKNOWN, WARN, STOP, STALL or REWIND; why has the rule',
  why COMMENT 'the rule that spoke, the first of these:
NOT_OBSERVED: UNKNOWN, the group has stored an offset, but no observation and no captured commit shows the queue; OK where the queue never had a message.
NO_OFFSET: UNKNOWN, the group has stored no offset for the queue; OK where the queue never had a message.
INCOMPLETE_WINDOW: UNKNOWN, there are too few observations yet.
NO_LAG: OK, no message waits; in a queue that never had one, one observation is enough.
NO_COMMITS: STOP, no queue of the topic has moved for longer than the window shows the group committing, and the offset lies before all ends of the queue in the window. The consumers are gone, or hang.
OFFSET_WENT_BACK: REWIND, the offset fell and has not come back to where it was.
HAD_NO_LAG: OK, some time in the window no message waited.
OFFSET_STANDS: STALL, this queue stands still while the group commits others of the topic: a message that cannot be consumed, say.
LAG_NOT_DECREASING: WARN, the offset moves, but the lag never became less.
MESSAGES_DELETED: WARN, the lag became less only because messages were deleted before the group consumed them.
LAG_DECREASED: OK, the lag became less once at least, because the group consumed.',
  groupStatus COMMENT 'the worst status of all queues of the group, in the order OK, UNKNOWN, WARN, STOP, STALL, REWIND; Burrow calls the last three ERR',
  lag COMMENT 'messages behind at the last observation, or in the store where nothing was observed, 0 where the offset lies past the end; NULL where that is not known',
  complete COMMENT 'part of the ten observations that have an offset of the queue',
  committedAt COMMENT 'the last observation by which the group is known to have committed: a queue of the topic had moved, or the window begins; ms',
  observedFrom COMMENT 'first observation in the window, ms',
  observedAt COMMENT 'last observation of the broker, ms: the moment that the rules take for now',
  seenIn COMMENT 'LAG_HISTORY, or CAPTURE where captured offsets were looked at every five seconds; NULL where not observed'
)
COMMENT 'Status of each queue of each group, and the worst of the group, by the rules of Burrow.'
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
