-- Pulls that the broker held (long polling), one row per pull: for how long, and what ended the hold. Broker source:
-- PullRequestHoldService.notifyMessageArriving and checkHoldRequest. The latter runs every 5 s, so a timeout of 15 s takes 15 to 20 s.
CREATE OR REPLACE TEMPORARY VIEW pull_hold (
  source COMMENT 'CAPTURED: held by the real broker, as far as the wire shows it; REPLAYED: held by the latest finished replay run, if it ran with --hold',
  brokerName COMMENT 'broker that got the pull',
  requestId COMMENT 'id of the request, as in pull_request and pull_response',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  queueOffset COMMENT 'offset from which the pull asked for messages',
  heldFromMicros COMMENT 'when the pull began to wait, microseconds since 1970',
  heldMillis COMMENT 'how long the pull waited, ms; NULL if it was never answered',
  ending COMMENT 'what ended the hold:
MESSAGE: a message for the group arrived.
NOT_FOR_IT: a message arrived and woke the pull, but the group''s filter did not pass it.
TIMEOUT: the broker answered that no message had come.
NO_ANSWER: the client left, or the capture ended.
REFUSED: the broker refused the pull when it woke it; outcome says why.',
  outcome COMMENT 'how the pull ended: outcome of pull_outcome'
)
COMMENT 'Pulls that the broker held (long polling): for how long, and what ended the hold; one row per pull.'
AS
SELECT
  source, brokerName, requestId, consumerGroup, topic, queueId, queueOffset, heldFromMicros, heldMillis,
  holdEnding, outcome
FROM pull_outcome
WHERE heldFromMicros IS NOT NULL
