-- How the pulls of the latest finished run of each broker were answered, by group, topic and status.
CREATE OR REPLACE TEMPORARY VIEW pull_status_summary (
  brokerName COMMENT 'broker that got the pull',
  runId COMMENT 'id of the broker''s latest finished run',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  status COMMENT 'GetMessageStatus; if the store gave none, the class of the exception, or why there is no answer; null if the store answers null',
  pulls COMMENT 'pulls that were answered with this status',
  messages COMMENT 'messages in the answers to these pulls',
  bytes COMMENT 'bytes of the messages in the answers to these pulls',
  fromDisk COMMENT 'pulls with this status whose last entry read lies on disk',
  diskFallBehindMax COMMENT 'greatest number of bytes from the last entry read to the end of the commit log; NULL if unknown'
)
COMMENT 'How the pulls of each broker''s latest finished run were answered; one row per group, topic and status.'
AS
SELECT
  r.brokerName, r.runId, r.consumerGroup, r.topic,
  coalesce(r.status, r.exception, r.error, 'null') AS status,
  count(*) AS pulls,
  sum(r.messageCount) AS messages,
  sum(r.bufferTotalSize) AS bytes,
  count_if(r.suggestPullingFromSlave) AS fromDisk,
  max(r.diskFallBehind) AS diskFallBehindMax
FROM pull_response r
JOIN (SELECT brokerName, max_by(runId, finishedAt) AS runId FROM replay_run GROUP BY brokerName) latest USING (brokerName, runId)
GROUP BY ALL
