-- How much passes of what the broker looks at for a group, a row a group and topic. Broker source: DefaultMessageStore.getMessage: the scan goes on from
-- entry to entry until the batch is full or its window ends, and nextBeginOffset says how far it came.
CREATE OR REPLACE TEMPORARY VIEW filter_efficiency (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what the latest run answered',
  brokerName COMMENT 'broker that was asked',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  expressionType COMMENT 'TAG or SQL92; NULL where no filter is known',
  expression COMMENT 'the filter, as in group_filter: the last one that is known; NULL where none is known',
  pulls COMMENT 'pulls for which entries were looked at: those that found messages and those whose filter let none pass',
  pullsForNothing COMMENT 'of them those whose filter let none pass (NO_MATCHED_MESSAGE)',
  offsetsPassed COMMENT 'entries looked at: nextBeginOffset less the offset asked for, of all these pulls',
  messageCount COMMENT 'messages given; NULL where reason says why',
  bodyBytes COMMENT 'their bytes',
  efficiency COMMENT 'messages given in an entry looked at, from 0 to 1; NULL where one is not known',
  reason COMMENT 'why messageCount is NULL: NOT_ON_THE_WIRE: a capture has the bytes of messages and not their number. Replay it to know'
)
COMMENT 'How much passes of what the broker looks at for a group, a row a group and topic.'
AS
WITH counted AS (
  SELECT
    source, brokerName, consumerGroup, topic,
    count(*) AS pulls,
    count_if(outcome = 'NO_MATCHED_MESSAGE') AS pullsForNothing,
    sum(nextBeginOffset - queueOffset) AS offsetsPassed,
    -- a pull that found nothing gave none, whatever is known of others
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
