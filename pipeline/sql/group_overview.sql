-- All that is known of each consumer group, a row a group: what `pullsim groups` shows. Groups come from stored offsets, from subscriptionGroup.json,
-- from captured heartbeats, pulls and commits, and from dead letter topics.
CREATE OR REPLACE TEMPORARY VIEW group_overview (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  status COMMENT 'the worst status of its queues: groupStatus of group_status; UNKNOWN where nothing was observed',
  lag COMMENT 'messages that wait on its topics: waiting of group_lag; NULL where no lag is known',
  retryLag COMMENT 'messages that wait on its retry topic: retryWaiting of group_lag',
  lagDeleted COMMENT 'of lag and retryLag the messages that were deleted before the group consumed them: waitingDeleted of group_lag',
  offsetsSkipped COMMENT 'offsets that captured pulls of the group were sent past, as their messages or files were gone: lostOffsets of offset_correction; 0 where no capture shows any',
  dlqMessages COMMENT 'messages in its dead letter topic that the store still has',
  lagMillisMax COMMENT 'the longest time that a next message has waited, ms',
  queuesUnknown COMMENT 'queues whose lag is not known: they are in no sum',
  queuesNegative COMMENT 'queues whose offset lies past the end: they count as 0',
  topics COMMENT 'topics on which the group has an offset; 0 where it stored none',
  clients COMMENT 'clients that had not left when the capture ended: CONNECTED and SEEN in client; NULL where no capture has the group',
  lastCommitMicros COMMENT 'the last captured commit of an offset, microseconds since 1970; NULL without one',
  consumeEnable COMMENT 'whether the broker lets the group pull; NULL where subscriptionGroup.json has no such group',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms',
  queuesJudged COMMENT 'queues that group_status judges; NULL where it has none of the group',
  queuesInTrouble COMMENT 'of them those that are STOP, STALL or REWIND'
)
COMMENT 'All that is known of each consumer group.'
AS
WITH known AS (
  SELECT brokerName, consumerGroup FROM consumer_offset
  UNION
  SELECT brokerName, consumerGroup FROM subscription_group
  UNION
  SELECT brokerName, consumerGroup FROM subscription WHERE consumerGroup IS NOT NULL
  UNION
  SELECT brokerName, consumerGroup FROM pull_request WHERE consumerGroup IS NOT NULL
  UNION
  SELECT brokerName, consumerGroup FROM offset_history
  UNION
  SELECT brokerName, substring(topic, 6) FROM queue WHERE startswith(topic, '%DLQ%')
), dead AS (
  SELECT brokerName, substring(topic, 6) AS consumerGroup, sum(maxOffset - minOffset) AS messages
  FROM queue
  WHERE startswith(topic, '%DLQ%')
  GROUP BY brokerName, topic
), skipped AS (
  SELECT brokerName, consumerGroup, try_sum(lostOffsets) AS offsets
  FROM offset_correction
  WHERE source = 'CAPTURED'
  GROUP BY brokerName, consumerGroup
), judged AS (
  SELECT
    brokerName, consumerGroup, max(groupStatus) AS status, count(*) AS queues, count_if(status IN ('STOP', 'STALL', 'REWIND')) AS inTrouble
  FROM group_status
  GROUP BY brokerName, consumerGroup
), connected AS (
  SELECT brokerName, consumerGroup, count_if(state IN ('CONNECTED', 'SEEN')) AS clients FROM client GROUP BY brokerName, consumerGroup
), committed AS (
  SELECT brokerName, consumerGroup, max(micros) AS micros
  FROM offset_history
  WHERE origin <> 'QUERY_CONSUMER_OFFSET'
  GROUP BY brokerName, consumerGroup
)
SELECT
  k.brokerName, k.consumerGroup, coalesce(j.status, 'UNKNOWN'),
  l.waiting, l.retryWaiting, l.waitingDeleted,
  CASE WHEN s.brokerName IS NULL THEN 0L ELSE s.offsets END, coalesce(d.messages, 0L), l.lagMillisMax,
  coalesce(l.queuesUnknown, 0L), coalesce(l.queuesNegative, 0L), coalesce(l.topics, 0L),
  c.clients, o.micros, g.consumeEnable, b.maxStoreTimestamp,
  j.queues, j.inTrouble
FROM known k
LEFT JOIN group_lag l ON l.brokerName = k.brokerName AND l.consumerGroup = k.consumerGroup
LEFT JOIN dead d ON d.brokerName = k.brokerName AND d.consumerGroup = k.consumerGroup
LEFT JOIN skipped s ON s.brokerName = k.brokerName AND s.consumerGroup = k.consumerGroup
LEFT JOIN judged j ON j.brokerName = k.brokerName AND j.consumerGroup = k.consumerGroup
LEFT JOIN connected c ON c.brokerName = k.brokerName AND c.consumerGroup = k.consumerGroup
LEFT JOIN committed o ON o.brokerName = k.brokerName AND o.consumerGroup = k.consumerGroup
LEFT JOIN subscription_group g ON g.brokerName = k.brokerName AND g.consumerGroup = k.consumerGroup
LEFT JOIN broker b ON b.brokerName = k.brokerName
