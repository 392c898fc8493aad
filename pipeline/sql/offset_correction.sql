-- Each pull that the broker sent to another offset than the requested one, and what that cost. Broker source:
-- DefaultMessageStore.getMessage (nextOffsetCorrection), PullMessageProcessor.generateOffsetMovedEvent. A pull whose filter passed nothing
-- gets a later offset too (NO_MATCHED_MESSAGE); that is no correction.
CREATE OR REPLACE TEMPORARY VIEW offset_correction (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what the latest finished replay run of the broker answered; SCENARIO: an OFFSET_MOVED event of an answered scenario',
  brokerName COMMENT 'broker that got the pull',
  runId COMMENT 'id of the run that answered the pull; NULL for CAPTURED',
  requestId COMMENT 'id of the request, as in pull_request and pull_response; NULL for SCENARIO',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  arrivalMicros COMMENT 'when the request was captured, microseconds since 1970; for SCENARIO the time of the event by the scenario''s clock; NULL for pulls that were replayed from a file',
  status COMMENT 'GetMessageStatus of the answer: why the broker changed the offset; NULL for SCENARIO:
OFFSET_TOO_SMALL: the offset lies before the first message that is left. The pull goes to that message.
OFFSET_OVERFLOW_BADLY: the offset lies past the end of the queue. The pull goes back to the end; by the rules of 4.9.3 it goes to 0 if the queue begins at 0.
NO_MESSAGE_IN_QUEUE: the queue is empty. The pull goes to 0.
OFFSET_FOUND_NULL: a file of the queue is missing. The pull goes to the next file.
MESSAGE_WAS_REMOVING: the queue has entries, but their messages are gone. The pull goes past these entries.',
  offsetRequest COMMENT 'offset from which the pull asked for messages',
  offsetNew COMMENT 'offset to which the broker sent the pull',
  minOffset COMMENT 'begin of the queue (min offset) in the answer to the pull',
  maxOffset COMMENT 'end of the queue (max offset) in the answer to the pull',
  skipped COMMENT 'offsets from offsetRequest (from 0 if it is negative) to offsetNew - 1: messages that the group never gets, or that never existed',
  lostOffsets COMMENT 'offsets in skipped that are a loss of the group. Left out are offsets that another row of the same source, run, group and queue counts, so that a sum counts each offset once, and offsets that the group had passed before, as far as captured commits, queries and corrected pulls show. 0 for a first start; offsets that were gone at the first start never count',
  isFirstStart COMMENT 'whether a group without an offset began here. It asked for offset 0 or less; no earlier captured commit or query had such an offset, and no earlier commit, query or corrected pull had a greater one. The messages below minOffset were gone before, so the group did not lose them',
  readAgain COMMENT 'messages from offsetNew to the lesser of offsetRequest and maxOffset; the group gets them again if it had them before. 0 if the pull was sent forward; NULL if maxOffset is unknown'
)
COMMENT 'Each pull that the broker sent to another offset than the requested one, and the messages that this cost.'
AS
WITH moved AS (
  SELECT
    source, brokerName, runId, requestId, consumerGroup, topic, queueId, arrivalMicros, outcome AS status,
    queueOffset AS offsetRequest, nextBeginOffset AS offsetNew, minOffset, maxOffset
  FROM pull_outcome
  WHERE nextBeginOffset <> queueOffset
    AND outcome IN (
      'OFFSET_TOO_SMALL', 'OFFSET_OVERFLOW_BADLY', 'NO_MESSAGE_IN_QUEUE', 'NO_MATCHED_LOGIC_QUEUE', 'OFFSET_FOUND_NULL', 'MESSAGE_WAS_REMOVING'
    )
  UNION ALL
  SELECT
    'SCENARIO', brokerName, runId, NULL, consumerGroup, topic, queueId, at * 1000, NULL, offsetRequest, offsetNew, NULL, NULL
  FROM offset_moved_event
), stated AS (
  SELECT brokerName, consumerGroup, topic, queueId, min(micros) AS micros
  FROM offset_history
  WHERE consumerOffset <= 0
  GROUP BY brokerName, consumerGroup, topic, queueId
), timed AS (
  -- passedTo: the greatest offset within the queue that the group is known to have had before; the group has passed all lower offsets
  SELECT
    *,
    max(committed) OVER (
      PARTITION BY brokerName, consumerGroup, topic, queueId
      ORDER BY micros, source IS NOT NULL, offsetRequest, requestId
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS passedTo
  FROM (
    SELECT
      *, arrivalMicros AS micros,
      -- like a commit, a pull from within the queue shows that the group has passed all lower offsets
      CASE WHEN source = 'CAPTURED' AND offsetRequest <= maxOffset THEN offsetRequest END AS committed
    FROM moved
    UNION ALL
    SELECT
      NULL, h.brokerName, NULL, NULL, h.consumerGroup, h.topic, h.queueId, NULL, NULL, NULL, NULL, NULL, NULL, h.micros, h.consumerOffset
    FROM offset_history h
    JOIN queue q ON q.brokerName = h.brokerName AND q.topic = h.topic AND q.queueId = h.queueId AND h.consumerOffset <= q.maxOffset
    WHERE h.origin <> 'UPDATE_CONSUMER_OFFSET' OR h.code IS NULL OR h.code = 0
  )
), started AS (
  SELECT
    m.*,
    greatest(m.offsetRequest, 0L) AS gapFrom,
    m.offsetRequest <= 0 AND coalesce(m.passedTo, 0L) <= 0 AND NOT coalesce(s.micros <= m.arrivalMicros, false) AS isFirstStart
  FROM timed m
  LEFT JOIN stated s
    ON s.brokerName = m.brokerName AND s.consumerGroup = m.consumerGroup AND s.topic = m.topic AND s.queueId = m.queueId
  WHERE m.source IS NOT NULL
), later AS (
  -- messages that were gone at a first start are no loss later either
  SELECT
    *,
    max(CASE WHEN isFirstStart THEN offsetNew END) OVER (
      PARTITION BY source, brokerName, runId, consumerGroup, topic, queueId
      ORDER BY micros, NOT isFirstStart, requestId, gapFrom, offsetNew
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS startedTo
  FROM started
), gaps AS (
  SELECT *, greatest(gapFrom, coalesce(passedTo, gapFrom), coalesce(startedTo, gapFrom)) AS lossFrom FROM later
), covered AS (
  -- offsets that an earlier gap covers are counted there
  SELECT
    *,
    max(CASE WHEN NOT isFirstStart THEN offsetNew END) OVER (
      PARTITION BY source, brokerName, runId, consumerGroup, topic, queueId
      ORDER BY lossFrom, offsetNew DESC, arrivalMicros, requestId, offsetRequest, status, maxOffset
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS countedTo
  FROM gaps
)
SELECT
  source, brokerName, runId, requestId, consumerGroup, topic, queueId, arrivalMicros, status, offsetRequest, offsetNew, minOffset, maxOffset,
  greatest(coalesce(try_subtract(offsetNew, gapFrom), 9223372036854775807), 0L),
  CASE
    WHEN isFirstStart THEN 0L
    ELSE greatest(coalesce(try_subtract(offsetNew, greatest(lossFrom, coalesce(countedTo, lossFrom))), 9223372036854775807), 0L)
  END,
  isFirstStart,
  CASE
    WHEN offsetNew >= offsetRequest THEN 0L
    WHEN maxOffset IS NOT NULL THEN greatest(least(offsetRequest, maxOffset) - offsetNew, 0L)
  END
FROM covered
