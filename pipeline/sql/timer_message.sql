-- Timer messages of a broker 5.x, one row per message of rmq_sys_wheel_timer: until when each is pending, whether it is overdue or was
-- delivered. Broker source (5.5.0): TimerMessageStore. A message that was already due when the timer read it has no unit in timerlog. POP's
-- check points and acknowledgements are timer messages too; their topic is rmq_sys_REVIVE_LOG_*.
CREATE OR REPLACE TEMPORARY VIEW timer_message (
  brokerName COMMENT 'broker that the row is about',
  state COMMENT 'PENDING: the message waits in the wheel.
OVERDUE: it waits in the wheel, and was due more than 10 s before asOf. The timer is stuck.
QUEUED: the timer had not read it yet.
ROLLED: it is due beyond the roll window, and was stored again since.
DELIVERED: it was given to its topic.
CANCEL: a pending order to drop another message.
CANCEL_DONE: a past order to drop another message.
CANCELLED: it is pending, and will be dropped.
NO_UNIT: the timer had read it, it is due after asOf, and timerlog has no unit of it.
NULL: there is no config/timercheck; or the message has no unit and is due between readTimeMs and asOf, so that it was delivered at once, or its unit is missing.',
  topic COMMENT 'property REAL_TOPIC: topic that the message is for',
  queueId COMMENT 'property REAL_QID: number of the queue that the message is for',
  outMs COMMENT 'property TIMER_OUT_MS: when the message is due, ms since 1970, in full steps of the timer',
  slotTimeMs COMMENT 'time of the wheel''s slot in which the message waits, ms since 1970. It is earlier than outMs if outMs lies beyond the roll window; NULL if timerlog has no unit of the message',
  rollTimes COMMENT 'property TIMER_ROLL_TIMES: how often the message was stored again; 0 if it has no such property',
  overdueMillis COMMENT 'how long a message in the wheel has been due, ms: asOf - slotTimeMs; NULL if that is 10 s or less, or if the message is not in the wheel',
  uniqKey COMMENT 'property UNIQ_KEY: the id that the client gave the message',
  keys COMMENT 'property KEYS of the message: its keys with spaces between them',
  tags COMMENT 'property TAGS of the message',
  bornTimestamp COMMENT 'when the producer sent the message, ms since 1970 by the client''s clock',
  storeTimestamp COMMENT 'when the broker stored the message, ms since 1970 by the broker''s clock',
  queueOffset COMMENT 'offset of the message in rmq_sys_wheel_timer',
  physicOffset COMMENT 'position of the record''s first byte in the commit log',
  msgId COMMENT 'offset message id: the broker''s address and the record''s offset in the commit log',
  readTimeMs COMMENT 'the timer''s clock when its files were read, ms since 1970: the timer has delivered all messages that were due earlier',
  asOf COMMENT 'the greatest storeTimestamp of the broker when its timerlog was read (by the import or by a follow), ms'
)
COMMENT 'Timer messages of a broker 5.x: until when each is pending, whether it is overdue or was delivered; one row per message.'
AS
WITH unit AS (
  -- a broker that was killed may have written two units for one message
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
  -- the timer reads a slot's cancel orders before its messages, and also drops messages that it would store again (rolled ones)
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
