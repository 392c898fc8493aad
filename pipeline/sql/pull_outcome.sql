-- How each pull ended, captured and replayed ones with the same columns; the other views of pulls read this one. Of replays, only the
-- latest finished run of each broker counts. A captured pull that was replayed has two rows, which differ in source. Broker source:
-- PullMessageProcessor.processRequest, which puts the GetMessageStatus into the remark of its answer.
CREATE OR REPLACE TEMPORARY VIEW pull_outcome (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what the latest finished replay run of the broker answered',
  brokerName COMMENT 'broker that got the pull',
  runId COMMENT 'id of the run that replayed the pull; NULL for CAPTURED',
  requestId COMMENT 'id of the request, as in pull_request and pull_response',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  arrivalMicros COMMENT 'when the request was captured, microseconds since 1970; NULL for pulls that were replayed from a file',
  queueOffset COMMENT 'offset from which the pull asked for messages',
  maxMsgNums COMMENT 'number of messages that the pull asked for at most',
  outcome COMMENT 'GetMessageStatus, if the store was asked. Else the name of the response code, the class of the exception, or why there is no answer. CODE_n if the code has no name, or if an answer of the store has no remark; NO_ANSWER if the capture has no answer; null if the store answers null',
  code COMMENT 'response code of the answer; NULL if there is none',
  nextBeginOffset COMMENT 'offset from which the client should pull next, in the answer',
  minOffset COMMENT 'begin of the queue (min offset) in the answer to the pull',
  maxOffset COMMENT 'end of the queue (max offset) in the answer to the pull',
  messageCount COMMENT 'messages in the answer; NULL for CAPTURED if it had any, because the capture keeps their bytes and not their number',
  bodyBytes COMMENT 'bytes of the messages in the answer',
  fromDisk COMMENT 'whether the last entry read lies on disk. For CAPTURED: true if the answer sends the group to another broker than 0 (slaveReadEnable); else NULL, because the wire does not show it',
  diskFallBehind COMMENT 'bytes from the last entry read to the end of the commit log; NULL for CAPTURED',
  heldFromMicros COMMENT 'when a held pull (long polling) began to wait, microseconds since 1970; NULL if it was not held',
  heldMillis COMMENT 'how long a held pull waited, ms; NULL if it was not held or never answered',
  holdEnding COMMENT 'what ended the hold: ending of pull_hold; NULL if the pull was not held',
  client COMMENT 'address and port of the client; NULL for pulls that were replayed from a file',
  remark COMMENT 'remark of a captured answer, such as why the pull was refused; NULL if outcome says the same'
)
COMMENT 'How each pull ended, captured and replayed ones; one row per pull.'
AS
WITH captured AS (
  SELECT
    *,
    CASE
      WHEN recordedCode IS NULL THEN 'NO_ANSWER'
      WHEN recordedCode IN (0, 19, 20, 21) THEN coalesce(recordedRemark, concat('CODE_', recordedCode))
      ELSE coalesce(
        element_at(
          map(
            1, 'SYSTEM_ERROR', 2, 'SYSTEM_BUSY', 3, 'REQUEST_CODE_NOT_SUPPORTED', 14, 'SERVICE_NOT_AVAILABLE', 16, 'NO_PERMISSION',
            17, 'TOPIC_NOT_EXIST', 23, 'SUBSCRIPTION_PARSE_FAILED', 24, 'SUBSCRIPTION_NOT_EXIST', 25, 'SUBSCRIPTION_NOT_LATEST',
            26, 'SUBSCRIPTION_GROUP_NOT_EXIST', 27, 'FILTER_DATA_NOT_EXIST', 28, 'FILTER_DATA_NOT_LATEST', 29, 'INVALID_PARAMETER'
          ),
          recordedCode
        ),
        concat('CODE_', recordedCode)
      )
    END AS outcome
  FROM pull_request
), latest AS (
  SELECT brokerName, max_by(runId, finishedAt) AS runId FROM replay_run GROUP BY brokerName
), pulls (
  source, brokerName, runId, requestId, consumerGroup, topic, queueId, arrivalMicros, queueOffset, maxMsgNums, outcome,
  code, nextBeginOffset, minOffset, maxOffset, messageCount, bodyBytes, fromDisk, diskFallBehind, heldFromMicros, heldMillis,
  client, remark
) AS (
  SELECT
    'CAPTURED', brokerName, CAST(NULL AS STRING), requestId, consumerGroup, topic, queueId, arrivalMicros, queueOffset, maxMsgNums, outcome,
    recordedCode, recordedNextBeginOffset, recordedMinOffset, recordedMaxOffset,
    CASE WHEN recordedBodyLength = 0 THEN 0 END,
    CAST(recordedBodyLength AS BIGINT),
    CASE WHEN outcome = 'FOUND' AND recordedSuggestWhichBrokerId <> 0 THEN true END,
    CAST(NULL AS BIGINT),
    CASE WHEN held THEN arrivalMicros END,
    CASE WHEN held THEN CAST((answerMicros - arrivalMicros) DIV 1000 AS BIGINT) END,
    client, nullif(recordedRemark, outcome)
  FROM captured
  UNION ALL
  SELECT
    'REPLAYED', r.brokerName, r.runId, r.requestId, r.consumerGroup, r.topic, r.queueId, p.arrivalMicros, r.queueOffset, r.maxMsgNums,
    coalesce(r.status, r.exception, r.error, 'null'),
    r.code, r.nextBeginOffset, r.minOffset, r.maxOffset,
    r.messageCount, CAST(r.bufferTotalSize AS BIGINT), r.suggestPullingFromSlave, r.diskFallBehind,
    r.heldMillis * 1000, r.wokenMillis - r.heldMillis, p.client, CAST(NULL AS STRING)
  FROM pull_response r
  JOIN latest USING (brokerName, runId)
  LEFT JOIN pull_request p ON p.brokerName = r.brokerName AND p.requestId = r.requestId
)
SELECT
  source, brokerName, runId, requestId, consumerGroup, topic, queueId, arrivalMicros, queueOffset, maxMsgNums, outcome,
  code, nextBeginOffset, minOffset, maxOffset, messageCount, bodyBytes, fromDisk, diskFallBehind, heldFromMicros, heldMillis,
  CASE
    WHEN heldFromMicros IS NULL THEN NULL
    WHEN outcome = 'NO_ANSWER' THEN 'NO_ANSWER'
    WHEN code = 0 THEN 'MESSAGE'
    WHEN code IN (20, 21) THEN 'NOT_FOR_IT'
    WHEN code = 19 THEN 'TIMEOUT'
    ELSE 'REFUSED'
  END,
  client, remark
FROM pulls
