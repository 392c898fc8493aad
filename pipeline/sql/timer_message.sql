-- Timer messages of a broker 5.x, a row a message of rmq_sys_wheel_timer: which are pending until when, which are overdue, which were delivered. Broker
-- source (5.5.0): TimerMessageStore. A message that was due when the timer came to it has no unit in timerlog. POP's check points and acknowledgements
-- are timer messages too: their topic is rmq_sys_REVIVE_LOG_*.
CREATE OR REPLACE TEMPORARY VIEW timer_message (
  brokerName COMMENT 'broker whose store it is',
  state COMMENT 'PENDING: waits in the wheel. OVERDUE: waits there, and was due more than 10 s before asOf: the timer is stuck. QUEUED: the timer had not come to it yet. ROLLED: due beyond the roll window, and stored again since. DELIVERED: handed to its topic. CANCEL: a pending order to drop another message; CANCEL_DONE: a past one. CANCELLED: pending, and will be dropped. NO_UNIT: the timer came to it, it is due after asOf, and timerlog has no unit of it. NULL without config/timercheck, and where a message without a unit is due between readTimeMs and asOf: it was delivered at once, or its unit is missing',
  topic COMMENT 'topic that the message is for: property REAL_TOPIC',
  queueId COMMENT 'queue that it is for: property REAL_QID',
  outMs COMMENT 'when it is due, ms, in full steps of the timer: property TIMER_OUT_MS',
  slotTimeMs COMMENT 'slot of the wheel in which it waits, ms: earlier than outMs beyond the roll window; NULL without a unit in timerlog',
  rollTimes COMMENT 'how often it was stored again: property TIMER_ROLL_TIMES',
  overdueMillis COMMENT 'asOf less slotTimeMs, ms, where the message is OVERDUE',
  uniqKey COMMENT 'property UNIQ_KEY, the id that the client gave',
  keys COMMENT 'property KEYS',
  tags COMMENT 'property TAGS',
  bornTimestamp COMMENT 'when the producer sent it, ms',
  storeTimestamp COMMENT 'when the broker stored it, ms',
  queueOffset COMMENT 'offset in rmq_sys_wheel_timer',
  physicOffset COMMENT 'offset in the commit log',
  msgId COMMENT 'offset message id of the record',
  readTimeMs COMMENT 'the timer''s clock, ms: what is due earlier was delivered',
  asOf COMMENT 'the greatest storeTimestamp of the broker when its timerlog was read, by the import or a follow, ms'
)
COMMENT 'Timer messages of a broker 5.x: pending until when, overdue, delivered.'
AS
WITH unit AS (
  -- a broker that was killed may have written two units of a message
  SELECT brokerName, physicOffset, max(slotTimeMs) AS slotTimeMs, max_by(magic, slotTimeMs) AS magic FROM timer_log GROUP BY brokerName, physicOffset
), newest AS (
  SELECT m.brokerName, max(m.storeTimestamp) AS storeTimestamp
  FROM commit_log m
  JOIN broker b ON b.brokerName = m.brokerName AND m.physicOffset < b.followedFrom AND b.followedFrom < b.maxPhyOffset
  GROUP BY m.brokerName
), moment AS (
  SELECT b.brokerName, b.properties, CASE WHEN b.followedFrom < b.maxPhyOffset THEN n.storeTimestamp ELSE b.maxStoreTimestamp END AS asOf
  FROM broker b
  LEFT JOIN newest n ON n.brokerName = b.brokerName
), timed AS (
  SELECT
    m.*, u.slotTimeMs, coalesce(u.magic & 2, 0) <> 0 AS isRoll, coalesce(u.magic & 4, 0) <> 0 AS isCancel,
    c.lastReadTimeMs AS readTimeMs, b.asOf, try_cast(m.properties['TIMER_OUT_MS'] AS BIGINT) AS outMs, m.properties['TIMER_DEL_UNIQKEY'] AS cancels,
    CASE
      WHEN b.properties['appendTopicForTimerDeleteKey'] IN ('True', 'true') THEN concat(m.properties['REAL_TOPIC'], '+', m.properties['UNIQ_KEY'])
      ELSE m.properties['UNIQ_KEY']
    END AS cancelKey,
    u.slotTimeMs IS NULL AND m.queueOffset >= c.lastTimerQueueOffset AS isQueued, u.slotTimeMs >= c.lastReadTimeMs AS isPending
  FROM commit_log m
  LEFT JOIN unit u ON u.brokerName = m.brokerName AND u.physicOffset = m.physicOffset
  LEFT JOIN timer_checkpoint c ON c.brokerName = m.brokerName
  LEFT JOIN moment b ON b.brokerName = m.brokerName
  WHERE m.topic = 'rmq_sys_wheel_timer'
), cancel AS (
  -- the timer reads the orders of a slot before its messages, and drops a message that it would store again too
  SELECT DISTINCT brokerName, slotTimeMs, cancels FROM timed WHERE isPending AND isCancel AND NOT isRoll
)
SELECT
  t.brokerName,
  CASE
    WHEN t.readTimeMs IS NULL THEN NULL
    WHEN t.isQueued THEN 'QUEUED'
    WHEN t.slotTimeMs IS NULL AND t.outMs > greatest(t.asOf, t.readTimeMs) THEN 'NO_UNIT'
    WHEN t.slotTimeMs IS NULL AND (t.outMs IS NULL OR t.outMs > t.readTimeMs) THEN NULL
    WHEN t.isPending AND t.isCancel THEN 'CANCEL'
    WHEN t.isCancel OR t.cancels IS NOT NULL THEN 'CANCEL_DONE'
    WHEN t.isPending AND c.cancels IS NOT NULL THEN 'CANCELLED'
    WHEN t.isPending AND t.slotTimeMs < try_subtract(t.asOf, 10000L) THEN 'OVERDUE'
    WHEN t.isPending THEN 'PENDING'
    WHEN t.isRoll THEN 'ROLLED'
    ELSE 'DELIVERED'
  END,
  t.properties['REAL_TOPIC'], try_cast(t.properties['REAL_QID'] AS INT), t.outMs, t.slotTimeMs,
  coalesce(try_cast(t.properties['TIMER_ROLL_TIMES'] AS INT), 0),
  CASE WHEN t.isPending AND t.slotTimeMs < try_subtract(t.asOf, 10000L) THEN try_subtract(t.asOf, t.slotTimeMs) END,
  t.properties['UNIQ_KEY'], t.keys, t.tags, t.bornTimestamp, t.storeTimestamp, t.queueOffset, t.physicOffset, t.msgId, t.readTimeMs, t.asOf
FROM timed t
LEFT JOIN cancel c ON c.brokerName = t.brokerName AND c.slotTimeMs = t.slotTimeMs AND c.cancels = t.cancelKey
