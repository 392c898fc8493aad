-- One row a queue of each group that has an offset on its topic: how far the group is behind.
-- lag = brokerOffset - consumerOffset, never clamped: it is negative where the group's offset lies past the queue's end.
-- What cannot be known is NULL, and reason says why.
WITH known AS (
  SELECT brokerName, topic, queueId, minOffset, maxOffset FROM queue
), grouped AS (
  SELECT DISTINCT brokerName, consumerGroup, topic FROM consumer_offset
), pairs AS (
  SELECT g.brokerName, g.consumerGroup, g.topic, q.queueId FROM grouped g JOIN known q USING (brokerName, topic)
  UNION
  SELECT brokerName, consumerGroup, topic, queueId FROM consumer_offset
), positions AS (
  SELECT
    p.brokerName, p.consumerGroup, p.topic, p.queueId, o.consumerOffset,
    coalesce(q.minOffset, 0) AS minOffset,
    coalesce(q.maxOffset, 0) AS brokerOffset
  FROM pairs p
  LEFT JOIN known q USING (brokerName, topic, queueId)
  LEFT JOIN consumer_offset o USING (brokerName, consumerGroup, topic, queueId)
), wanted AS (
  -- the three entries that say when and how much: the last consumed, the next to consume, the first that still counts
  SELECT DISTINCT brokerName, topic, queueId, explode(array(consumerOffset - 1, consumerOffset, greatest(consumerOffset, minOffset))) AS queueOffset
  FROM positions WHERE consumerOffset IS NOT NULL
), entry AS (
  SELECT e.brokerName, e.topic, e.queueId, e.queueOffset, e.storeTimestamp, e.bytesToFileEnd
  FROM consume_queue e JOIN wanted w USING (brokerName, topic, queueId, queueOffset)
), later_files AS (
  -- entries in files that begin behind the offset; those of its own file are in bytesToFileEnd
  SELECT w.brokerName, w.topic, w.queueId, w.queueOffset, sum(s.entryBytes) AS bytes
  FROM wanted w JOIN consume_queue_segment s
    ON s.brokerName = w.brokerName AND s.topic = w.topic AND s.queueId = w.queueId AND s.fileFirstOffset > w.queueOffset
  GROUP BY ALL
), as_of AS (
  SELECT brokerName, maxStoreTimestamp AS asOf FROM broker
)
SELECT
  p.brokerName, p.consumerGroup, p.topic, p.queueId, p.minOffset, p.brokerOffset, p.consumerOffset,
  p.brokerOffset - p.consumerOffset AS lag,
  CASE WHEN p.consumerOffset IS NOT NULL THEN coalesce(first_counted.bytesToFileEnd, 0) + coalesce(l.bytes, 0) END AS lagBytes,
  CASE WHEN p.brokerOffset = p.consumerOffset THEN 0 ELSE a.asOf - next.storeTimestamp END AS lagMillis,
  last.storeTimestamp AS lastConsumedTimestamp,
  a.asOf,
  CASE
    WHEN p.consumerOffset IS NULL THEN 'NO_OFFSET'
    WHEN p.consumerOffset > p.brokerOffset THEN 'OFFSET_BEYOND_BROKER_OFFSET'
    WHEN p.consumerOffset < p.minOffset THEN 'OFFSET_BELOW_MIN'
    WHEN p.brokerOffset <> p.consumerOffset AND next.queueOffset IS NULL THEN 'NO_QUEUE_FILE'
    WHEN p.brokerOffset <> p.consumerOffset AND next.storeTimestamp IS NULL THEN 'MESSAGE_REMOVED'
    WHEN last.storeTimestamp IS NULL AND p.consumerOffset = 0 THEN 'NOTHING_CONSUMED'
    WHEN last.storeTimestamp IS NULL THEN 'LAST_CONSUMED_REMOVED'
  END AS reason
FROM positions p
LEFT JOIN entry last ON last.brokerName = p.brokerName AND last.topic = p.topic AND last.queueId = p.queueId AND last.queueOffset = p.consumerOffset - 1
LEFT JOIN entry next ON next.brokerName = p.brokerName AND next.topic = p.topic AND next.queueId = p.queueId AND next.queueOffset = p.consumerOffset
LEFT JOIN entry first_counted ON first_counted.brokerName = p.brokerName AND first_counted.topic = p.topic
  AND first_counted.queueId = p.queueId AND first_counted.queueOffset = greatest(p.consumerOffset, p.minOffset)
LEFT JOIN later_files l ON l.brokerName = p.brokerName AND l.topic = p.topic AND l.queueId = p.queueId
  AND l.queueOffset = greatest(p.consumerOffset, p.minOffset)
LEFT JOIN as_of a ON a.brokerName = p.brokerName
