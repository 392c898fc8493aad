-- Messages in dead letter topics: how many, how old, and from which topic; one row per group and topic of origin. The broker moves a
-- message there after its group sent it back more than retryMaxTimes times (SendMessageProcessor.consumerSendMsgBack); only an operator
-- takes it out again.
CREATE OR REPLACE TEMPORARY VIEW dead_letters (
  brokerName COMMENT 'broker that the row is about',
  consumerGroup COMMENT 'group that failed to consume the messages',
  originTopic COMMENT 'property RETRY_TOPIC of the dead letters: topic that they came from; NULL if they have no such property',
  messages COMMENT 'dead letters that the store still has',
  bytes COMMENT 'bytes of these dead letters in the commit log',
  reconsumeTimesMax COMMENT 'greatest reconsumeTimes of these dead letters: how often the group sent a message back',
  oldestStoreTimestamp COMMENT 'storeTimestamp of the oldest dead letter, ms: when it became one',
  newestStoreTimestamp COMMENT 'storeTimestamp of the newest dead letter, ms: when it became one',
  oldestBornTimestamp COMMENT 'the least bornTimestamp of these dead letters, ms: when the producer sent the message',
  oldestMillis COMMENT 'how long the oldest dead letter has been one, ms: asOf - oldestStoreTimestamp',
  readers COMMENT 'groups that have an offset on the dead letter topic; if more than 0, somebody consumes it',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'Messages in dead letter topics: how many, how old, and from which topic; one row per group and topic of origin.'
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
