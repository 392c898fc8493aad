-- Messages of delay levels from the level's stored offset on, one row per entry of SCHEDULE_TOPIC_XXXX. Broker source (4.9.3 and 5.5.0):
-- ScheduleMessageService. The queue of a level is delayLevel - 1, and the tagsCode of an entry is the time when its message is due. The
-- broker delivers the messages of a level in the order of their queue. If a time is further away than the level's delay, the setting or the
-- clock was changed, and the broker takes the time as now.
CREATE OR REPLACE TEMPORARY VIEW delayed_message (
  brokerName COMMENT 'broker that the row is about',
  state COMMENT 'PENDING: the message is due after asOf.
DUE: it was due at most 20 s before asOf.
DELIVERED: its topic has it, although the stored offset is not past it. The broker writes delayOffset.json every 10 s; a start from this store delivers the message again.
OVERDUE: it was due more than 20 s before asOf. Its level is stuck, or delayOffset.json is old.
UNKNOWN: it was due more than 20 s before asOf, and its level has no stored offset. It may have been delivered; the broker''s start delivers it again.
NO_LEVEL: messageDelayLevel lacks its level. The broker never delivers it.
NO_MESSAGE: the commit log does not have the message. The broker skips it.
NULL: asOf is unknown.',
  delayLevel COMMENT 'delay level, 1 is the first',
  topic COMMENT 'property REAL_TOPIC: topic that the message is for; a retry topic if a group sent the message back',
  queueId COMMENT 'property REAL_QID: number of the queue that the message is for',
  dueMs COMMENT 'when the message is due, ms since 1970. It is asOf if the time in the entry is further away than the level''s delay: the broker takes such a time as now',
  overdueMillis COMMENT 'how long an OVERDUE message has been due, ms: asOf - dueMs; NULL in other states',
  reconsumeTimes COMMENT 'how often consumers sent the message back',
  uniqKey COMMENT 'property UNIQ_KEY: the id that the client gave the message',
  keys COMMENT 'property KEYS of the message: its keys with spaces between them',
  tags COMMENT 'property TAGS of the message',
  bornTimestamp COMMENT 'when the producer sent the message, ms since 1970 by the client''s clock',
  storeTimestamp COMMENT 'when the broker stored the message, ms since 1970 by the broker''s clock',
  queueOffset COMMENT 'offset of the message in its level''s queue of SCHEDULE_TOPIC_XXXX',
  physicOffset COMMENT 'position of the record''s first byte in the commit log',
  msgId COMMENT 'offset message id: the broker''s address and the record''s offset in the commit log',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'Messages of delay levels from the stored offset on: topic, due time and state; one row per message.'
AS
WITH given AS (
  SELECT brokerName, maxStoreTimestamp AS asOf, properties['messageDelayLevel'] AS messageDelayLevel FROM broker
), waiting AS (
  -- without a stored offset the broker begins at 0; it replaces an offset outside the queue by the nearer end
  SELECT e.*, try_add(e.queueId, 1) AS delayLevel, o.offset IS NOT NULL AS isStored, g.asOf, g.messageDelayLevel
  FROM consume_queue e
  JOIN queue q ON q.brokerName = e.brokerName AND q.topic = e.topic AND q.queueId = e.queueId
  LEFT JOIN delay_offset o ON o.brokerName = e.brokerName AND o.delayLevel = try_add(e.queueId, 1)
  LEFT JOIN given g ON g.brokerName = e.brokerName
  WHERE e.topic = 'SCHEDULE_TOPIC_XXXX' AND e.size < 2147483647 AND e.queueOffset >= greatest(least(coalesce(o.offset, 0L), q.maxOffset), q.minOffset)
), timed AS (
  SELECT
    w.brokerName, w.delayLevel, w.isStored, w.queueOffset, w.physicOffset, w.asOf, w.tagsCode, w.extUnit,
    delay_millis(message_delay(w.messageDelayLevel, w.delayLevel)) AS delayMs
  FROM waiting w
), entered AS (
  SELECT
    t.*, m.physicOffset IS NOT NULL AS hasMessage, m.properties, m.reconsumeTimes, m.keys, m.tags, m.bornTimestamp, m.storeTimestamp, m.msgId,
    -- tagsCode may be the address of an ext unit
    CASE
      WHEN t.extUnit.tagsCode IS NOT NULL THEN t.extUnit.tagsCode
      WHEN t.tagsCode < -2147483648L THEN try_add(m.storeTimestamp, t.delayMs)
      ELSE t.tagsCode
    END AS deliverTimestamp
  FROM timed t
  LEFT JOIN commit_log m ON m.brokerName = t.brokerName AND m.physicOffset = t.physicOffset AND m.topic = 'SCHEDULE_TOPIC_XXXX'
), due AS (
  SELECT
    e.*, CASE WHEN deliverTimestamp > try_add(asOf, delayMs) THEN asOf ELSE deliverTimestamp END AS dueMs,
    properties['REAL_TOPIC'] AS realTopic, try_cast(properties['REAL_QID'] AS INT) AS realQueueId, properties['UNIQ_KEY'] AS uniqKey
  FROM entered e
), awaited AS (
  SELECT brokerName, realTopic, realQueueId, min(physicOffset) AS physicOffset FROM due WHERE dueMs <= asOf GROUP BY brokerName, realTopic, realQueueId
), arrival AS (
  -- the entries limit the part of the log that is read
  SELECT m.brokerName, m.topic, m.queueId, m.physicOffset, m.reconsumeTimes, m.storeTimestamp, m.properties['UNIQ_KEY'] AS uniqKey
  FROM awaited a
  JOIN consume_queue e ON e.brokerName = a.brokerName AND e.topic = a.realTopic AND e.queueId = a.realQueueId AND e.physicOffset > a.physicOffset
  JOIN commit_log m ON m.brokerName = e.brokerName AND m.physicOffset = e.physicOffset AND m.topic = e.topic AND m.queueId = e.queueId
), delivered AS (
  -- a message keeps its key both when it is delivered and when a group sends it back; reconsumeTimes distinguishes the two
  SELECT DISTINCT d.brokerName, d.physicOffset
  FROM due d
  JOIN arrival a
    ON a.brokerName = d.brokerName AND a.topic = d.realTopic AND a.queueId = d.realQueueId AND a.uniqKey = d.uniqKey
    AND a.reconsumeTimes = d.reconsumeTimes AND a.physicOffset > d.physicOffset
    -- a message whose time counts as now may have been delivered at any time
    AND a.storeTimestamp >= CASE WHEN d.dueMs = d.asOf THEN d.storeTimestamp ELSE d.dueMs END
)
SELECT
  brokerName,
  CASE
    WHEN NOT hasMessage THEN 'NO_MESSAGE'
    WHEN isDelivered THEN 'DELIVERED'
    WHEN delayMs IS NULL THEN 'NO_LEVEL'
    WHEN dueMs > asOf THEN 'PENDING'
    WHEN dueMs >= try_subtract(asOf, 20000L) THEN 'DUE'
    WHEN dueMs < asOf AND isStored THEN 'OVERDUE'
    WHEN dueMs < asOf THEN 'UNKNOWN'
  END,
  delayLevel, realTopic, realQueueId, dueMs,
  CASE WHEN isStored AND hasMessage AND NOT isDelivered AND delayMs IS NOT NULL AND dueMs < try_subtract(asOf, 20000L) THEN try_subtract(asOf, dueMs) END,
  reconsumeTimes, uniqKey, keys, tags, bornTimestamp, storeTimestamp, queueOffset, physicOffset, msgId, asOf
FROM (
  SELECT d.*, v.physicOffset IS NOT NULL AS isDelivered
  FROM due d
  LEFT JOIN delivered v ON v.brokerName = d.brokerName AND v.physicOffset = d.physicOffset
) told
