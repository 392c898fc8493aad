-- What lies in dead letter topics, how old it is and where it came from: a row a group and topic of origin. The broker moves a message there that its
-- group sent back more than retryMaxTimes times (SendMessageProcessor.consumerSendMsgBack); only an operator takes it out again.
CREATE OR REPLACE TEMPORARY VIEW dead_letters (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'group that could not consume them',
  originTopic COMMENT 'topic that they came from: property RETRY_TOPIC; NULL where they have none',
  messages COMMENT 'messages that the store still has',
  bytes COMMENT 'their bytes in the commit log',
  reconsumeTimesMax COMMENT 'how often the group sent one of them back, at most',
  oldestStoreTimestamp COMMENT 'when the oldest of them became a dead letter, ms',
  newestStoreTimestamp COMMENT 'when the newest did, ms',
  oldestBornTimestamp COMMENT 'when the producer sent the oldest of them, ms',
  oldestMillis COMMENT 'how long the oldest has been a dead letter: asOf less its storeTimestamp, ms',
  readers COMMENT 'other groups that have an offset on the dead letter topic: somebody consumes it',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'What lies in dead letter topics, how old it is and where it came from.'
AS
WITH lying AS (
  SELECT
    m.brokerName, m.topic, m.properties['RETRY_TOPIC'] AS originTopic,
    count(*) AS messages, sum(m.storeSize) AS bytes, max(m.reconsumeTimes) AS reconsumeTimesMax,
    min(m.storeTimestamp) AS oldestStoreTimestamp, max(m.storeTimestamp) AS newestStoreTimestamp, min(m.bornTimestamp) AS oldestBornTimestamp
  FROM commit_log m
  JOIN queue q ON q.brokerName = m.brokerName AND q.topic = m.topic AND q.queueId = m.queueId
  WHERE startswith(m.topic, '%DLQ%') AND m.queueOffset >= q.minOffset
  GROUP BY m.brokerName, m.topic, m.properties['RETRY_TOPIC']
), reading AS (
  SELECT brokerName, topic, count(DISTINCT consumerGroup) AS readers FROM consumer_offset WHERE startswith(topic, '%DLQ%') GROUP BY brokerName, topic
)
SELECT
  l.brokerName, substring(l.topic, 6), l.originTopic, l.messages, l.bytes, l.reconsumeTimesMax,
  l.oldestStoreTimestamp, l.newestStoreTimestamp, l.oldestBornTimestamp, try_subtract(b.maxStoreTimestamp, l.oldestStoreTimestamp),
  coalesce(r.readers, 0L), b.maxStoreTimestamp
FROM lying l
LEFT JOIN reading r ON r.brokerName = l.brokerName AND r.topic = l.topic
LEFT JOIN broker b ON b.brokerName = l.brokerName
