-- What moved an offset on the broker's side: each pull that was sent to another offset than it asked for, and what that cost. Broker source:
-- DefaultMessageStore.getMessage (nextOffsetCorrection), PullMessageProcessor.generateOffsetMovedEvent. A pull whose filter let nothing pass is told a
-- later offset too (NO_MATCHED_MESSAGE); that is no correction.
CREATE OR REPLACE TEMPORARY VIEW offset_correction (
  source COMMENT 'CAPTURED, REPLAYED, or SCENARIO for an OFFSET_MOVED event of an answered scenario',
  brokerName COMMENT 'broker that was asked',
  runId COMMENT 'the run that answered; NULL for CAPTURED',
  requestId COMMENT 'that of pull_request and pull_response; NULL for SCENARIO',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  arrivalMicros COMMENT 'when the request came, microseconds since 1970; NULL where that is not known',
  status COMMENT 'why, a GetMessageStatus; NULL for SCENARIO:
OFFSET_TOO_SMALL: the offset lies below the first message that is left.
OFFSET_OVERFLOW_BADLY: the offset lies past the end: on to the end, or back to 0 where the queue begins at 0.
NO_MESSAGE_IN_QUEUE: the queue is empty, back to 0.
OFFSET_FOUND_NULL: a file of the queue is missing, on to the next one.
MESSAGE_WAS_REMOVING: the queue has entries whose messages are gone, on past them.',
  offsetRequest COMMENT 'offset asked for',
  offsetNew COMMENT 'offset given',
  minOffset COMMENT 'of the queue, as the answer has it',
  maxOffset COMMENT 'of the queue, as the answer has it',
  skipped COMMENT 'offsets from offsetRequest, or 0 where that is less, to offsetNew - 1: messages that the group never gets, or that never were',
  lostOffsets COMMENT 'of skipped the offsets that no other row of the source, run, group and queue counts, so that a sum counts each offset once, and that the group had not passed before, as far as captured commits, queries and corrected pulls show; 0 for a first start, and for what was gone then',
  isFirstStart COMMENT 'whether a group without an offset began: it asked for offset 0 or less, no captured commit or query before had such an offset, and no commit, query or corrected pull a greater one. The messages below minOffset were gone before, they are no loss of the group',
  readAgain COMMENT 'messages from offsetNew to the lesser of offsetRequest and maxOffset: the group gets them again where it had them; NULL where maxOffset is not known'
)
COMMENT 'Each pull that was sent to another offset than it asked for.'
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
  -- each with the greatest offset within the queue that the group was known to have before: it has passed what lies below
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
      -- a pull from within the queue has passed what lies below, as a commit has
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
  -- what was gone at a first start is no loss later either
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
  -- what the gaps that begin earlier cover is counted there
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
