-- Which group holds which message by POP, until when, and what became of it: one row per message of a check point or of an orderly POP.
-- Broker source (5.5.0): PopMessageProcessor.buildCkMsg, AckMessageProcessor, PopReviveService. Check points (tag ck) and acknowledgements
-- (ack, bAck) wait as timer messages, and then lie in rmq_sys_REVIVE_LOG_*. When a check point expires, the broker stores its
-- unacknowledged messages in the group's retry topic. An orderly POP has no check point: config/consumerOrderInfo.json lists the messages
-- that it holds.
CREATE OR REPLACE TEMPORARY VIEW pop_message (
  brokerName COMMENT 'broker that the row is about',
  state COMMENT 'HELD: the message was given out, is not acknowledged, and is hidden from other consumers until heldUntil.
EXPIRED: heldUntil is over, and the broker has not yet stored the message in the retry topic (an orderly POP gives it out again).
ACKED: it was acknowledged.
EXTENDED: a later row of the same message holds it on (change of the invisible time).
REVIVED: the broker has processed the check point: it stored the message in the retry topic.
LATE_ACK: like REVIVED, but acknowledged more than 2 s after heldUntil, likely too late to keep the message out of the retry topic.',
  consumerGroup COMMENT 'group that got the message',
  topic COMMENT 'topic from which the message was given out; %RETRY%group_topic if it was given out again',
  queueId COMMENT 'number of the queue in its topic',
  queueOffset COMMENT 'offset of the message in the queue',
  popTime COMMENT 'when the message was given out, ms since 1970',
  invisibleTime COMMENT 'how long the message is hidden from other consumers, ms; NULL if consumerOrderInfo.json has none',
  heldUntil COMMENT 'popTime + invisibleTime, ms since 1970; a change of the invisible time of an orderly POP is not included',
  isOrdered COMMENT 'whether the POP was orderly',
  reconsumeTimes COMMENT 'how often the message was given out before and came back; NULL if the store no longer has the message',
  rePutTimes COMMENT 'how often the broker failed to store the message in the retry topic and put the check point back',
  reviveQueueId COMMENT 'queue of rmq_sys_REVIVE_LOG_* that has or will have the check point; NULL for an orderly POP',
  reviveOffset COMMENT 'offset of the check point in that queue of rmq_sys_REVIVE_LOG_*; NULL while the check point waits in the timer, and for an orderly POP',
  uniqKey COMMENT 'property UNIQ_KEY: the id that the client gave the message',
  keys COMMENT 'property KEYS of the message: its keys with spaces between them',
  tags COMMENT 'property TAGS of the message',
  msgId COMMENT 'offset message id: the broker''s address and the record''s offset in the commit log',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'Which group holds which message by POP, until when, and what became of the message; one row per message of a check point or of an orderly POP.'
AS
WITH written AS (
  SELECT
    brokerName, tags, storeTimestamp, coalesce(properties['REAL_TOPIC'], topic) AS reviveTopic, try_validate_utf8(CAST(body AS STRING)) AS json,
    CASE WHEN topic = 'rmq_sys_wheel_timer' THEN try_cast(properties['REAL_QID'] AS INT) ELSE queueId END AS reviveQueueId,
    CASE WHEN topic = 'rmq_sys_wheel_timer' THEN CAST(NULL AS BIGINT) ELSE queueOffset END AS reviveOffset
  FROM commit_log
  WHERE (startswith(topic, 'rmq_sys_REVIVE_LOG_') OR topic = 'rmq_sys_wheel_timer' AND startswith(properties['REAL_TOPIC'], 'rmq_sys_REVIVE_LOG_'))
    AND tags IN ('ck', 'ack', 'bAck')
), told AS (
  -- the JSON that a broker writes is flat, and its names hold no quotes
  SELECT
    brokerName, tags, storeTimestamp, reviveTopic, reviveQueueId, reviveOffset, regexp_extract(json, '"c":"([^"]*)"', 1) AS consumerGroup,
    regexp_extract(json, '"t":"([^"]*)"', 1) AS topic, regexp_extract(json, '"bn":"([^"]*)"', 1) AS owner,
    try_cast(regexp_extract(json, '"q":(-?[0-9]+)', 1) AS INT) AS queueId, try_cast(regexp_extract(json, '"so":(-?[0-9]+)', 1) AS BIGINT) AS startOffset,
    try_cast(regexp_extract(json, '"pt":(-?[0-9]+)', 1) AS BIGINT) AS popTime, try_cast(regexp_extract(json, '"it":(-?[0-9]+)', 1) AS BIGINT) AS invisibleTime,
    try_cast(regexp_extract(json, '"n":([0-9]+)', 1) AS INT) AS num, coalesce(try_cast(regexp_extract(json, '"bm":(-?[0-9]+)', 1) AS INT), 0) AS bitMap,
    coalesce(try_cast(regexp_extract(json, '"rp":"([0-9]+)"', 1) AS INT), 0) AS rePutTimes, regexp_extract(json, '"d":\\[([0-9,-]*)\\]', 1) AS distances,
    CASE WHEN tags = 'ack' THEN regexp_extract(json, '"ao":(-?[0-9]+)', 1) ELSE regexp_extract(json, '"aol":\\[([0-9,-]*)\\]', 1) END AS ackOffsets
  FROM written
), point AS (
  -- a check point lies in the timer and then in the revive log; both are one row here
  SELECT
    brokerName, consumerGroup, topic, queueId, startOffset, popTime, owner, rePutTimes, num, distances, reviveTopic, reviveQueueId,
    max(invisibleTime) AS invisibleTime, max(bitMap) AS bitMap, max(reviveOffset) AS reviveOffset
  FROM told
  WHERE tags = 'ck' AND consumerGroup <> '' AND topic <> '' AND num BETWEEN 1 AND 127
  GROUP BY brokerName, consumerGroup, topic, queueId, startOffset, popTime, owner, rePutTimes, num, distances, reviveTopic, reviveQueueId
), given AS (
  SELECT p.*, place, try_add(startOffset, coalesce(try_cast(get(split(distances, ','), place) AS BIGINT), place)) AS queueOffset
  FROM point p
  LATERAL VIEW explode(sequence(0, num - 1)) numbered AS place
), acked AS (
  -- the broker reads a missing broker name as its own
  SELECT t.*, CASE WHEN t.owner = '' THEN coalesce(b.properties['brokerName'], t.brokerName) ELSE t.owner END AS byOwner
  FROM told t
  LEFT JOIN broker b ON b.brokerName = t.brokerName
  WHERE t.tags IN ('ack', 'bAck')
), acknowledged AS (
  SELECT
    brokerName, consumerGroup, topic, queueId, startOffset, popTime, byOwner, try_cast(one AS BIGINT) AS queueOffset, max(reviveOffset) AS ackReviveOffset,
    min(storeTimestamp) AS ackedAt
  FROM acked
  LATERAL VIEW explode(split(ackOffsets, ',')) listed AS one
  GROUP BY brokerName, consumerGroup, topic, queueId, startOffset, popTime, byOwner, try_cast(one AS BIGINT)
), matched AS (
  SELECT
    g.*, shiftright(g.bitMap, g.place) & 1 = 1 AS isMarked, coalesce(g.reviveOffset <= o.consumerOffset, FALSE) AS isRevived,
    -- an acknowledgement counts if the broker finds it after its check point, in the scan that revives it; acknowledgements in the timer come last
    a.queueOffset IS NOT NULL AND (a.ackReviveOffset IS NULL OR coalesce(a.ackReviveOffset > g.reviveOffset, FALSE)) AS isInOrder,
    a.ackReviveOffset IS NULL OR coalesce(try_subtract(a.ackedAt, 2000L) > try_add(g.popTime, g.invisibleTime), FALSE) AS isLate
  FROM given g
  LEFT JOIN acknowledged a
    ON a.brokerName = g.brokerName AND a.consumerGroup = g.consumerGroup AND a.topic = g.topic AND a.queueId = g.queueId
      AND a.startOffset = g.startOffset AND a.popTime = g.popTime AND a.byOwner = g.owner AND a.queueOffset = g.queueOffset
  LEFT JOIN consumer_offset o
    ON o.brokerName = g.brokerName AND o.topic = g.reviveTopic AND o.queueId = g.reviveQueueId AND o.consumerGroup = 'CID_RMQ_SYS_REVIVE_GROUP'
), held AS (
  SELECT
    brokerName, consumerGroup, topic, queueId, queueOffset, popTime, invisibleTime, FALSE AS isOrdered, rePutTimes, reviveQueueId, reviveOffset,
    isMarked OR isInOrder AND NOT (isRevived AND isLate) AS isAcked, isRevived, isInOrder AND isRevived AND isLate AS isLateAck
  FROM matched
  UNION ALL
  SELECT
    brokerName, consumerGroup, topic, queueId, get(queueOffsets, place), popTime, invisibleTime, TRUE, 0, CAST(NULL AS INT), CAST(NULL AS BIGINT),
    shiftright(commitOffsetBit, place) & 1 = 1, FALSE, FALSE
  FROM (SELECT * FROM consumer_order_info WHERE size(queueOffsets) BETWEEN 1 AND 64) i
  LATERAL VIEW explode(sequence(0, size(queueOffsets) - 1)) numbered AS place
), latest AS (
  SELECT h.*, max(popTime) OVER (PARTITION BY brokerName, consumerGroup, topic, queueId, queueOffset, isOrdered) AS lastPopTime FROM held h
)
SELECT
  h.brokerName,
  CASE
    WHEN h.isAcked AND h.popTime < h.lastPopTime THEN 'EXTENDED'
    WHEN h.isAcked THEN 'ACKED'
    WHEN h.isLateAck THEN 'LATE_ACK'
    WHEN h.isRevived THEN 'REVIVED'
    WHEN try_add(h.popTime, h.invisibleTime) < b.maxStoreTimestamp THEN 'EXPIRED'
    ELSE 'HELD'
  END,
  h.consumerGroup, h.topic, h.queueId, h.queueOffset, h.popTime, h.invisibleTime, try_add(h.popTime, h.invisibleTime), h.isOrdered, m.reconsumeTimes,
  h.rePutTimes, h.reviveQueueId, h.reviveOffset, m.properties['UNIQ_KEY'], m.keys, m.tags, m.msgId, b.maxStoreTimestamp
FROM latest h
LEFT JOIN commit_log m ON m.brokerName = h.brokerName AND m.topic = h.topic AND m.queueId = h.queueId AND m.queueOffset = h.queueOffset
LEFT JOIN broker b ON b.brokerName = h.brokerName
