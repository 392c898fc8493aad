-- How many pulls read from disk, one row per queue and group. Broker source: DefaultMessageStore.getMessage, checkInDiskByCommitOffset,
-- isTheBatchFull. A message counts as on disk if its distance from the end of the log exceeds accessMessageInMemoryMaxRatio percent of the
-- memory. A pull that reaches such a message gets at most maxTransferCountOnMessageInDisk (8) messages, so a group with a large lag
-- consumes more slowly.
CREATE OR REPLACE TEMPORARY VIEW disk_read (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what the latest finished replay run of the broker answered',
  brokerName COMMENT 'broker that got the pull',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  found COMMENT 'pulls that found messages',
  fromDisk COMMENT 'pulls that found messages and whose last entry read lies on disk; NULL if this is unknown for all pulls',
  fromDiskUnknown COMMENT 'pulls that found messages, but whether they read from disk is unknown: an answer on the wire shows it only if slaveReadEnable is set. Replay the capture to know',
  messagesFromDisk COMMENT 'average number of messages per pull from disk; NULL if there was no such pull, or if the numbers are unknown',
  messagesFromMemory COMMENT 'average number of messages per pull from memory; NULL if there was no such pull, or if the numbers are unknown',
  diskFallBehindMax COMMENT 'greatest number of bytes from the last entry read to the end of the commit log; NULL if unknown',
  reason COMMENT 'why fromDisk is NULL: NOT_ON_THE_WIRE: no captured answer shows whether the pull read from disk'
)
COMMENT 'How many pulls read messages from disk; one row per queue and group.'
AS
SELECT
  source, brokerName, consumerGroup, topic, queueId,
  count(*),
  CASE WHEN count(fromDisk) > 0 THEN count_if(fromDisk) END,
  count_if(fromDisk IS NULL),
  avg(messageCount) FILTER (WHERE fromDisk),
  avg(messageCount) FILTER (WHERE NOT fromDisk),
  max(diskFallBehind),
  CASE WHEN count(fromDisk) = 0 THEN 'NOT_ON_THE_WIRE' END
FROM pull_outcome
WHERE outcome = 'FOUND'
GROUP BY source, brokerName, consumerGroup, topic, queueId
