-- How the pulls of the latest finished run of each broker were answered, by group, topic and status.
CREATE OR REPLACE TEMPORARY VIEW pull_status_summary (
  brokerName COMMENT 'broker that was asked',
  runId COMMENT 'its latest finished run',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic that it pulled from',
  status COMMENT 'GetMessageStatus, else the class of the exception, else why there is no answer, else null where the store answers null',
  pulls COMMENT 'requests answered so',
  messages COMMENT 'messages given',
  bytes COMMENT 'their bytes',
  fromDisk COMMENT 'pulls whose last entry read lies on disk',
  diskFallBehindMax COMMENT 'the most bytes between the last entry read and the end of the log'
)
COMMENT 'How the pulls of the latest finished run of each broker were answered.'
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
