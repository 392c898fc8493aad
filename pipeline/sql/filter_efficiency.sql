-- What share of the entries that the broker reads for a group its filter passes, one row per group and topic. Broker source:
-- DefaultMessageStore.getMessage. The scan reads entry after entry until the batch is full or its window ends; nextBeginOffset says where
-- it stopped.
CREATE OR REPLACE TEMPORARY VIEW filter_efficiency (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what the latest finished replay run of the broker answered',
  brokerName COMMENT 'broker that got the pull',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  expressionType COMMENT 'type of the group''s filter: TAG or SQL92; NULL if no filter is known',
  expression COMMENT 'the group''s filter, as in group_filter: the last one that is known; NULL if none is known',
  pulls COMMENT 'pulls for which the broker read entries: those that found messages, and those whose filter passed none',
  pullsForNothing COMMENT 'pulls for which the broker read entries and the filter passed none (NO_MATCHED_MESSAGE)',
  offsetsPassed COMMENT 'entries that the broker read for these pulls: sum of nextBeginOffset - requested offset',
  messageCount COMMENT 'messages that these pulls got; NULL if reason says why',
  bodyBytes COMMENT 'bytes of the messages that these pulls got',
  efficiency COMMENT 'messages got per entry read, from 0 to 1: messageCount / offsetsPassed; NULL if messageCount is NULL or offsetsPassed is 0',
  reason COMMENT 'why messageCount is NULL: NOT_ON_THE_WIRE: a capture has the bytes of messages, not their number. Replay the capture to know'
)
COMMENT 'What share of the entries that the broker reads for a group its filter passes; one row per group and topic.'
AS
WITH counted AS (
  SELECT
    source, brokerName, consumerGroup, topic,
    count(*) AS pulls,
    count_if(outcome = 'NO_MATCHED_MESSAGE') AS pullsForNothing,
    sum(nextBeginOffset - queueOffset) AS offsetsPassed,
    -- a pull that found nothing got no messages, even if the counts of other pulls are unknown
    CASE WHEN count_if(messageCount IS NULL AND outcome = 'FOUND') = 0 THEN coalesce(sum(messageCount), 0L) END AS messageCount,
    coalesce(sum(bodyBytes), 0L) AS bodyBytes
  FROM pull_outcome
  WHERE outcome IN ('FOUND', 'NO_MATCHED_MESSAGE')
  GROUP BY source, brokerName, consumerGroup, topic
)
SELECT
  source, brokerName, consumerGroup, topic, f.expressionType, f.expression, pulls, pullsForNothing, offsetsPassed, messageCount, bodyBytes,
  try_divide(messageCount, offsetsPassed),
  CASE WHEN messageCount IS NULL THEN 'NOT_ON_THE_WIRE' END
FROM counted
LEFT JOIN group_filter f USING (brokerName, consumerGroup, topic)
