-- consume_lag summed, a row a group and topic of each broker. Sums leave out what is NULL; the counts beside them say for how many queues that is, so
-- that a part is not taken for the whole. A negative lag lowers the sum, as it does in mqadmin.
CREATE OR REPLACE TEMPORARY VIEW consume_lag_by_group (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queues COMMENT 'queues of the topic in consume_lag',
  queuesUnknown COMMENT 'of them those whose lag is not known: they are in neither lag nor lagBytes',
  queuesNegative COMMENT 'of them those whose offset lies past the end: they lower lag',
  lag COMMENT 'messages that the group is behind, all queues together',
  waiting COMMENT 'messages that wait: as lag, but a queue whose offset lies past the end counts as 0, so that it hides nothing; NULL where no lag is known',
  waitingDeleted COMMENT 'of waiting the messages that were deleted before the group consumed them: it never gets them. Broker and mqadmin count them as lag, too; NULL where no lag is known',
  lagBytes COMMENT 'their bytes',
  lagMillisMax COMMENT 'the longest that a next message has waited, ms',
  lagMillisUnknown COMMENT 'queues of which it is not known how long the next message has waited: they are not in lagMillisMax',
  lastConsumedTimestamp COMMENT 'storeTimestamp of the newest message that the group consumed last in a queue, ms',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'How far each consumer group is behind on a topic.'
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
