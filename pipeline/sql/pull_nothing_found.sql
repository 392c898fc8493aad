-- Pulls that brought no message, and why: by group, topic and outcome. Broker source: PullMessageProcessor.processRequest, DefaultMessageStore.getMessage.
CREATE OR REPLACE TEMPORARY VIEW pull_nothing_found (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what the latest finished replay run of the broker answered',
  brokerName COMMENT 'broker that got the pull',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  outcome COMMENT 'how the pulls ended: outcome of pull_outcome, except FOUND',
  why COMMENT 'the meaning of outcome in words; NULL if outcome is an exception or an error, which is in words already',
  pulls COMMENT 'pulls of the group on the topic that ended with this outcome',
  share COMMENT 'share of these pulls in all pulls of the group on the topic, from 0 to 1',
  queues COMMENT 'queues from which these pulls asked for messages',
  held COMMENT 'pulls with this outcome that the broker held (long polling) before it answered',
  firstMicros COMMENT 'time of the first pull with this outcome, microseconds since 1970; NULL if the time is unknown',
  lastMicros COMMENT 'time of the last pull with this outcome, microseconds since 1970; NULL if the time is unknown'
)
COMMENT 'Pulls that brought no message, and why; one row per group, topic and outcome.'
AS
WITH counted AS (
  SELECT
    source, brokerName, consumerGroup, topic, outcome,
    count(*) AS pulls,
    count(*) / sum(count(*)) OVER (PARTITION BY source, brokerName, consumerGroup, topic) AS share,
    count(DISTINCT queueId) AS queues,
    count(heldFromMicros) AS held,
    min(arrivalMicros) AS firstMicros,
    max(arrivalMicros) AS lastMicros
  FROM pull_outcome
  GROUP BY source, brokerName, consumerGroup, topic, outcome
)
SELECT
  source, brokerName, consumerGroup, topic, outcome,
  CASE outcome
    WHEN 'OFFSET_OVERFLOW_ONE' THEN 'the group is at the end of the queue: nothing waits'
    WHEN 'NO_MESSAGE_IN_QUEUE' THEN 'nothing was ever written to the queue'
    WHEN 'NO_MATCHED_LOGIC_QUEUE' THEN 'the store has no such queue'
    WHEN 'NO_MATCHED_MESSAGE' THEN 'messages were there, and the filter of the group let none of those in the window pass'
    WHEN 'OFFSET_TOO_SMALL' THEN 'the messages asked for were deleted: the group is sent to the first that is left'
    WHEN 'OFFSET_OVERFLOW_BADLY' THEN 'the offset lies past the end: the group is sent to another one'
    WHEN 'OFFSET_FOUND_NULL' THEN 'a file of the queue is missing: the group is sent to the next one'
    WHEN 'MESSAGE_WAS_REMOVING' THEN 'the queue has entries, and their messages were deleted from the commit log'
    WHEN 'NO_ANSWER' THEN 'the capture has no answer: the client left, or the capture ended'
    WHEN 'NO_PERMISSION' THEN 'the broker, the topic or the group may not be read'
    WHEN 'TOPIC_NOT_EXIST' THEN 'the broker does not know the topic'
    WHEN 'SUBSCRIPTION_GROUP_NOT_EXIST' THEN 'the broker does not know the group, and autoCreateSubscriptionGroup is false'
    WHEN 'SUBSCRIPTION_NOT_EXIST' THEN 'no consumer of the group has told the broker of the topic: no heartbeat came yet, or another consumer of the group overwrote the subscription'
    WHEN 'SUBSCRIPTION_NOT_LATEST' THEN 'the pull is of a newer subscription than the last heartbeat: usual for a moment after a change'
    WHEN 'SUBSCRIPTION_PARSE_FAILED' THEN 'the filter does not parse'
    WHEN 'FILTER_DATA_NOT_EXIST' THEN 'the group has no SQL92 filter registered for the topic'
    WHEN 'FILTER_DATA_NOT_LATEST' THEN 'the pull is of a newer filter than the registered one: usual for a moment after a change'
    WHEN 'SYSTEM_ERROR' THEN 'the broker refused the request: pull_request.recordedRemark says why'
    WHEN 'null' THEN 'the store cannot be read'
  END,
  pulls, share, queues, held, firstMicros, lastMicros
FROM counted
WHERE outcome <> 'FOUND'
