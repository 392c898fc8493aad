-- Messages that wait in each delay level, one row per level that has a queue or a stored offset. Broker source (4.9.3 and 5.5.0):
-- ScheduleMessageService.
CREATE OR REPLACE TEMPORARY VIEW delay_level (
  brokerName COMMENT 'broker that the row is about',
  delayLevel COMMENT 'delay level, 1 is the first; its queue in SCHEDULE_TOPIC_XXXX is delayLevel - 1',
  delay COMMENT 'delay of the level, such as 10s: from messageDelayLevel of the imported settings, or from its default. NULL if the setting lacks the level; the broker never delivers the messages of such a level',
  storedOffset COMMENT 'next offset of the level''s queue to deliver, from config/delayOffset.json. NULL if none is stored; the broker''s start then delivers from the begin of the queue',
  minOffset COMMENT 'begin of the level''s queue: offset of its first entry; NULL if the level has no queue',
  maxOffset COMMENT 'end of the level''s queue: offset after its last entry; NULL if the level has no queue',
  waiting COMMENT 'messages that are not delivered: all messages of the level in delayed_message except DELIVERED, NO_MESSAGE and UNKNOWN',
  pending COMMENT 'messages that are due after asOf: PENDING in delayed_message',
  due COMMENT 'messages that were due at most 20 s before asOf and are not delivered: DUE in delayed_message',
  overdue COMMENT 'messages that were due more than 20 s before asOf and are not delivered: OVERDUE in delayed_message',
  unknown COMMENT 'messages that were due more than 20 s before asOf, if the level has no stored offset: UNKNOWN in delayed_message. They may have been delivered',
  delivered COMMENT 'messages that are in their topic already although storedOffset is not past them: DELIVERED in delayed_message. A broker that starts from this store delivers them again',
  nextDueMs COMMENT 'when the first PENDING, DUE or OVERDUE message of the level is due, ms since 1970; NULL if none waits',
  lastDueMs COMMENT 'when the last PENDING, DUE or OVERDUE message of the level is due, ms since 1970; NULL if none waits',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms',
  retries COMMENT 'messages counted in waiting whose topic is a retry topic: groups sent them back, and no lag of the retry topic counts them yet'
)
COMMENT 'Messages that wait in each delay level, and until when; one row per level.'
AS
WITH waiting AS (
  SELECT
    brokerName, delayLevel, count_if(state NOT IN ('DELIVERED', 'NO_MESSAGE', 'UNKNOWN')) AS waiting, count_if(state = 'PENDING') AS pending, count_if(state = 'DUE') AS due,
    count_if(state = 'OVERDUE') AS overdue, count_if(state = 'UNKNOWN') AS unknown, count_if(state = 'DELIVERED') AS delivered,
    count_if(state NOT IN ('DELIVERED', 'NO_MESSAGE', 'UNKNOWN') AND startswith(topic, '%RETRY%')) AS retries,
    min(CASE WHEN state IN ('PENDING', 'DUE', 'OVERDUE') THEN dueMs END) AS nextDueMs, max(CASE WHEN state IN ('PENDING', 'DUE', 'OVERDUE') THEN dueMs END) AS lastDueMs
  FROM delayed_message
  GROUP BY brokerName, delayLevel
), known AS (
  SELECT brokerName, try_add(queueId, 1) AS delayLevel FROM queue WHERE topic = 'SCHEDULE_TOPIC_XXXX'
  UNION
  SELECT brokerName, delayLevel FROM delay_offset
)
SELECT
  k.brokerName, k.delayLevel,
  message_delay(b.properties['messageDelayLevel'], k.delayLevel),
  o.offset, q.minOffset, q.maxOffset, coalesce(w.waiting, 0L), coalesce(w.pending, 0L), coalesce(w.due, 0L), coalesce(w.overdue, 0L),
  coalesce(w.unknown, 0L), coalesce(w.delivered, 0L), w.nextDueMs, w.lastDueMs, b.maxStoreTimestamp, coalesce(w.retries, 0L)
FROM known k
LEFT JOIN queue q ON q.brokerName = k.brokerName AND q.topic = 'SCHEDULE_TOPIC_XXXX' AND q.queueId = try_subtract(k.delayLevel, 1)
LEFT JOIN delay_offset o ON o.brokerName = k.brokerName AND o.delayLevel = k.delayLevel
LEFT JOIN waiting w ON w.brokerName = k.brokerName AND w.delayLevel = k.delayLevel
LEFT JOIN broker b ON b.brokerName = k.brokerName
