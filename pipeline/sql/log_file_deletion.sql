-- When the broker deletes each file of its commit log, by the age of the files alone. Broker source: DefaultMessageStore.CleanCommitLogService
-- (deleteExpiredFiles, isTimeToDelete), MappedFileQueue.deleteExpiredFileByTime. udfs/cleaning has the rule with disk and time zone.
CREATE OR REPLACE TEMPORARY VIEW log_file_deletion (
  brokerName COMMENT 'broker whose store it is',
  fromOffset COMMENT 'physical offset of the first byte of the file, and its name',
  length COMMENT 'bytes of the file',
  modified COMMENT 'last write to the file, from which on it ages, ms; the first message of a later file where the file''s own time is more than a day later, for a copy did not keep it; of the last file, and of a file without a time, the last message of the broker or when the file is full',
  growth COMMENT 'bytes a second that came to the log in its last day',
  growthMillis COMMENT 'the time that growth is of, ms: longer where the last day has no segment of the log',
  deletedAt COMMENT 'when the broker deletes the file, ms; NULL for the last file of a log that does not grow, where deleteWhen names no hour, and where no BIGINT holds the time. The file was not written to for fileReservedTime (72 hours by default), all older files are deleted, and it is an hour of deleteWhen (04 by default) in UTC',
  fileReservedTime COMMENT 'hours that the broker keeps a file after its last write, by the settings of the import; NULL where the setting is no number',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms: the forecast begins here'
)
COMMENT 'When the broker deletes each file of its commit log, by age; pullsim retention knows disk and time zone too.'
AS
WITH part AS (
  -- a damaged record, or a setting, may have any number: sums that no BIGINT holds are NULL
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
      -- the last file is never deleted; it is full, and another one follows, when the log has grown by the room that is left
      WHEN growth > 0 THEN try_add(asOf, try_cast(greatest(try_divide((fromOffset + length - maxPhyOffset) * 1000, growth), 0D) AS BIGINT))
    END AS modified
  FROM known
), kept AS (
  -- from the oldest file on: a younger file keeps older files that follow it
  SELECT *, CASE WHEN modified IS NOT NULL THEN max(modified) OVER (PARTITION BY brokerName ORDER BY fromOffset) END AS agesFrom FROM file
), aged AS (
  SELECT *, try_add(agesFrom, try_multiply(fileReservedTime, 3600000L)) AS agedAt FROM kept
), expired AS (
  -- greatest leaves NULL out
  SELECT *, CASE WHEN agedAt IS NOT NULL THEN greatest(agedAt, asOf) END AS expiresAt FROM aged
), hour AS (
  -- a part that is no number makes the broker stop there: the hours before it count
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
