-- Which client pulled from which queue, as captured traffic shows it: a row a queue, group and connection. Who has a queue now is who pulled last.
CREATE OR REPLACE TEMPORARY VIEW client_queue (
  brokerName COMMENT 'broker that was asked',
  topic COMMENT 'topic, as the client spells it',
  queueId COMMENT 'queue of the topic',
  consumerGroup COMMENT 'group that pulled',
  clientId COMMENT 'id that the client gives itself; NULL where no heartbeat was captured',
  address COMMENT 'address and port of the client',
  connection COMMENT 'the connection, as in client and pull_request',
  pulls COMMENT 'its captured pulls of the queue',
  found COMMENT 'of these, the pulls that brought messages',
  firstMicros COMMENT 'the first of these pulls, microseconds since 1970',
  lastMicros COMMENT 'the last of these pulls: in a group that shares its queues, the client that pulled last has the queue',
  lag COMMENT 'messages that wait in the queue for the group, on the row of the connection that pulled last: lag of consume_lag; NULL on other rows, and where it is not known',
  lagMillis COMMENT 'how long the next of them has waited, ms: lagMillis of consume_lag; NULL likewise'
)
COMMENT 'Which client pulled from which queue, as captured traffic shows it.'
AS
WITH pulled AS (
  SELECT
    brokerName, topic, queueId, consumerGroup, connection, max(client) AS address, count(*) AS pulls, count_if(recordedCode = 0) AS found,
    min(arrivalMicros) AS firstMicros, max(arrivalMicros) AS lastMicros
  FROM pull_request
  WHERE consumerGroup IS NOT NULL AND topic IS NOT NULL AND queueId IS NOT NULL
  GROUP BY brokerName, topic, queueId, consumerGroup, connection
), had AS (
  SELECT *, row_number() OVER (PARTITION BY brokerName, topic, queueId, consumerGroup ORDER BY lastMicros DESC, connection) = 1 AS hasQueue
  FROM pulled
)
SELECT
  p.brokerName, p.topic, p.queueId, p.consumerGroup, c.clientId, p.address, p.connection, p.pulls, p.found, p.firstMicros, p.lastMicros,
  CASE WHEN p.hasQueue THEN l.lag END, CASE WHEN p.hasQueue THEN l.lagMillis END
FROM had p
LEFT JOIN client c ON c.brokerName = p.brokerName AND c.consumerGroup = p.consumerGroup AND c.connection = p.connection
LEFT JOIN consume_lag l ON l.brokerName = p.brokerName AND l.consumerGroup = p.consumerGroup AND l.topic = p.topic AND l.queueId = p.queueId
