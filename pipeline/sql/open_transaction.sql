-- Transactions that were neither committed nor rolled back, one row per half message: those about which the broker still asks the producer,
-- and those that it gave up. Broker source: TransactionalMessageServiceImpl.check. A half message is pending if it lies at or after the
-- committed offset of CID_RMQ_SYS_TRANS and no op message names its queue offset. 4.9.3 writes an op message for each half message; 5.5.0
-- writes one for many, whose body lists their offsets.
CREATE OR REPLACE TEMPORARY VIEW open_transaction (
  brokerName COMMENT 'broker that the row is about',
  state COMMENT 'PENDING: the broker asks the producer in its next check after transactionTimeOut is over.
DISCARDED: the broker gave up and moved the message to TRANS_CHECK_MAX_TIME_TOPIC.',
  topic COMMENT 'property REAL_TOPIC: topic that the message is for',
  queueId COMMENT 'property REAL_QID: number of the queue that the message is for',
  producerGroup COMMENT 'property PGROUP: group of producers that the broker asks about the transaction',
  uniqKey COMMENT 'property UNIQ_KEY: the id that the client gave the message; often the transaction id',
  keys COMMENT 'property KEYS of the message: its keys with spaces between them',
  tags COMMENT 'property TAGS of the message',
  checks COMMENT 'property TRANSACTION_CHECK_TIMES: how often the broker has asked; 0 if the message has no such property',
  checksMax COMMENT 'number of checks after which the broker gives up: transactionCheckMax of the imported settings, or 15',
  bornTimestamp COMMENT 'when the producer sent the message, ms since 1970 by the client''s clock',
  storeTimestamp COMMENT 'when the broker last stored the message, ms since 1970; each check stores it again',
  ageMillis COMMENT 'age of the message, ms: asOf - bornTimestamp',
  queueOffset COMMENT 'offset of the message in RMQ_SYS_TRANS_HALF_TOPIC, or in TRANS_CHECK_MAX_TIME_TOPIC if it is DISCARDED',
  msgId COMMENT 'offset message id: the broker''s address and the record''s offset in the commit log',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'Transactions that were neither committed nor rolled back; one row per half message.'
AS
WITH ended AS (
  SELECT DISTINCT brokerName, try_cast(named AS BIGINT) AS queueOffset
  FROM commit_log
  LATERAL VIEW explode(split(try_validate_utf8(CAST(body AS STRING)), ',')) listed AS named
  WHERE topic = 'RMQ_SYS_TRANS_OP_HALF_TOPIC' AND tags = 'd'
), half AS (
  SELECT m.*, CASE WHEN m.topic = 'RMQ_SYS_TRANS_HALF_TOPIC' THEN 'PENDING' ELSE 'DISCARDED' END AS state
  FROM commit_log m
  LEFT JOIN consumer_offset o
    ON o.brokerName = m.brokerName AND o.topic = m.topic AND o.queueId = m.queueId AND o.consumerGroup = 'CID_RMQ_SYS_TRANS'
  LEFT JOIN ended e ON e.brokerName = m.brokerName AND e.queueOffset = m.queueOffset
  WHERE m.topic = 'TRANS_CHECK_MAX_TIME_TOPIC'
    OR m.topic = 'RMQ_SYS_TRANS_HALF_TOPIC' AND m.queueOffset >= coalesce(o.consumerOffset, 0L) AND e.queueOffset IS NULL
)
SELECT
  h.brokerName, h.state, h.properties['REAL_TOPIC'], try_cast(h.properties['REAL_QID'] AS INT), h.properties['PGROUP'], h.properties['UNIQ_KEY'],
  h.keys, h.tags, coalesce(try_cast(h.properties['TRANSACTION_CHECK_TIMES'] AS INT), 0),
  coalesce(try_cast(b.properties['transactionCheckMax'] AS INT), 15),
  h.bornTimestamp, h.storeTimestamp, try_subtract(b.maxStoreTimestamp, h.bornTimestamp), h.queueOffset, h.msgId, b.maxStoreTimestamp
FROM half h
LEFT JOIN broker b ON b.brokerName = h.brokerName
