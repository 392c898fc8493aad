-- Messages as people look for them, a row a record of the commit log: by key, unique key, id, tag, property, time, and the text of the body. What
-- the store has no index for is found by reading all of it; topic, queueId, queueOffset and storeTimestamp prune files. Broker source:
-- MessageDecoder.decode, MessageConst for the names of properties.
CREATE OR REPLACE TEMPORARY VIEW message (
  brokerName COMMENT 'broker whose store it is',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  queueOffset COMMENT 'offset in its queue; 0 for prepared and rolled back transaction messages',
  physicOffset COMMENT 'where the record starts in the commit log',
  storeSize COMMENT 'length of the record in bytes',
  msgId COMMENT 'offset message id: what queryMsgById asks for',
  uniqKey COMMENT 'property UNIQ_KEY, the id that the client gave: what queryMsgByUniqueKey asks for',
  tags COMMENT 'property TAGS',
  keys COMMENT 'property KEYS: keys with spaces between them',
  keyList COMMENT 'the same as an array: WHERE array_contains(keyList, ''main2-335'') finds what queryMsgByKey finds, without its limits of number and time',
  storeTimestamp COMMENT 'ms, clock of the broker when it appended the record',
  storeTime COMMENT 'the same as a TIMESTAMP; NULL where it lies after the year 9999',
  bornTimestamp COMMENT 'ms, clock of the client',
  bornHost COMMENT 'address and port of the client',
  storeHost COMMENT 'address and port of the broker',
  reconsumeTimes COMMENT 'how often a consumer sent it back',
  delayTimeLevel COMMENT 'property DELAY: level of delay that it was sent with; NULL without',
  realTopic COMMENT 'property REAL_TOPIC: of a delayed or prepared message the topic that it goes to; NULL for all others',
  originTopic COMMENT 'property RETRY_TOPIC: of a message sent back the topic that it came from; NULL for all others',
  originMsgId COMMENT 'property ORIGIN_MESSAGE_ID: of one sent back the id of the first',
  transaction COMMENT 'PREPARED, COMMIT or ROLLBACK; NULL outside of transactions',
  flag COMMENT 'the producer''s flag',
  sysFlag COMMENT '1 compressed, 4/8/12 transaction prepared/commit/rollback, 16 and 32 IPv6 hosts',
  bodySize COMMENT 'bytes of the body as stored',
  bodyText COMMENT 'the body as UTF-8 text: WHERE contains(bodyText, ''...''); NULL where bodyReason says why',
  bodyReason COMMENT 'why bodyText is NULL:
COMPRESSED: the client compressed the body (zlib, LZ4 or zstd): CAST(uncompress_body(body, sysFlag) AS STRING) is its text, in Python.
NOT_UTF8: the body is no text in UTF-8.',
  body COMMENT 'the body as stored',
  properties COMMENT 'the properties as the broker decodes them: WHERE properties[''region''] = ''eu'''
)
COMMENT 'Messages as people look for them, a row a record of the commit log.'
AS
SELECT
  brokerName, topic, queueId, queueOffset, physicOffset, storeSize, msgId,
  properties['UNIQ_KEY'],
  tags, keys,
  filter(split(keys, ' '), key -> key <> ''),
  storeTimestamp,
  CASE WHEN storeTimestamp <= 253402300799999 THEN timestamp_millis(storeTimestamp) END,
  bornTimestamp,
  concat(bornHost, ':', bornPort),
  concat(storeHost, ':', storePort),
  reconsumeTimes,
  try_cast(properties['DELAY'] AS INT),
  properties['REAL_TOPIC'],
  properties['RETRY_TOPIC'],
  properties['ORIGIN_MESSAGE_ID'],
  CASE sysFlag & 12 WHEN 4 THEN 'PREPARED' WHEN 8 THEN 'COMMIT' WHEN 12 THEN 'ROLLBACK' END,
  flag, sysFlag,
  octet_length(body),
  CASE WHEN sysFlag & 1 = 0 THEN try_validate_utf8(CAST(body AS STRING)) END,
  CASE WHEN sysFlag & 1 = 1 THEN 'COMPRESSED' WHEN NOT is_valid_utf8(CAST(body AS STRING)) THEN 'NOT_UTF8' END,
  body, properties
FROM commit_log
