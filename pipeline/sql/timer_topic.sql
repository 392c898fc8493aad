-- Messages that wait in the timer of a broker 5.x, one row per topic, beside the broker's own count. Broker source (5.5.0): TimerMetrics,
-- whose count rises with each unit in timerlog, and falls with each delivery and each order to cancel.
CREATE OR REPLACE TEMPORARY VIEW timer_topic (
  brokerName COMMENT 'broker that the row is about',
  topic COMMENT 'topic that the timer messages are for',
  pending COMMENT 'messages in the wheel, with overdue and cancelled ones, minus pending orders to cancel; NULL if there is no config/timercheck',
  counted COMMENT 'the broker''s own count from config/timermetrics; 0 if this file has other topics only. NULL if the broker has no such file, or if the store is followed, because the broker goes on counting while the files are read',
  overdue COMMENT 'messages in the wheel that were due more than 10 s before asOf; NULL if there is no config/timercheck',
  queued COMMENT 'messages that the timer has not read yet; NULL if there is no config/timercheck',
  cancelled COMMENT 'messages in the wheel that will be dropped; NULL if there is no config/timercheck',
  withoutUnit COMMENT 'messages that are not yet due and have no unit in the imported timerlog; after an import without timerlog these are all messages that the timer has read and that are not due; NULL if there is no config/timercheck',
  nextOutMs COMMENT 'when the next message of the topic is due, ms since 1970; NULL if none waits',
  lastOutMs COMMENT 'when the last message of the topic is due, ms since 1970; NULL if none waits',
  readTimeMs COMMENT 'the timer''s clock when its files were read, ms since 1970: the timer has delivered all messages that were due earlier',
  asOf COMMENT 'the greatest storeTimestamp of the broker when its timerlog was read (by the import or by a follow), ms'
)
COMMENT 'Messages that wait in the timer of a broker 5.x, beside the broker''s own count; one row per topic.'
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
