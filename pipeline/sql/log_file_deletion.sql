-- When the broker deletes each file of its commit log, by the age of the files alone. Broker source:
-- DefaultMessageStore.CleanCommitLogService (deleteExpiredFiles, isTimeToDelete), MappedFileQueue.deleteExpiredFileByTime. udfs/cleaning
-- has the rule with disk usage and time zone.
CREATE OR REPLACE TEMPORARY VIEW log_file_deletion (
  brokerName COMMENT 'broker that the row is about',
  fromOffset COMMENT 'offset in the commit log of the file''s first byte, which is also the file''s name',
  length COMMENT 'length of the file in bytes',
  modified COMMENT 'time of the last write to the file, ms since 1970; the file ages from this time. It is mtimeMs of store_file, with three exceptions. If mtimeMs is more than a day after the first message of a later file, a copy changed it: it is the storeTimestamp of that message. If the file has no mtimeMs: it is asOf. For the last file: it is when the file will be full, NULL if the log does not grow',
  growth COMMENT 'bytes per second by which the log grew in its last day',
  growthMillis COMMENT 'length of the time over which growth was measured, ms; more than a day if the last day has no segment of the log',
  deletedAt COMMENT 'when the broker deletes the file, ms since 1970: the file was not written to for fileReservedTime (72 hours by default), all older files are deleted, and it is an hour of deleteWhen (04 by default) in UTC. NULL for the last file of a log that does not grow, if deleteWhen names no hour, if fileReservedTime is no number, and if no BIGINT holds the time',
  fileReservedTime COMMENT 'hours that the broker keeps a file after its last write, from the imported settings; NULL if the setting is no number',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms: the forecast begins here'
)
COMMENT 'When the broker deletes each file of its commit log, by age; pullsim retention also knows disk usage and time zone.'
AS
WITH part AS (
  -- a damaged record or a setting may have any number: a sum that no BIGINT holds is NULL
  SELECT
    s.brokerName, s.firstPhysicOffset AS first, s.minStoreTimestamp AS since,
    s.minStoreTimestamp >= try_subtract(b.maxStoreTimestamp, 86400000L) AS isRecent
  FROM commit_log_segment s JOIN broker b ON b.brokerName = s.brokerName
  WHERE s.minStoreTimestamp > 0
), begin AS (
  SELECT
    brokerName,
    coalesce(min(first) FILTER (WHERE isRecent), min(first)) AS first,
    coalesce(min(since) FILTER (WHERE isRecent), min(since)) AS since
  FROM part
  GROUP BY brokerName
), setting AS (
  SELECT
    b.brokerName, b.maxPhyOffset, b.maxStoreTimestamp AS asOf,
    greatest(coalesce(try_divide((b.maxPhyOffset - g.first) * 1000D, try_subtract(b.maxStoreTimestamp, g.since)), 0D), 0D) AS growth,
    try_subtract(b.maxStoreTimestamp, g.since) AS growthMillis,
    CASE
      WHEN b.properties['fileReservedTime'] IS NULL THEN 72L
      ELSE try_cast(b.properties['fileReservedTime'] AS BIGINT)
    END AS fileReservedTime,
    coalesce(b.properties['deleteWhen'], '04') AS deleteWhen,
    coalesce(try_cast(b.properties['cleanResourceInterval'] AS BIGINT), 10000L) AS cleanResourceInterval
  FROM broker b
  LEFT JOIN begin g ON g.brokerName = b.brokerName
), first_message AS (
  SELECT s.brokerName, s.firstPhysicOffset - s.firstPhysicOffset % b.mappedFileSizeCommitLog AS fromOffset, min(s.minStoreTimestamp) AS since
  FROM commit_log_segment s JOIN broker b ON b.brokerName = s.brokerName
  WHERE s.minStoreTimestamp > 0 AND b.mappedFileSizeCommitLog > 0
  GROUP BY s.brokerName, s.firstPhysicOffset - s.firstPhysicOffset % b.mappedFileSizeCommitLog
), known AS (
  SELECT
    f.brokerName, f.fromOffset, f.length, f.mtimeMs, s.growth, s.growthMillis, s.asOf, s.fileReservedTime, s.cleanResourceInterval, s.maxPhyOffset,
    f.fromOffset < max(f.fromOffset) OVER (PARTITION BY f.brokerName) AS isBefore,
    coalesce(
      min(m.since) OVER (PARTITION BY f.brokerName ORDER BY f.fromOffset ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), s.asOf
    ) AS lastStoreTimestamp
  FROM store_file f
  JOIN setting s ON s.brokerName = f.brokerName
  LEFT JOIN first_message m ON m.brokerName = f.brokerName AND m.fromOffset = f.fromOffset
  WHERE f.kind = 'commitlog'
), file AS (
  SELECT
    *,
    CASE
      WHEN isBefore AND mtimeMs > try_add(lastStoreTimestamp, 86400000L) THEN lastStoreTimestamp
      WHEN isBefore THEN CASE WHEN mtimeMs > 0 THEN mtimeMs ELSE asOf END
      -- the broker never deletes the last file; the file is full, and another one follows, when the log has grown by the file's free bytes
      WHEN growth > 0 THEN try_add(asOf, try_cast(greatest(try_divide((fromOffset + length - maxPhyOffset) * 1000, growth), 0D) AS BIGINT))
    END AS modified
  FROM known
), kept AS (
  -- deletion goes from the oldest file on, so a file that is not yet due also keeps the files after it
  SELECT *, CASE WHEN modified IS NOT NULL THEN max(modified) OVER (PARTITION BY brokerName ORDER BY fromOffset) END AS agesFrom FROM file
), aged AS (
  SELECT *, try_add(agesFrom, try_multiply(fileReservedTime, 3600000L)) AS agedAt FROM kept
), expired AS (
  -- greatest ignores NULL
  SELECT *, CASE WHEN agedAt IS NOT NULL THEN greatest(agedAt, asOf) END AS expiresAt FROM aged
), hour AS (
  -- the broker stops at a part that is no number; the hours before it count
  SELECT brokerName, CAST(hour AS INT) AS hour
  FROM setting
  LATERAL VIEW explode(split(regexp_extract(deleteWhen, '^([+-]?0*[0-9]{1,9}(;|$))*', 0), ';')) parts AS hour
  WHERE hour <> ''
), in_hour AS (
  SELECT
    e.brokerName, e.fromOffset,
    min(CASE
      WHEN CAST(floor(e.expiresAt / 3600000) AS BIGINT) % 24 = h.hour THEN e.expiresAt
      ELSE try_multiply(
        CAST(floor(e.expiresAt / 3600000) AS BIGINT) + (h.hour - CAST(floor(e.expiresAt / 3600000) AS BIGINT) % 24 + 24) % 24, 3600000L)
    END) AS time
  FROM expired e JOIN hour h ON h.brokerName = e.brokerName
  WHERE h.hour BETWEEN 0 AND 23
  GROUP BY e.brokerName, e.fromOffset
), numbered AS (
  SELECT e.*, i.time AS passAt, row_number() OVER (PARTITION BY e.brokerName, i.time ORDER BY e.fromOffset) AS number
  FROM expired e
  LEFT JOIN in_hour i ON i.brokerName = e.brokerName AND i.fromOffset = e.fromOffset
)
SELECT
  brokerName, fromOffset, length, modified, growth, growthMillis,
  -- a pass deletes ten files at most
  try_add(passAt, try_multiply(cleanResourceInterval, CAST(floor((number - 1) / 10) AS BIGINT))),
  fileReservedTime, asOf
FROM numbered
