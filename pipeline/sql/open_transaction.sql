-- Transactions that have neither been committed nor rolled back, a row a half message: those that the broker still asks the producer about, and those that
-- it gave up. Broker source: TransactionalMessageServiceImpl.check. A half message is pending from the committed offset of CID_RMQ_SYS_TRANS on, while no op
-- message names its queue offset. 4.9.3 writes an op message for each half message, 5.5.0 one for many: its body lists their offsets.
CREATE OR REPLACE TEMPORARY VIEW open_transaction (
  brokerName COMMENT 'broker whose store it is',
  state COMMENT 'PENDING: the broker asks the producer in its next check, once transactionTimeOut is over; DISCARDED: it gave up and moved the message to TRANS_CHECK_MAX_TIME_TOPIC',
  topic COMMENT 'topic that the message is for: property REAL_TOPIC',
  queueId COMMENT 'queue that it is for: property REAL_QID',
  producerGroup COMMENT 'group of producers that the broker asks: property PGROUP',
  uniqKey COMMENT 'property UNIQ_KEY, the id that the client gave; often the transaction id',
  keys COMMENT 'property KEYS',
  tags COMMENT 'property TAGS',
  checks COMMENT 'how often the broker has asked: property TRANSACTION_CHECK_TIMES, 0 without it',
  checksMax COMMENT 'after how many checks it gives up: transactionCheckMax of the imported settings, else 15',
  bornTimestamp COMMENT 'when the producer sent it, ms',
  storeTimestamp COMMENT 'when the broker stored it last: each check stores it again, ms',
  ageMillis COMMENT 'asOf less bornTimestamp, ms',
  queueOffset COMMENT 'offset in RMQ_SYS_TRANS_HALF_TOPIC, or in TRANS_CHECK_MAX_TIME_TOPIC',
  msgId COMMENT 'offset message id of the record',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'Transactions that have neither been committed nor rolled back.'
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
