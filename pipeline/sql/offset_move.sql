-- How the offsets of groups moved in captured traffic, and who moved them: one row per change of an offset. Commits come from
-- UPDATE_CONSUMER_OFFSET and from pulls with the commit bit. A query that finds another offset than the last commit shows a move that was
-- not captured.
CREATE OR REPLACE TEMPORARY VIEW offset_move (
  brokerName COMMENT 'broker that keeps the offset',
  consumerGroup COMMENT 'name of the consumer group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  micros COMMENT 'when the move was captured, microseconds since 1970',
  fromOffset COMMENT 'offset before the move, as far as the capture shows it; NULL for the first captured offset, and after a query that found no offset',
  toOffset COMMENT 'offset after the move. A query that found no offset is no move and has no row',
  moved COMMENT 'toOffset - fromOffset; NULL if fromOffset is NULL',
  readAgain COMMENT 'messages from toOffset to fromOffset: the group passed them and gets them again. Left out are messages below the greatest minOffset in the answers captured so far, because they were deleted. If fromOffset lies past the end of the queue in the store, the messages count only up to the greatest offset within the queue that was captured so far. 0 for a move forward; NULL if fromOffset or the queue is unknown',
  how COMMENT 'FIRST: the first captured offset, or the first one after a query that found none.
FORWARD: the offset grew.
BACK: the offset fell, so messages are consumed again.
SEEN: a query found that the offset had moved; the move itself was not captured.',
  origin COMMENT 'request that shows the move: UPDATE_CONSUMER_OFFSET, PULL_MESSAGE or QUERY_CONSUMER_OFFSET',
  address COMMENT 'address and port of the client that sent the request',
  clientId COMMENT 'id that this client gives itself; NULL if no heartbeat of the client was captured',
  resetMicros COMMENT 'when the broker had ordered the client to commit this offset, microseconds since 1970: an administrator reset the group, for example with mqadmin resetOffsetByTime, and the client only carried it out; NULL for other moves',
  correctionMicros COMMENT 'when the broker had answered a pull of this client with PULL_OFFSET_MOVED and this offset, microseconds since 1970: the broker corrected the offset, and the client committed it; NULL for other moves'
)
COMMENT 'How the offsets of groups moved in captured traffic, and who moved them; one row per change of an offset.'
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
  -- one-way commits have no answer (code NULL); a request that the broker refused moved nothing
  SELECT
    h.*, q.maxOffset,
    row_number() OVER queue AS place,
    lag(h.consumerOffset) OVER queue AS fromOffset,
    -- an offset past the end was set; consuming cannot reach it
    max(CASE WHEN h.consumerOffset <= q.maxOffset THEN h.consumerOffset END) OVER queue AS reached
  FROM history h
  LEFT JOIN queue q ON q.brokerName = h.brokerName AND q.topic = h.topic AND q.queueId = h.queueId
  WHERE h.origin <> 'UPDATE_CONSUMER_OFFSET' OR h.code IS NULL OR h.code = 0
  WINDOW queue AS (PARTITION BY h.brokerName, h.consumerGroup, h.topic, h.queueId ORDER BY h.micros, h.sequence)
), carried AS (
  -- the client commits the offset of a reset about 10 s later; after 60 s it may have reached the offset by itself
  SELECT t.brokerName, t.consumerGroup, t.topic, t.queueId, t.place, max(r.micros) AS micros
  FROM told t
  JOIN offset_reset r
    ON r.brokerName = t.brokerName AND r.connection = t.connection AND r.consumerGroup = t.consumerGroup AND r.topic = t.topic
    AND r.queueId = t.queueId AND r.consumerOffset = t.consumerOffset AND t.micros BETWEEN r.micros AND try_add(r.micros, 60000000L)
  WHERE t.origin = 'UPDATE_CONSUMER_OFFSET'
  GROUP BY t.brokerName, t.consumerGroup, t.topic, t.queueId, t.place
), corrected AS (
  -- a client that the broker sends to another offset commits it about 10 s later, too
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
