-- Consumer lag of each group over all its topics, one row per group of each broker, with its retry topic and dead letter topic apart, as in
-- rocketmq-exporter (MetricsCollectTask.collectConsumerOffset). A sum leaves out NULLs; queuesUnknown says how many queues that is.
CREATE OR REPLACE TEMPORARY VIEW group_lag (
  brokerName COMMENT 'broker that the row is about',
  consumerGroup COMMENT 'name of the consumer group',
  groupDiff COMMENT 'consumer lag in messages on topics other than retry and dead letter topics: the sum of rocketmq_group_diff, and Diff Total of mqadmin consumerProgress minus the retry topic''s. A negative lag lowers it, as in mqadmin; NULL if no such lag is known',
  groupRetryDiff COMMENT 'consumer lag in messages on the group''s retry topic: rocketmq_group_retrydiff. These messages failed at least once and wait to be tried again; NULL if the group has no offset there',
  groupDlqDiff COMMENT 'consumer lag in messages on a dead letter topic: rocketmq_group_dlqdiff; NULL if the group has no offset there, which is usual, because groups do not consume their own dead letters',
  dlqMessages COMMENT 'messages in the group''s dead letter topic that the store still has: the group failed to consume them for good; 0 if there is no such topic',
  lagBytes COMMENT 'consumer lag in bytes: sum of lagBytes of consume_lag over all topics; queues whose lagBytes is NULL are left out',
  lagMillisMax COMMENT 'longest time that the next message of a queue has waited for the group, ms; NULL if no such time is known',
  topics COMMENT 'topics on which the group has an offset',
  queues COMMENT 'queues of these topics in consume_lag',
  queuesUnknown COMMENT 'queues whose lag is unknown; no sum counts them',
  queuesNegative COMMENT 'queues whose offset lies past the end of the queue; their negative lag lowers groupDiff, groupRetryDiff and groupDlqDiff',
  waiting COMMENT 'messages that wait for the group on topics other than its retry topic: groupDiff and groupDlqDiff together, but a queue whose offset lies past the end counts as 0, so that it hides no messages of other queues; NULL if no such lag is known',
  retryWaiting COMMENT 'messages that wait for the group on its retry topic: like groupRetryDiff, but a queue whose offset lies past the end counts as 0, so that it hides no messages of other queues; NULL if the group has no offset there',
  waitingDeleted COMMENT 'messages counted in waiting or retryWaiting that were deleted before the group consumed them; the group never gets them. The broker and mqadmin count them as lag too; NULL if no lag is known',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'Consumer lag of each group over all topics, with its retry topic and dead letter topic apart; one row per group.'
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
