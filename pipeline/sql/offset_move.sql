-- How the offsets of groups moved while traffic was captured, and who moved them: a row each time an offset is another than before. What was committed
-- comes from UPDATE_CONSUMER_OFFSET and from pulls with the commit bit; a query that finds another offset than the last commit shows that somebody moved it unseen.
CREATE OR REPLACE TEMPORARY VIEW offset_move (
  brokerName COMMENT 'broker that keeps the offset',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  micros COMMENT 'when, microseconds since 1970',
  fromOffset COMMENT 'the offset before, as far as the capture has it; NULL for the first, and after a query that found none',
  toOffset COMMENT 'the offset from then on; a query that found none is no move, and has no row',
  moved COMMENT 'toOffset - fromOffset; NULL where fromOffset is',
  readAgain COMMENT 'messages from toOffset to fromOffset: the group passed them, and gets them again, but for those below the minOffset that captured answers had told until then: they were deleted. Where fromOffset lies past the end of the queue in the store, those to the greatest offset within the queue that was captured until then; 0 for a move forward, NULL where fromOffset or the queue is not known',
  how COMMENT 'FIRST: the first that was captured, or the first after a query that found none; FORWARD; BACK: messages are consumed again; SEEN: a query found it moved, the move itself was not captured',
  origin COMMENT 'UPDATE_CONSUMER_OFFSET, PULL_MESSAGE or QUERY_CONSUMER_OFFSET',
  address COMMENT 'address and port of the client that sent the request',
  clientId COMMENT 'id of this client; NULL where no heartbeat of it was captured',
  resetMicros COMMENT 'when the broker had told the client to commit this offset, microseconds since 1970: an administrator reset the group, such as with mqadmin resetOffsetByTime, and the client only carries it out; NULL for other moves',
  correctionMicros COMMENT 'when the broker had answered a pull of the same client with PULL_OFFSET_MOVED and this offset, microseconds since 1970: the broker corrected the offset, and the client went there and committed it; NULL for other moves'
)
COMMENT 'How the offsets of groups moved while traffic was captured, and who moved them.'
AS
WITH history AS (
  SELECT *
  FROM (
    SELECT
      *,
      max(toldMinOffset) OVER (
        PARTITION BY brokerName, topic, queueId ORDER BY micros, origin IS NOT NULL ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS minOffset
    FROM (
      SELECT
        brokerName, consumerGroup, topic, queueId, micros, sequence, consumerOffset, origin, code, client, connection,
        CAST(NULL AS BIGINT) AS toldMinOffset
      FROM offset_history
      UNION ALL
      SELECT brokerName, NULL, topic, queueId, answerMicros, NULL, NULL, NULL, NULL, NULL, NULL, recordedMinOffset
      FROM pull_request
      WHERE recordedMinOffset IS NOT NULL
    )
  )
  WHERE origin IS NOT NULL
), told AS (
  -- one-way commits have no answer; a request that the broker refused moved nothing
  SELECT
    h.*, q.maxOffset,
    row_number() OVER queue AS place,
    lag(h.consumerOffset) OVER queue AS fromOffset,
    -- an offset past the end was set, not reached by consuming
    max(CASE WHEN h.consumerOffset <= q.maxOffset THEN h.consumerOffset END) OVER queue AS reached
  FROM history h
  LEFT JOIN queue q ON q.brokerName = h.brokerName AND q.topic = h.topic AND q.queueId = h.queueId
  WHERE h.origin <> 'UPDATE_CONSUMER_OFFSET' OR h.code IS NULL OR h.code = 0
  WINDOW queue AS (PARTITION BY h.brokerName, h.consumerGroup, h.topic, h.queueId ORDER BY h.micros, h.sequence)
), carried AS (
  -- the client commits what the broker told it some ten seconds later; later on it may come there by itself
  SELECT t.brokerName, t.consumerGroup, t.topic, t.queueId, t.place, max(r.micros) AS micros
  FROM told t
  JOIN offset_reset r
    ON r.brokerName = t.brokerName AND r.connection = t.connection AND r.consumerGroup = t.consumerGroup AND r.topic = t.topic
    AND r.queueId = t.queueId AND r.consumerOffset = t.consumerOffset AND t.micros BETWEEN r.micros AND try_add(r.micros, 60000000L)
  WHERE t.origin = 'UPDATE_CONSUMER_OFFSET'
  GROUP BY t.brokerName, t.consumerGroup, t.topic, t.queueId, t.place
), corrected AS (
  -- a client that is sent to another offset commits it some ten seconds later, too
  SELECT t.brokerName, t.consumerGroup, t.topic, t.queueId, t.place, max(p.answerMicros) AS micros
  FROM told t
  JOIN pull_request p
    ON p.brokerName = t.brokerName AND p.consumerGroup = t.consumerGroup AND p.topic = t.topic AND p.queueId = t.queueId
    AND p.connection = t.connection AND p.recordedNextBeginOffset = t.consumerOffset AND t.micros BETWEEN p.answerMicros AND try_add(p.answerMicros, 60000000L)
  WHERE t.origin <> 'QUERY_CONSUMER_OFFSET' AND p.recordedCode = 21
  GROUP BY t.brokerName, t.consumerGroup, t.topic, t.queueId, t.place
), named AS (
  SELECT brokerName, connection, max(clientId) AS clientId FROM subscription WHERE clientId IS NOT NULL GROUP BY brokerName, connection
)
SELECT
  t.brokerName, t.consumerGroup, t.topic, t.queueId, t.micros, t.fromOffset, t.consumerOffset,
  try_subtract(t.consumerOffset, t.fromOffset),
  CASE
    WHEN t.consumerOffset >= t.fromOffset THEN 0L
    WHEN t.fromOffset IS NOT NULL AND t.maxOffset IS NOT NULL THEN greatest(least(t.fromOffset, coalesce(t.reached, 0L)) - greatest(t.consumerOffset, coalesce(t.minOffset, 0L), 0L), 0L)
  END,
  CASE
    WHEN t.place = 1 OR t.fromOffset IS NULL THEN 'FIRST'
    WHEN t.origin = 'QUERY_CONSUMER_OFFSET' THEN 'SEEN'
    WHEN t.consumerOffset > t.fromOffset THEN 'FORWARD'
    ELSE 'BACK'
  END,
  t.origin, t.client, n.clientId, r.micros, c.micros
FROM told t
LEFT JOIN carried r
  ON r.brokerName = t.brokerName AND r.consumerGroup = t.consumerGroup AND r.topic = t.topic AND r.queueId = t.queueId AND r.place = t.place
LEFT JOIN corrected c
  ON c.brokerName = t.brokerName AND c.consumerGroup = t.consumerGroup AND c.topic = t.topic AND c.queueId = t.queueId AND c.place = t.place
LEFT JOIN named n ON n.brokerName = t.brokerName AND n.connection = t.connection
WHERE t.consumerOffset IS NOT NULL AND (t.fromOffset IS NULL OR t.consumerOffset <> t.fromOffset)
