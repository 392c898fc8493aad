-- Messages as people search for them, one row per record of the commit log: by key, unique key, id, tag, property, time, or text of the
-- body. A search for which the store has no index reads all of the log; conditions on topic, queueId, queueOffset and storeTimestamp prune
-- files. Broker source: MessageDecoder.decode, MessageConst for the names of properties.
CREATE OR REPLACE TEMPORARY VIEW message (
  brokerName COMMENT 'broker that the row is about',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'number of the queue in its topic',
  queueOffset COMMENT 'offset of the message in its queue; 0 for prepared and rolled back transaction messages',
  physicOffset COMMENT 'position of the record''s first byte in the commit log',
  storeSize COMMENT 'length of the record in bytes',
  msgId COMMENT 'offset message id: the broker''s address and the record''s offset in the commit log; queryMsgById searches for it',
  uniqKey COMMENT 'property UNIQ_KEY: the id that the client gave the message; queryMsgByUniqueKey searches for it',
  tags COMMENT 'property TAGS of the message',
  keys COMMENT 'property KEYS: keys with spaces between them',
  keyList COMMENT 'property KEYS as an array: WHERE array_contains(keyList, ''main2-335'') finds what queryMsgByKey finds, without its limits of number and time',
  storeTimestamp COMMENT 'when the broker stored the message, ms since 1970 by the broker''s clock',
  storeTime COMMENT 'storeTimestamp as a TIMESTAMP; NULL if it lies after the year 9999',
  bornTimestamp COMMENT 'when the producer sent the message, ms since 1970 by the client''s clock',
  bornHost COMMENT 'address and port of the client that sent the message',
  storeHost COMMENT 'address and port of the broker that stored the message',
  reconsumeTimes COMMENT 'how often consumers sent the message back',
  delayTimeLevel COMMENT 'property DELAY: delay level with which the message was sent; NULL if it has none',
  realTopic COMMENT 'property REAL_TOPIC: topic that a delayed, timer or prepared message is for; NULL for other messages',
  originTopic COMMENT 'property RETRY_TOPIC: topic that a message came from before it was sent back; NULL for messages that were not sent back',
  originMsgId COMMENT 'property ORIGIN_MESSAGE_ID: id of the first message before it was sent back; NULL for messages that were not sent back',
  transaction COMMENT 'PREPARED, COMMIT or ROLLBACK; NULL if the message belongs to no transaction',
  flag COMMENT 'flag that the producer set',
  sysFlag COMMENT 'bits: 1 compressed (bits 8 to 10: 0 and 3 zlib, 1 LZ4, 2 zstd); 4, 8 and 12 transaction prepared, commit and rollback; 16 and 32 IPv6 addresses',
  bodySize COMMENT 'bytes of the body as stored',
  bodyText COMMENT 'the body as UTF-8 text: WHERE contains(bodyText, ''...''); NULL if bodyReason says why',
  bodyReason COMMENT 'why bodyText is NULL:
COMPRESSED: the client compressed the body (zlib, LZ4 or zstd). CAST(uncompress_body(body, sysFlag) AS STRING) gives its text; the function needs Python.
NOT_UTF8: the body is no text in UTF-8.',
  body COMMENT 'the body as stored',
  properties COMMENT 'the properties as the broker decodes them: WHERE properties[''region''] = ''eu'''
)
COMMENT 'Messages as people search for them; one row per record of the commit log.'
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
