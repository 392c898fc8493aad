-- Whether timerwheel, timerlog and the commit log of a broker 5.x agree, one row per slot that the timer has not yet read. Broker source
-- (5.5.0): TimerMessageStore.doEnqueue, dequeue and recover. The timer walks from lastPos of a slot along prevPos, and reads each unit's
-- message in the commit log. At a start it walks timerlog from one file before the file that has lastTimerLogFlushPos, and sets lastPos of
-- each unit's slot.
CREATE OR REPLACE TEMPORARY VIEW timer_check (
  brokerName COMMENT 'broker that the row is about',
  slotTimeMs COMMENT 'when the slot is due, ms since 1970',
  problem COMMENT 'NULL: timerwheel, timerlog and commit log agree.
BEHIND: the wheel lacks units from the end of timerlog, as in a copy of a running broker''s files or after a kill. The broker''s start adds them.
NO_SLOT: the wheel lacks units of timerlog, and a start does not reach them. They are never delivered.
NO_UNITS: the slot has no units in timerlog.
LOST_UNITS: lastPos leads to fewer units than timerlog has for the slot.
WRONG_COUNT: num is not the number of units.
NO_MESSAGE: the commit log has no message at the place that a unit names; units past the end of a followed log do not count.',
  num COMMENT 'number of units in the slot by the wheel; NULL if the wheel lacks the slot',
  units COMMENT 'number of units in timerlog as num counts them: units of messages minus units that cancel another message',
  linked COMMENT 'units whose prevPos names the unit before them in the slot, or is -1 for the first unit',
  messages COMMENT 'units whose message is in the commit log, with the same size',
  firstPos COMMENT 'position in timerlog of the slot''s first unit, by the wheel; NULL if the wheel lacks the slot',
  lastPos COMMENT 'position in timerlog of the slot''s last unit, by the wheel; NULL if the wheel lacks the slot'
)
COMMENT 'Whether timerwheel, timerlog and the commit log of a broker 5.x agree; one row per slot.'
AS
WITH walk AS (
  SELECT
    c.brokerName, c.lastReadTimeMs, c.lastTimerLogFlushPos, CASE WHEN b.followedFrom IS NOT NULL THEN b.maxPhyOffset END AS followedTo,
    coalesce(try_cast(b.properties['mappedFileSizeTimerLog'] AS BIGINT), 104857600L) AS fileSize
  FROM timer_checkpoint c
  LEFT JOIN broker b ON b.brokerName = c.brokerName
), clock AS (
  SELECT
    brokerName, lastReadTimeMs, followedTo,
    CASE
      WHEN lastTimerLogFlushPos > fileSize AND fileSize > 0 THEN lastTimerLogFlushPos - fileSize - lastTimerLogFlushPos % fileSize
      ELSE 0L
    END AS walkedFrom
  FROM walk
), ordered AS (
  SELECT
    u.*, c.walkedFrom, coalesce(u.physicOffset >= c.followedTo, FALSE) AS isAhead,
    lag(u.position) OVER (PARTITION BY u.brokerName, u.slotTimeMs ORDER BY u.position) AS before
  FROM timer_log u
  JOIN clock c ON c.brokerName = u.brokerName AND u.slotTimeMs >= c.lastReadTimeMs
), logged AS (
  SELECT
    u.brokerName, u.slotTimeMs, count(*) AS rows, count(*) - 2 * count_if(u.magic & 4 <> 0) AS units, count_if(u.prevPos = coalesce(u.before, -1L)) AS linked,
    count(m.physicOffset) AS messages, count_if(u.isAhead AND m.physicOffset IS NULL) AS ahead, min(u.position) AS firstPos, max(u.position) AS lastPos,
    max(u.position) >= min(u.walkedFrom) AS isWalked
  FROM ordered u
  LEFT JOIN commit_log m
    ON m.brokerName = u.brokerName AND m.topic = 'rmq_sys_wheel_timer' AND m.physicOffset = u.physicOffset AND m.storeSize = u.size
  GROUP BY u.brokerName, u.slotTimeMs
), slot AS (
  SELECT s.brokerName, s.timeMs AS slotTimeMs, s.num, s.firstPos, s.lastPos
  FROM timer_slot s
  JOIN clock c ON c.brokerName = s.brokerName AND s.timeMs >= c.lastReadTimeMs
)
SELECT
  brokerName, slotTimeMs,
  CASE
    WHEN l.isWalked AND l.linked = l.rows AND coalesce(s.lastPos < l.lastPos, TRUE) THEN 'BEHIND'
    WHEN s.num IS NULL THEN 'NO_SLOT'
    WHEN l.units IS NULL THEN 'NO_UNITS'
    WHEN l.linked < l.rows OR l.lastPos <> s.lastPos OR l.firstPos <> s.firstPos THEN 'LOST_UNITS'
    WHEN l.units <> s.num THEN 'WRONG_COUNT'
    WHEN l.messages + l.ahead < l.rows THEN 'NO_MESSAGE'
  END,
  s.num, coalesce(l.units, 0L), coalesce(l.linked, 0L), coalesce(l.messages, 0L), s.firstPos, s.lastPos
FROM slot s
FULL JOIN logged l USING (brokerName, slotTimeMs)
