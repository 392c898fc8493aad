-- How the pulls of the latest finished run of each broker were answered, by group, topic and status.
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
