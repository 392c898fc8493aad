-- How far each group is behind in all, a row a group of each broker: its topics, its retry topic and its dead letter queue apart, as
-- rocketmq-exporter has them (MetricsCollectTask.collectConsumerOffset). Sums leave out what is NULL; the counts beside them say for how many queues that is.
CREATE OR REPLACE TEMPORARY VIEW group_lag (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  groupDiff COMMENT 'messages behind on topics that are neither retry nor dead letter ones: rocketmq_group_diff of all of them, Diff Total of mqadmin consumerProgress less the retry topic''s. A negative lag lowers it, as in mqadmin',
  groupRetryDiff COMMENT 'messages behind on its retry topic: rocketmq_group_retrydiff. They failed once at least and wait to be tried again; NULL where it has no offset there',
  groupDlqDiff COMMENT 'messages behind on a dead letter topic: rocketmq_group_dlqdiff; NULL where it has no offset there, as groups do not consume their own',
  dlqMessages COMMENT 'messages in its dead letter topic that the store still has: they failed for good; 0 where there is no such topic',
  lagBytes COMMENT 'bytes behind on all topics together',
  lagMillisMax COMMENT 'the longest that a next message has waited, ms',
  topics COMMENT 'topics on which the group has an offset',
  queues COMMENT 'their queues',
  queuesUnknown COMMENT 'of them those whose lag is not known: they are in no sum',
  queuesNegative COMMENT 'of them those whose offset lies past the end: they lower the three sums above',
  waiting COMMENT 'messages that wait on topics other than its retry topic: as groupDiff and groupDlqDiff, but a queue whose offset lies past the end counts as 0, so that it hides nothing; NULL where no lag is known',
  retryWaiting COMMENT 'likewise on its retry topic; NULL where it has no offset there',
  waitingDeleted COMMENT 'of waiting and retryWaiting the messages that were deleted before the group consumed them: it never gets them. Broker and mqadmin count them as lag, too; NULL where no lag is known',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'How far each group is behind in all, its retry topic and dead letter queue apart.'
AS
WITH lags AS (
  SELECT
    brokerName, consumerGroup,
    try_sum(lag) FILTER (WHERE NOT startswith(topic, '%RETRY%') AND NOT startswith(topic, '%DLQ%')) AS groupDiff,
    try_sum(lag) FILTER (WHERE startswith(topic, '%RETRY%')) AS groupRetryDiff,
    try_sum(lag) FILTER (WHERE startswith(topic, '%DLQ%')) AS groupDlqDiff,
    sum(lagBytes) AS lagBytes,
    max(lagMillis) AS lagMillisMax,
    count(DISTINCT topic) AS topics,
    count(*) AS queues,
    count_if(lag IS NULL) AS queuesUnknown,
    count_if(lag < 0) AS queuesNegative,
    try_sum(if(lag < 0, 0L, lag)) FILTER (WHERE NOT startswith(topic, '%RETRY%')) AS waiting,
    try_sum(if(lag < 0, 0L, lag)) FILTER (WHERE startswith(topic, '%RETRY%')) AS retryWaiting,
    try_sum(CASE WHEN lag IS NOT NULL THEN greatest(minOffset - greatest(consumerOffset, 0L), 0L) END) AS waitingDeleted,
    max(asOf) AS asOf
  FROM consume_lag
  GROUP BY brokerName, consumerGroup
), dead AS (
  SELECT brokerName, substring(topic, 6) AS consumerGroup, sum(maxOffset - minOffset) AS messages
  FROM queue
  WHERE startswith(topic, '%DLQ%')
  GROUP BY brokerName, topic
)
SELECT
  brokerName, consumerGroup, groupDiff, groupRetryDiff, groupDlqDiff, coalesce(d.messages, 0L),
  lagBytes, lagMillisMax, topics, queues, queuesUnknown, queuesNegative, waiting, retryWaiting, waitingDeleted, asOf
FROM lags
LEFT JOIN dead d USING (brokerName, consumerGroup)
