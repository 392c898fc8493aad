-- Messages that each group has lost, or will lose, because the broker deletes old files; one row per queue of consume_lag. It compares the
-- forecast of log_file_deletion with group_pace. Broker source: ConsumeQueue.correctMinOffset.
CREATE OR REPLACE TEMPORARY VIEW retention_risk (
  brokerName COMMENT 'broker that the row is about',
  consumerGroup COMMENT 'name of the consumer group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  minOffset COMMENT 'begin of the queue: messages at lower offsets were deleted',
  consumerOffset COMMENT 'next offset that the group will consume; NULL if the group stored none',
  brokerOffset COMMENT 'end of the queue: offset after its last message',
  lostMessages COMMENT 'messages from consumerOffset to minOffset - 1, which were deleted before the group consumed them; NULL if unknown',
  messagesToLoss COMMENT 'consumerOffset - minOffset: consumed messages that the broker deletes before it deletes one that the group has not consumed; 0 if messages are lost already; NULL if unknown',
  minOffsetPerHour COMMENT 'offsets per hour by which minOffset moves: minOffsetPerHour of group_pace',
  consumerOffsetPerHour COMMENT 'messages per hour that the group consumes: consumerOffsetPerHour of group_pace; 0 if the offset fell',
  timeToLossMillis COMMENT 'time from asOf until the broker deletes a message that the group has not consumed, ms, file by file as in log_file_deletion. 0 if messages are lost already; NULL if reason says why.
With basis HISTORY, the group consumes consumerOffsetPerHour until then. With basis FILE_RESERVED_TIME, its pace is unknown, and the estimate assumes that it stops now.',
  basis COMMENT 'what the estimate is based on: HISTORY (the group''s pace) or FILE_RESERVED_TIME (the age of files alone); NULL if there is no estimate',
  reason COMMENT 'why there is no estimate, or why none is needed; the first that holds:
NO_OFFSET: the group has stored no offset for the queue.
NO_QUEUE: the store has no such queue, so its messages are unknown.
LOST: messages were deleted before the group consumed them.
NOTHING_WAITS: the group has consumed all messages of the queue.
NO_FILE: the queue has no entry for the next message, or the lake has no file of the log.
NO_SETTING: fileReservedTime is no number.
NOT_DELETED: the broker does not delete the file with the next message. It is the last file of a log that does not grow, deleteWhen names no hour, or no BIGINT holds the time.
IN_TIME: at its pace the group consumes every message before the message is deleted.',
  nextFile COMMENT 'first offset of the commit log file that holds the group''s next message (at consumerOffset, or at minOffset if messages are lost); NULL if there is none',
  deletedAt COMMENT 'when the broker deletes the file nextFile, ms since 1970; NULL if it does not',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'Messages that each group has lost, or will lose, because the broker deletes old files; one row per queue.'
AS
WITH held AS (
  -- nextOffset: where each group with waiting messages continues; offsets below 0 have no messages
  SELECT
    o.brokerName, o.consumerGroup, o.topic, o.queueId, greatest(o.consumerOffset, q.minOffset, 0) AS nextOffset,
    CASE WHEN h.consumerOffsetPerHour < 0 THEN 0 ELSE h.consumerOffsetPerHour END AS consumerOffsetPerHour
  FROM consumer_offset o
  JOIN queue q ON q.brokerName = o.brokerName AND q.topic = o.topic AND q.queueId = o.queueId
  LEFT JOIN group_pace h
    ON h.brokerName = o.brokerName AND h.consumerGroup = o.consumerGroup AND h.topic = o.topic AND h.queueId = o.queueId
  WHERE greatest(o.consumerOffset, q.minOffset, 0) < q.maxOffset
), waiting AS (
  SELECT p.brokerName, p.topic, p.queueId, min(p.nextOffset) AS nextOffset, max(b.mappedFileSizeCommitLog) AS fileSize
  FROM held p JOIN broker b ON b.brokerName = p.brokerName
  GROUP BY p.brokerName, p.topic, p.queueId
), share AS (
  -- the messages of a queue in each file of the log; blank entries have no message
  SELECT w.brokerName, w.topic, w.queueId, e.physicOffset - e.physicOffset % w.fileSize AS fromOffset, max(e.queueOffset) + 1 AS endOffset
  FROM consume_queue e
  JOIN waiting w
    ON e.brokerName = w.brokerName AND e.topic = w.topic AND e.queueId = w.queueId AND e.queueOffset >= w.nextOffset
  WHERE e.size < 2147483647
  GROUP BY w.brokerName, w.topic, w.queueId, e.physicOffset - e.physicOffset % w.fileSize
), log AS (
  SELECT brokerName, min(fromOffset) AS firstFile, min(asOf) AS asOf, max(fileReservedTime) AS fileReservedTime
  FROM log_file_deletion
  GROUP BY brokerName
), fate AS (
  -- a queue may still have entries whose messages lie in a deleted file
  SELECT
    s.brokerName, s.topic, s.queueId, s.fromOffset, s.endOffset,
    CASE WHEN s.fromOffset < l.firstFile THEN l.asOf ELSE d.deletedAt END AS deletedAt,
    l.asOf
  FROM share s
  JOIN log l ON l.brokerName = s.brokerName
  LEFT JOIN log_file_deletion d ON d.brokerName = s.brokerName AND d.fromOffset = s.fromOffset
), foreseen AS (
  SELECT
    p.brokerName, p.consumerGroup, p.topic, p.queueId,
    min(f.fromOffset) AS nextFile,
    min_by(f.deletedAt, f.fromOffset) AS deletedAt,
    min(CASE
      WHEN coalesce(p.consumerOffsetPerHour, 0) <= 0 THEN f.deletedAt
      WHEN f.asOf + (f.endOffset - p.nextOffset) * 3600000D / p.consumerOffsetPerHour > f.deletedAt THEN f.deletedAt
    END) AS lossAt
  FROM held p
  JOIN fate f ON f.brokerName = p.brokerName AND f.topic = p.topic AND f.queueId = p.queueId AND f.endOffset > p.nextOffset
  GROUP BY p.brokerName, p.consumerGroup, p.topic, p.queueId
), positions AS (
  SELECT
    c.*, CASE WHEN c.consumerOffset IS NOT NULL THEN greatest(c.consumerOffset, 0) END AS committed,
    h.minOffsetPerHour, CASE WHEN h.consumerOffsetPerHour < 0 THEN 0 ELSE h.consumerOffsetPerHour END AS consumerOffsetPerHour
  FROM consume_lag c
  LEFT JOIN group_pace h USING (brokerName, consumerGroup, topic, queueId)
), judged AS (
  SELECT
    p.*, f.nextFile, f.deletedAt, f.lossAt,
    CASE
      WHEN p.consumerOffset IS NULL THEN 'NO_OFFSET'
      WHEN p.reason = 'NO_QUEUE' THEN 'NO_QUEUE'
      WHEN p.committed < p.minOffset THEN 'LOST'
      WHEN p.committed >= p.brokerOffset THEN 'NOTHING_WAITS'
      WHEN f.nextFile IS NULL THEN 'NO_FILE'
      WHEN f.deletedAt IS NULL AND l.fileReservedTime IS NULL THEN 'NO_SETTING'
      WHEN f.deletedAt IS NULL THEN 'NOT_DELETED'
      WHEN f.lossAt IS NULL THEN 'IN_TIME'
    END AS whyNot
  FROM positions p
  LEFT JOIN foreseen f USING (brokerName, consumerGroup, topic, queueId)
  LEFT JOIN log l USING (brokerName)
)
SELECT
  brokerName, consumerGroup, topic, queueId, minOffset, consumerOffset, brokerOffset,
  CASE WHEN whyNot IN ('NO_OFFSET', 'NO_QUEUE') THEN NULL ELSE greatest(minOffset - committed, 0) END,
  CASE WHEN whyNot IN ('NO_OFFSET', 'NO_QUEUE') THEN NULL ELSE greatest(committed - minOffset, 0) END,
  minOffsetPerHour, consumerOffsetPerHour,
  CASE WHEN whyNot = 'LOST' THEN 0 WHEN whyNot IS NULL THEN try_subtract(lossAt, asOf) END,
  CASE WHEN whyNot IS NULL AND consumerOffsetPerHour IS NOT NULL THEN 'HISTORY' WHEN whyNot IS NULL THEN 'FILE_RESERVED_TIME' END,
  whyNot, nextFile, deletedAt, asOf
FROM judged
