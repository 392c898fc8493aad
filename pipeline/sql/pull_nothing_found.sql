-- Pulls that brought no message, and why: by group, topic and outcome. Broker source: PullMessageProcessor.processRequest, DefaultMessageStore.getMessage.
CREATE OR REPLACE TEMPORARY VIEW pull_nothing_found (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what the latest run answered',
  brokerName COMMENT 'broker that was asked',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  outcome COMMENT 'that of pull_outcome: any but FOUND',
  why COMMENT 'the same in words; NULL for outcomes of exceptions and errors, which are words already',
  pulls COMMENT 'pulls that ended so',
  share COMMENT 'part that they are of all pulls of the group on the topic, from 0 to 1',
  queues COMMENT 'queues that they asked for',
  held COMMENT 'of them those that the broker held (long polling) before',
  firstMicros COMMENT 'the first of them, microseconds since 1970; NULL where the time is not known',
  lastMicros COMMENT 'the last of them, likewise'
)
COMMENT 'Pulls that brought no message, and why.'
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
