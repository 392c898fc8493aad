-- One row a group and topic. Sums leave out what is NULL; queuesUnknown says for how many queues that is, so that a part is not taken for the whole.
SELECT
  brokerName, consumerGroup, topic,
  count(*) AS queues,
  count_if(lag IS NULL) AS queuesUnknown,
  sum(lag) AS lag,
  sum(lagBytes) AS lagBytes,
  max(lagMillis) AS lagMillisMax,
  max(lastConsumedTimestamp) AS lastConsumedTimestamp,
  max(asOf) AS asOf
FROM consume_lag
GROUP BY brokerName, consumerGroup, topic
