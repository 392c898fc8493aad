-- What waits in each delay level, a row a level that has a queue or a stored offset. Broker source (4.9.3 and 5.5.0): ScheduleMessageService.
CREATE OR REPLACE TEMPORARY VIEW delay_level (
  brokerName COMMENT 'broker whose store it is',
  delayLevel COMMENT 'delay level, 1 is the first; its queue in SCHEDULE_TOPIC_XXXX is delayLevel - 1',
  delay COMMENT 'its delay in messageDelayLevel of the imported settings, else of the default; NULL where the setting lacks the level, whose messages are never delivered',
  storedOffset COMMENT 'next offset to deliver, of config/delayOffset.json; NULL without one: the broker''s start delivers from the queue''s begin on',
  minOffset COMMENT 'first offset of the queue; NULL without a queue',
  maxOffset COMMENT 'offset after the last of the queue; NULL without a queue',
  waiting COMMENT 'messages that are not delivered: of the view delayed_message those that are not DELIVERED, NO_MESSAGE or UNKNOWN',
  pending COMMENT 'messages that are due after asOf',
  due COMMENT 'messages that were due at most 20 s before asOf',
  overdue COMMENT 'messages that were due earlier',
  unknown COMMENT 'messages that were due earlier, where the level has no stored offset: they may have been delivered',
  delivered COMMENT 'messages that their topics have, though the stored offset lies before them: a start from this store delivers them again',
  nextDueMs COMMENT 'when the first of them is due, ms',
  lastDueMs COMMENT 'when the last of them is, ms',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms',
  retries COMMENT 'of waiting those for a retry topic: messages that groups sent back, which no lag of the retry topic counts yet'
)
COMMENT 'What waits in each delay level, and until when.'
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
