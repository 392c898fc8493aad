-- Pulls that the broker held (long polling), one a row: for how long, and what ended it. Broker source: PullRequestHoldService.notifyMessageArriving and
-- checkHoldRequest, which looks every five seconds: a timeout of 15 s takes 15 to 20.
CREATE OR REPLACE TEMPORARY VIEW pull_hold (
  source COMMENT 'CAPTURED: as far as the wire shows it; REPLAYED: as replay --hold held it',
  brokerName COMMENT 'broker that was asked',
  requestId COMMENT 'that of pull_request and pull_response',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  queueOffset COMMENT 'offset asked for',
  heldFromMicros COMMENT 'when it began to wait, microseconds since 1970',
  heldMillis COMMENT 'for how long, ms; NULL where it was never answered',
  ending COMMENT 'what ended it:
MESSAGE: a message for the group came.
NOT_FOR_IT: it was woken, and its filter let nothing pass.
TIMEOUT: it was answered that nothing came.
NO_ANSWER: the client left, or the capture ended.
REFUSED: the broker refused it when it was woken: outcome says why.',
  outcome COMMENT 'that of pull_outcome'
)
COMMENT 'Pulls that the broker held (long polling), and what ended it.'
AS
SELECT
  source, brokerName, requestId, consumerGroup, topic, queueId, queueOffset, heldFromMicros, heldMillis,
  holdEnding, outcome
FROM pull_outcome
WHERE heldFromMicros IS NOT NULL
