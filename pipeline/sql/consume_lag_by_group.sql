-- Sums of consume_lag, one row per group and topic of each broker. A sum leaves out NULLs; the counts beside it say how many queues it
-- leaves out, so that nobody takes a part for the whole. A negative lag lowers the sum, as in mqadmin.
CREATE OR REPLACE TEMPORARY VIEW consume_lag_by_group (
  brokerName COMMENT 'broker that the row is about',
  consumerGroup COMMENT 'name of the consumer group',
  topic COMMENT 'topic, as the broker spells it',
  queues COMMENT 'queues of the topic in consume_lag',
  queuesUnknown COMMENT 'queues whose lag is unknown; neither lag nor lagBytes counts them',
  queuesNegative COMMENT 'queues whose offset lies past the end of the queue; their negative lag lowers the sum in lag',
  lag COMMENT 'consumer lag in messages: sum of lag over the queues of the topic; NULL if no queue''s lag is known',
  waiting COMMENT 'messages that wait for the group: like lag, but a queue whose offset lies past the end counts as 0, so that it hides no messages of other queues; NULL if no queue''s lag is known',
  waitingDeleted COMMENT 'messages counted in waiting that were deleted before the group consumed them; the group never gets them. The broker and mqadmin count them as lag too; NULL if no queue''s lag is known',
  lagBytes COMMENT 'consumer lag in bytes: sum of lagBytes over the queues of the topic; queues whose lagBytes is NULL are left out',
  lagMillisMax COMMENT 'longest time that the next message of a queue has waited for the group, ms; NULL if no such time is known',
  lagMillisUnknown COMMENT 'queues whose lagMillis is unknown; lagMillisMax does not count them',
  lastConsumedTimestamp COMMENT 'the greatest lastConsumedTimestamp of the topic''s queues, ms: storeTimestamp of the newest among the messages that the group consumed last in each queue',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'Consumer lag of each group on each topic: sums over the rows of consume_lag.'
AS
SELECT
  brokerName, consumerGroup, topic,
  count(*) AS queues,
  count_if(lag IS NULL) AS queuesUnknown,
  count_if(lag < 0) AS queuesNegative,
  try_sum(lag) AS lag,
  try_sum(if(lag < 0, 0L, lag)) AS waiting,
  try_sum(CASE WHEN lag IS NOT NULL THEN greatest(minOffset - greatest(consumerOffset, 0L), 0L) END) AS waitingDeleted,
  sum(lagBytes) AS lagBytes,
  max(lagMillis) AS lagMillisMax,
  count_if(lagMillis IS NULL) AS lagMillisUnknown,
  max(lastConsumedTimestamp) AS lastConsumedTimestamp,
  max(asOf) AS asOf
FROM consume_lag
GROUP BY brokerName, consumerGroup, topic
