-- What each group has lost, or will lose, to the deletion of old messages, a row a queue of consume_lag: the forecast of log_file_deletion, held
-- against group_pace. Broker source: ConsumeQueue.correctMinOffset.
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
  minOffsetPerHour COMMENT 'how fast minOffset moves, as in group_pace',
  consumerOffsetPerHour COMMENT 'how fast the group consumes, as in group_pace; 0 where the offset fell',
  timeToLossMillis COMMENT 'ms from asOf until the broker deletes a message that the group has not consumed, file by file as in log_file_deletion. 0 where messages are lost already, NULL where reason says why.
With basis HISTORY the group consumes consumerOffsetPerHour until then. With basis FILE_RESERVED_TIME its pace is not known: as if it stopped now.',
  basis COMMENT 'HISTORY or FILE_RESERVED_TIME; NULL where there is no estimate',
  reason COMMENT 'why there is no estimate, or none is needed; the first of these:
NO_OFFSET: the group has stored no offset for the queue.
NO_QUEUE: the store has no such queue, what was in it is not known.
LOST: messages were deleted before the group consumed them.
NOTHING_WAITS: the group has consumed all that there is.
NO_FILE: the queue has no entry for the next message, or the lake no file of the log.
NO_SETTING: fileReservedTime is no number.
NOT_DELETED: the file with the next message is not deleted: it is the last one of a log that does not grow, deleteWhen names no hour, or no BIGINT holds the time.
IN_TIME: at its pace the group has consumed everything before it goes.',
  nextFile COMMENT 'first offset of the file of the commit log that holds the next message of the group, where lost messages end or else at consumerOffset; NULL where there is none',
  deletedAt COMMENT 'when the broker deletes that file, ms',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'What each group has lost, or will lose, to the deletion of old messages, a row a queue.'
AS
WITH held AS (
  -- where each group with messages that wait goes on; offsets below 0 have no messages
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
  -- the messages of a queue that lie in one file; blank entries have no message
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
  -- a queue may still have entries of a file that is deleted already
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
