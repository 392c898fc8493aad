-- All that is known of each consumer group, one row per group: `pullsim groups` shows it. Groups come from stored offsets, from
-- subscriptionGroup.json, from captured heartbeats, pulls and commits, and from dead letter topics.
CREATE OR REPLACE TEMPORARY VIEW group_overview (
  brokerName COMMENT 'broker that the row is about',
  consumerGroup COMMENT 'name of the consumer group',
  status COMMENT 'the worst status of the group''s queues: groupStatus of group_status; UNKNOWN if nothing was observed',
  lag COMMENT 'messages that wait for the group on topics other than its retry topic: waiting of group_lag; NULL if no lag is known',
  retryLag COMMENT 'messages that wait for the group on its retry topic: retryWaiting of group_lag; NULL if the group has no offset there',
  lagDeleted COMMENT 'messages counted in lag or retryLag that were deleted before the group consumed them: waitingDeleted of group_lag; NULL if no lag is known',
  offsetsSkipped COMMENT 'offsets that captured pulls of the group had to skip because their messages or files were gone: sum of lostOffsets of offset_correction; 0 if no capture shows any',
  dlqMessages COMMENT 'messages in the group''s dead letter topic that the store still has: the group failed to consume them for good; 0 if there is no such topic',
  lagMillisMax COMMENT 'longest time that the next message of a queue has waited for the group, ms; NULL if no such time is known',
  queuesUnknown COMMENT 'queues whose lag is unknown; no sum counts them',
  queuesNegative COMMENT 'queues whose offset lies past the end of the queue; lag and retryLag count them as 0',
  topics COMMENT 'topics on which the group has an offset; 0 if it stored none',
  clients COMMENT 'clients of the group that had not left when the capture ended: CONNECTED and SEEN in view client; NULL if no capture shows the group',
  lastCommitMicros COMMENT 'time of the group''s last captured commit of an offset, microseconds since 1970; NULL if none was captured',
  consumeEnable COMMENT 'whether the broker lets the group pull; NULL if subscriptionGroup.json does not have the group',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms',
  queuesJudged COMMENT 'queues of the group in group_status; NULL if it has none',
  queuesInTrouble COMMENT 'queues of the group whose status in group_status is STOP, STALL or REWIND; NULL if group_status has no queue of the group'
)
COMMENT 'All that is known of each consumer group; one row per group.'
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
