-- What each group has lost, or will lose, to the deletion of old messages, a row a queue of consume_lag. Broker source:
-- DefaultMessageStore.CleanCommitLogService.deleteExpiredFiles, MappedFileQueue.deleteExpiredFileByTime, ConsumeQueue.correctMinOffset.
CREATE OR REPLACE TEMPORARY VIEW retention_risk (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  minOffset COMMENT 'begin of the queue: what lies below was deleted',
  consumerOffset COMMENT 'next offset that the group will consume; NULL where it stored none',
  brokerOffset COMMENT 'end of the queue',
  lostMessages COMMENT 'messages from consumerOffset to minOffset - 1: deleted before the group consumed them; NULL where that is not known',
  messagesToLoss COMMENT 'consumerOffset - minOffset: messages that can still be deleted before one goes that the group has not consumed; 0 where some are lost',
  minOffsetPerHour COMMENT 'how fast minOffset moves: from the first to the last observation of the queue in lag_history; NULL with fewer than two. It moves in jumps, whenever a file is deleted, so the longer the history, the better',
  consumerOffsetPerHour COMMENT 'how fast the group consumes: the same over the last ten observations; 0 where the offset fell',
  timeToLossMillis COMMENT 'an estimate, ms from asOf: when the next message of the group will be deleted. 0 where messages are lost already, NULL where reason says why.
With basis HISTORY: messagesToLoss / (minOffsetPerHour - consumerOffsetPerHour), as if both went on as they do.
With basis FILE_RESERVED_TIME, where minOffset has not been seen to move: the age at which messages go, less lagMillis, as if the group stopped now. That age is fileReservedTime, 72 hours by default; in a log that has lost its first files and whose oldest message is younger, it is the age of that message: the disk was full, and will be again. Deletion waits for the hour deleteWhen, for the whole file to be of that age, and for another file to follow, so that messages rather go later.',
  basis COMMENT 'HISTORY or FILE_RESERVED_TIME; NULL where there is no estimate',
  reason COMMENT 'why there is no estimate, or none is needed; the first of these:
NO_OFFSET: the group has stored no offset for the queue.
NO_QUEUE: the store has no such queue, what was in it is not known.
LOST: messages were deleted before the group consumed them.
NOTHING_WAITS: the group has consumed all that there is.
STAYS_AHEAD: the group consumes at least as fast as messages are deleted.
NO_STORE_TIME: it is not known how long the next message has waited, consume_lag says why.',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'What each group has lost, or will lose, to the deletion of old messages, a row a queue.'
AS
WITH observed AS (
  -- a client may have committed any number
  SELECT
    brokerName, consumerGroup, topic, queueId, observedAt, minOffset, CAST(consumerOffset AS DOUBLE) AS consumerOffset,
    row_number() OVER (PARTITION BY brokerName, consumerGroup, topic, queueId ORDER BY observedAt DESC) AS newness
  FROM lag_history
), moves AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    max_by(minOffset, observedAt) - min_by(minOffset, observedAt) AS deleted,
    (max(observedAt) - min(observedAt)) / 3600000 AS hours,
    max_by(consumerOffset, observedAt) FILTER (WHERE isRecent) - min_by(consumerOffset, observedAt) FILTER (WHERE isRecent) AS consumed,
    (max(observedAt) FILTER (WHERE isRecent) - min(observedAt) FILTER (WHERE isRecent)) / 3600000 AS recentHours
  FROM (SELECT *, newness <= 10 AND consumerOffset IS NOT NULL AS isRecent FROM observed)
  GROUP BY brokerName, consumerGroup, topic, queueId
), paces AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    try_divide(deleted, hours) AS minOffsetPerHour,
    try_divide(CASE WHEN consumed < 0 THEN 0 ELSE consumed END, recentHours) AS consumerOffsetPerHour
  FROM moves
), retained AS (
  SELECT
    b.brokerName,
    CASE
      WHEN b.minPhyOffset > 0 THEN least(b.maxStoreTimestamp - o.oldest, reserved.millis)
      ELSE reserved.millis
    END AS retainedMillis
  FROM broker b
  LEFT JOIN (SELECT brokerName, min(storeTimestamp) AS oldest FROM consume_queue WHERE storeTimestamp > 0 GROUP BY brokerName) o
    ON o.brokerName = b.brokerName,
  LATERAL (SELECT coalesce(try_multiply(try_cast(b.properties['fileReservedTime'] AS BIGINT), 3600000L), 72 * 3600000L) AS millis) reserved
), positions AS (
  -- offsets below 0 have no messages
  SELECT *, CASE WHEN consumerOffset IS NOT NULL THEN greatest(consumerOffset, 0) END AS nextOffset
  FROM consume_lag
), judged AS (
  SELECT
    p.*, h.minOffsetPerHour, h.consumerOffsetPerHour, r.retainedMillis,
    CASE
      WHEN p.consumerOffset IS NULL THEN 'NO_OFFSET'
      WHEN p.reason = 'NO_QUEUE' THEN 'NO_QUEUE'
      WHEN p.nextOffset < p.minOffset THEN 'LOST'
      WHEN p.nextOffset >= p.brokerOffset THEN 'NOTHING_WAITS'
      WHEN h.minOffsetPerHour > 0 AND h.consumerOffsetPerHour >= h.minOffsetPerHour THEN 'STAYS_AHEAD'
      WHEN h.minOffsetPerHour > 0 AND h.consumerOffsetPerHour IS NOT NULL THEN NULL
      WHEN p.lagMillis IS NULL OR r.retainedMillis IS NULL THEN 'NO_STORE_TIME'
    END AS whyNot,
    CASE WHEN h.minOffsetPerHour > 0 AND h.consumerOffsetPerHour IS NOT NULL THEN 'HISTORY' ELSE 'FILE_RESERVED_TIME' END AS basis
  FROM positions p
  LEFT JOIN paces h USING (brokerName, consumerGroup, topic, queueId)
  LEFT JOIN retained r USING (brokerName)
)
SELECT
  brokerName, consumerGroup, topic, queueId, minOffset, consumerOffset, brokerOffset,
  CASE WHEN whyNot IN ('NO_OFFSET', 'NO_QUEUE') THEN NULL ELSE greatest(minOffset - nextOffset, 0) END,
  CASE WHEN whyNot IN ('NO_OFFSET', 'NO_QUEUE') THEN NULL ELSE greatest(nextOffset - minOffset, 0) END,
  minOffsetPerHour, consumerOffsetPerHour,
  CASE
    WHEN whyNot = 'LOST' THEN 0
    WHEN whyNot IS NOT NULL THEN NULL
    WHEN basis = 'HISTORY'
      THEN CAST(least((nextOffset - minOffset) * 3600000D / (minOffsetPerHour - consumerOffsetPerHour), 9E18D) AS BIGINT)
    ELSE greatest(retainedMillis - lagMillis, 0)
  END,
  CASE WHEN whyNot IS NULL THEN basis END,
  whyNot, asOf
FROM judged
