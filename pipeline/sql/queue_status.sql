-- Status of each queue of each group by Burrow's rules, over the last observations in lag_history. Source: linkedin/Burrow,
-- core/internal/evaluator/caching.go (evaluatePartitionStatus, calculatePartitionStatus and the checks below it). Where Burrow returns OK
-- because it knows too little, the status here is UNKNOWN.
CREATE OR REPLACE TEMPORARY FUNCTION queue_status(
  intervals INT DEFAULT 10 COMMENT 'number of observations in the window; Burrow: intervals',
  minimumComplete DOUBLE DEFAULT 1.0 COMMENT 'share of the observations in the window that must have an offset before a queue is judged, from 0 to 1; Burrow: minimum-complete, whose default is 0',
  allowedLag BIGINT DEFAULT 0 COMMENT 'greatest lag that counts as no lag, in messages; Burrow: allowed-lag'
)
RETURNS TABLE (
  brokerName STRING COMMENT 'broker that the row is about',
  consumerGroup STRING COMMENT 'name of the consumer group',
  topic STRING COMMENT 'topic, as the broker spells it',
  queueId INT COMMENT 'number of the queue in its topic',
  status STRING COMMENT 'status of the queue: OK, UNKNOWN, WARN, STOP, STALL or REWIND; why names the rule',
  why STRING COMMENT 'the rule that decided the status; the column why of view group_status explains each rule',
  lag BIGINT COMMENT 'consumer lag in messages at the last observation; 0 if the offset lies past the end of the queue; NULL if the group stored no offset',
  complete DOUBLE COMMENT 'share of the observations in the window that have an offset of the queue, from 0 to 1',
  committedAt BIGINT COMMENT 'time of the last observation that shows a commit of the group, ms since 1970; NULL if no observation has an offset',
  observedFrom BIGINT COMMENT 'time of the first observation in the window, ms since 1970',
  observedAt BIGINT COMMENT 'time of the broker''s last observation, ms since 1970: the rules take it as now',
  seenIn STRING COMMENT 'source of the observations:
LAG_HISTORY: pullsim lag --record.
CAPTURE: offsets in captured traffic, sampled every 5 s up to the end of the capture, for a broker with too few recorded observations.'
)
COMMENT 'Status of each queue of each group by the rules of Burrow.'
RETURN
WITH recorded AS (
  SELECT brokerName, count(DISTINCT observedAt) AS looks FROM lag_history GROUP BY brokerName
), wire AS (
  -- a capture's clock may give any time
  SELECT o.brokerName, o.consumerGroup, o.topic, o.queueId, o.consumerOffset, o.micros, o.sequence
  FROM offset_history o
  LEFT JOIN recorded r ON r.brokerName = o.brokerName
  WHERE o.micros BETWEEN 0 AND 253402300799999999
    -- a pull commits once it has passed the broker's checks, even if it finds nothing
    AND o.consumerOffset IS NOT NULL
    AND (coalesce(o.code, 0) = 0 OR o.origin = 'PULL_MESSAGE' AND o.code IN (19, 20, 21))
    AND coalesce(r.looks, 0) < queue_status.intervals
), captureEnd AS (
  SELECT brokerName, max(millis) AS millis
  FROM (
    SELECT brokerName, micros DIV 1000 AS millis FROM wire
    UNION ALL
    SELECT p.brokerName, p.arrivalMicros DIV 1000
    FROM pull_request p JOIN (SELECT DISTINCT brokerName FROM wire) b ON b.brokerName = p.brokerName
    WHERE p.arrivalMicros BETWEEN 0 AND 253402300799999999
  ) seen
  GROUP BY brokerName
), toldAt AS (
  -- look 0 is the last one; offsets from before the window go to look `intervals`
  SELECT
    w.brokerName, w.consumerGroup, w.topic, w.queueId,
    least((e.millis - w.micros DIV 1000) DIV 5000, CAST(queue_status.intervals AS BIGINT)) AS look,
    max_by(w.consumerOffset, struct(w.micros, w.sequence)) AS consumerOffset
  FROM wire w JOIN captureEnd e ON e.brokerName = w.brokerName
  GROUP BY ALL
), endAt AS (
  SELECT
    g.brokerName, g.topic, g.queueId,
    least((e.millis - g.millis) DIV 5000, CAST(queue_status.intervals AS BIGINT)) AS look,
    max(g.endOffset) AS endOffset, max(g.minOffset) AS minOffset
  FROM (
    SELECT brokerName, topic, queueId, storeTimestamp AS millis, queueOffset + 1 AS endOffset, NULL AS minOffset FROM consume_queue WHERE storeTimestamp > 0
    UNION ALL
    SELECT brokerName, topic, queueId, answerMicros DIV 1000, recordedMaxOffset, recordedMinOffset FROM pull_request WHERE recordedMaxOffset IS NOT NULL
  ) g
  JOIN captureEnd e ON e.brokerName = g.brokerName AND g.millis <= e.millis
  GROUP BY ALL
), grid AS (
  SELECT brokerName, consumerGroup, topic, queueId, look
  FROM (SELECT DISTINCT brokerName, consumerGroup, topic, queueId FROM wire) queues
  LATERAL VIEW explode(sequence(0L, CAST(queue_status.intervals AS BIGINT))) looks AS look
), filled AS (
  SELECT
    brokerName, consumerGroup, topic, queueId, look,
    last(t.consumerOffset) IGNORE NULLS OVER queue AS consumerOffset,
    max(n.endOffset) OVER queue AS brokerOffset,
    max(n.minOffset) OVER queue AS minOffset
  FROM grid
  LEFT JOIN toldAt t USING (brokerName, consumerGroup, topic, queueId, look)
  LEFT JOIN endAt n USING (brokerName, topic, queueId, look)
  WINDOW queue AS (PARTITION BY brokerName, consumerGroup, topic, queueId ORDER BY look DESC)
), looked AS (
  SELECT h.brokerName, h.consumerGroup, h.topic, h.queueId, h.observedAt, h.consumerOffset, h.brokerOffset, h.minOffset, h.lag, 'LAG_HISTORY' AS seenIn
  FROM lag_history h
  LEFT JOIN captureEnd e ON e.brokerName = h.brokerName
  WHERE e.millis IS NULL
  UNION ALL
  SELECT
    f.brokerName, f.consumerGroup, f.topic, f.queueId, e.millis - 5000 * f.look,
    CASE WHEN f.brokerOffset IS NOT NULL THEN f.consumerOffset END, f.brokerOffset, f.minOffset,
    try_subtract(f.brokerOffset, f.consumerOffset), 'CAPTURE'
  FROM filled f JOIN captureEnd e ON e.brokerName = f.brokerName
  WHERE f.look < queue_status.intervals
), observed AS (
  SELECT
    brokerName, consumerGroup, topic, queueId, observedAt, consumerOffset, brokerOffset, minOffset, seenIn,
    -- an offset past the end counts as lag 0, as in Burrow; a difference that no BIGINT holds counts as the greatest BIGINT
    CASE WHEN consumerOffset IS NOT NULL THEN greatest(coalesce(lag, 9223372036854775807), 0) END AS behind,
    row_number() OVER (PARTITION BY brokerName, consumerGroup, topic, queueId ORDER BY observedAt DESC) AS newness
  FROM looked
), compared AS (
  -- compared with the last known offset, because observations without an offset may lie between
  SELECT
    *,
    consumerOffset <> lag(consumerOffset) IGNORE NULLS OVER queue AS moved
  FROM observed
  WHERE newness <= queue_status.intervals
  WINDOW queue AS (PARTITION BY brokerName, consumerGroup, topic, queueId ORDER BY observedAt)
), told AS (
  -- clients commit all their queues together: if one queue of the topic has moved, the group has committed the others too
  SELECT *, coalesce(bool_or(moved) OVER (PARTITION BY brokerName, consumerGroup, topic, observedAt), false) AS committed
  FROM compared
), windows AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    max_by(consumerOffset, observedAt) AS consumerOffset,
    max_by(behind, observedAt) AS currentLag,
    max_by(brokerOffset, observedAt) AS currentEnd,
    max(seenIn) AS seenIn,
    count(consumerOffset) / queue_status.intervals AS complete,
    collect_list(brokerOffset) AS brokerOffsets,
    sort_array(collect_list(
      CASE WHEN consumerOffset IS NOT NULL THEN struct(observedAt AS at, consumerOffset AS offset, minOffset, behind, committed) END
    )) AS offsets,
    min(observedAt) AS observedFrom,
    max(observedAt) AS observedAt
  FROM told
  GROUP BY brokerName, consumerGroup, topic, queueId
), present AS (
  -- a queue is gone if the last observation of its broker does not have it
  SELECT w.*, filter(w.offsets, (one, i) -> i = 0 OR one.committed) AS commits
  FROM windows w
  JOIN (SELECT brokerName, max(observedAt) AS observedAt FROM looked GROUP BY brokerName) last
    ON last.brokerName = w.brokerName AND last.observedAt = w.observedAt
), measured AS (
  SELECT
    *,
    get(commits, 0).at AS firstCommit,
    get(commits, size(commits) - 1).at AS lastCommit,
    -- places of commits that differ from the commit before them
    filter(sequence(0, size(commits)), i -> get(commits, i).offset < get(commits, i - 1).offset) AS rewinds,
    filter(sequence(0, size(commits)), i -> get(commits, i).offset <> get(commits, i - 1).offset) AS moves,
    filter(sequence(0, size(commits)), i -> get(commits, i).behind < get(commits, i - 1).behind) AS decreases,
    -- decreases by more than the messages before minOffset, which were deleted and which the group did not consume
    filter(
      sequence(0, size(commits)),
      i -> get(commits, i).behind
        < get(commits, i - 1).behind - greatest(coalesce(get(commits, i).minOffset, 0L) - greatest(get(commits, i - 1).offset, 0L), 0L)
    ) AS gains
  FROM present
), judged AS (
  SELECT
    *,
    CASE
      WHEN currentLag IS NULL THEN 'NO_OFFSET'
      -- nothing can wait in a queue that never had a message, however few observations there are
      WHEN complete < queue_status.minimumComplete AND (currentEnd > 0 OR currentLag > 0) THEN 'INCOMPLETE_WINDOW'
      WHEN currentLag <= queue_status.allowedLag THEN 'NO_LAG'
      -- checkIfOffsetsStopped, checkIfRecentLagZero
      WHEN observedAt - lastCommit > lastCommit - firstCommit AND NOT exists(brokerOffsets, one -> one <= consumerOffset) THEN 'NO_COMMITS'
      -- checkIfOffsetsRewind, checkIfRewindRecovered
      WHEN size(rewinds) > 0
        AND NOT exists(slice(commits, get(rewinds, 0) + 1, size(commits)), one -> one.offset >= get(commits, get(rewinds, 0) - 1).offset)
        THEN 'OFFSET_WENT_BACK'
      -- isLagAlwaysNotZero
      WHEN exists(commits, one -> one.behind <= queue_status.allowedLag) THEN 'HAD_NO_LAG'
      -- checkIfOffsetsStalled
      WHEN size(moves) = 0 THEN 'OFFSET_STANDS'
      -- checkIfLagNotDecreasing
      WHEN size(decreases) = 0 THEN 'LAG_NOT_DECREASING'
      -- not one of Burrow's rules: Kafka's offsets do not show deletions
      WHEN size(gains) = 0 THEN 'MESSAGES_DELETED'
      ELSE 'LAG_DECREASED'
    END AS why
  FROM measured
)
SELECT
  brokerName, consumerGroup, topic, queueId,
  CASE
    WHEN why = 'NO_COMMITS' THEN 'STOP'
    WHEN why = 'OFFSET_WENT_BACK' THEN 'REWIND'
    WHEN why = 'OFFSET_STANDS' THEN 'STALL'
    WHEN why IN ('LAG_NOT_DECREASING', 'MESSAGES_DELETED') THEN 'WARN'
    WHEN why = 'INCOMPLETE_WINDOW' OR why = 'NO_OFFSET' AND currentEnd > 0 THEN 'UNKNOWN'
    ELSE 'OK'
  END,
  why, currentLag, complete, lastCommit, observedFrom, observedAt, seenIn
FROM judged
