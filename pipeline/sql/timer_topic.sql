-- What waits in the timer of a broker 5.x, a row a topic, and whether the broker counts the same. Broker source (5.5.0): TimerMetrics, whose count
-- goes up with each unit in timerlog, and down with each delivery and each order to cancel.
CREATE OR REPLACE TEMPORARY VIEW timer_topic (
  brokerName COMMENT 'broker whose store it is',
  topic COMMENT 'topic that the messages are for',
  pending COMMENT 'messages in the wheel, overdue and cancelled ones among them, less pending orders to cancel; NULL, like the other counts of messages, without config/timercheck',
  counted COMMENT 'the broker''s own count, of config/timermetrics, 0 where only other topics are in it; NULL where the broker has no such file, or is followed: it goes on counting while the files are read',
  overdue COMMENT 'messages that were due more than 10 s before asOf',
  queued COMMENT 'messages to which the timer has not come yet',
  cancelled COMMENT 'messages that will be dropped',
  withoutUnit COMMENT 'messages that are not due and have no unit in timerlog as imported: an import without timerlog has no other ones',
  nextOutMs COMMENT 'when the next one is due, ms',
  lastOutMs COMMENT 'when the last one is, ms',
  readTimeMs COMMENT 'the timer''s clock, ms',
  asOf COMMENT 'the greatest storeTimestamp of the broker when its timerlog was read, by the import or a follow, ms'
)
COMMENT 'What waits in the timer of a broker 5.x, and what the broker counts.'
AS
WITH waiting AS (
  SELECT
    brokerName, topic, count_if(state IN ('PENDING', 'OVERDUE', 'CANCELLED')) - count_if(state = 'CANCEL') AS pending,
    count_if(state = 'OVERDUE') AS overdue, count_if(state = 'QUEUED') AS queued, count_if(state = 'CANCELLED') AS cancelled,
    count_if(state = 'NO_UNIT') AS withoutUnit, max(asOf) AS asOf,
    min(CASE WHEN state IN ('PENDING', 'OVERDUE', 'QUEUED') THEN outMs END) AS nextOutMs,
    max(CASE WHEN state IN ('PENDING', 'OVERDUE', 'QUEUED') THEN outMs END) AS lastOutMs
  FROM timer_message
  GROUP BY brokerName, topic
), counted AS (
  SELECT p.brokerName, p.topic, CASE WHEN b.followedFrom IS NULL THEN p.count END AS count
  FROM pending_messages p
  LEFT JOIN broker b ON b.brokerName = p.brokerName
  WHERE p.file = 'timermetrics'
), counting AS (
  SELECT DISTINCT brokerName, 0L AS none FROM counted WHERE count IS NOT NULL
)
SELECT
  brokerName, topic, CASE WHEN c.lastReadTimeMs IS NOT NULL THEN coalesce(w.pending, 0L) END, coalesce(p.count, n.none),
  CASE WHEN c.lastReadTimeMs IS NOT NULL THEN coalesce(w.overdue, 0L) END,
  CASE WHEN c.lastReadTimeMs IS NOT NULL THEN coalesce(w.queued, 0L) END,
  CASE WHEN c.lastReadTimeMs IS NOT NULL THEN coalesce(w.cancelled, 0L) END,
  CASE WHEN c.lastReadTimeMs IS NOT NULL THEN coalesce(w.withoutUnit, 0L) END, w.nextOutMs, w.lastOutMs, c.lastReadTimeMs,
  coalesce(max(w.asOf) OVER (PARTITION BY brokerName), b.maxStoreTimestamp)
FROM waiting w
FULL JOIN counted p USING (brokerName, topic)
LEFT JOIN counting n USING (brokerName)
LEFT JOIN timer_checkpoint c USING (brokerName)
LEFT JOIN broker b USING (brokerName)
