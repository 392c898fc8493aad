-- Which client pulled from which queue, as captured traffic shows it: a row a queue, group and connection. Who has a queue is the client that is still there, with heartbeats, and pulled last.
CREATE OR REPLACE TEMPORARY VIEW client_queue (
  brokerName COMMENT 'broker that was asked',
  topic COMMENT 'topic, as the client spells it',
  queueId COMMENT 'queue of the topic',
  consumerGroup COMMENT 'group that pulled',
  clientId COMMENT 'id that the client gives itself; NULL where no heartbeat was captured',
  address COMMENT 'address and port of the client',
  connection COMMENT 'the connection, as in client and pull_request',
  state COMMENT 'whether the client is still there: state of client',
  pulls COMMENT 'its captured pulls of the queue',
  found COMMENT 'of these, the pulls that brought messages',
  firstMicros COMMENT 'the first of these pulls, microseconds since 1970',
  lastMicros COMMENT 'the last of these pulls: in a group that shares its queues, the client that is still there, with heartbeats, and pulled last has the queue',
  lag COMMENT 'messages that wait in the queue for the group, on the row of the client that has the queue, or had it last: lag of consume_lag; NULL on other rows, and where it is not known',
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
  -- who has left has no queue; whoever sends no heartbeat takes part in no sharing of queues, and may pull from any of them
  SELECT
    p.*, c.clientId, c.state,
    row_number() OVER (
      PARTITION BY p.brokerName, p.topic, p.queueId, p.consumerGroup
      ORDER BY coalesce(c.state IN ('UNREGISTERED', 'CLOSED'), false), c.clientId IS NULL, p.lastMicros DESC, p.connection
    ) = 1 AS hasQueue
  FROM pulled p
  LEFT JOIN client c ON c.brokerName = p.brokerName AND c.consumerGroup = p.consumerGroup AND c.connection = p.connection
)
SELECT
  p.brokerName, p.topic, p.queueId, p.consumerGroup, p.clientId, p.address, p.connection, p.state, p.pulls, p.found, p.firstMicros, p.lastMicros,
  CASE WHEN p.hasQueue THEN l.lag END, CASE WHEN p.hasQueue THEN l.lagMillis END
FROM had p
LEFT JOIN consume_lag l ON l.brokerName = p.brokerName AND l.consumerGroup = p.consumerGroup AND l.topic = p.topic AND l.queueId = p.queueId
