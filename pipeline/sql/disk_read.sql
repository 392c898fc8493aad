-- How far pulls read from disk, a row a queue and group. Broker source: DefaultMessageStore.getMessage, checkInDiskByCommitOffset, isTheBatchFull: a
-- message counts as on disk where it lies further before the end of the log than accessMessageInMemoryMaxRatio percent of the memory, and a pull that
-- comes to one gives maxTransferCountOnMessageInDisk (8) messages at most: a group that is behind gets slower.
CREATE OR REPLACE TEMPORARY VIEW disk_read (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what the latest run answered',
  brokerName COMMENT 'broker that was asked',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  found COMMENT 'pulls that found messages',
  fromDisk COMMENT 'of them those whose last entry read lies on disk; NULL where that is known of none of them',
  fromDiskUnknown COMMENT 'of them those of which it is not known: on the wire it shows only where slaveReadEnable is set. Replay the capture to know',
  messagesFromDisk COMMENT 'messages given by a pull from disk, on the average; NULL where there was none, or numbers are not known',
  messagesFromMemory COMMENT 'messages given by a pull from memory, likewise',
  diskFallBehindMax COMMENT 'the most bytes between the last entry read and the end of the log; NULL where not known',
  reason COMMENT 'why fromDisk is NULL: NOT_ON_THE_WIRE'
)
COMMENT 'How far pulls read from disk, a row a queue and group.'
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
