-- Which client pulled from which queue, as captured traffic shows it: one row per queue, group and connection. A queue belongs to the
-- client that pulled last, among clients that send heartbeats and have not left.
CREATE OR REPLACE TEMPORARY VIEW client_queue (
  brokerName COMMENT 'broker that got the pull',
  topic COMMENT 'topic, as the client spells it',
  queueId COMMENT 'number of the queue in its topic',
  consumerGroup COMMENT 'group that pulled',
  clientId COMMENT 'id that the client gives itself; NULL if no heartbeat of the client was captured',
  address COMMENT 'address and port of the client',
  connection COMMENT 'connection of the client to the broker, as in client and pull_request',
  state COMMENT 'state of the client, as in view client: CONNECTED, UNREGISTERED, CLOSED or SEEN',
  pulls COMMENT 'captured pulls of the client from the queue',
  found COMMENT 'captured pulls of the client that found messages in the queue',
  firstMicros COMMENT 'time of the client''s first captured pull from the queue, microseconds since 1970',
  lastMicros COMMENT 'time of the client''s last captured pull from the queue, microseconds since 1970. If a group shares its queues, a queue belongs to the client that pulled last, among clients that send heartbeats and have not left',
  lag COMMENT 'consumer lag of the queue in messages (lag of consume_lag), only on the row of the client that has the queue or had it last; NULL on other rows, and if the lag is unknown',
  lagMillis COMMENT 'how long the next message of the queue has waited for the group, ms (lagMillis of consume_lag), only on the row of the client that has the queue or had it last; NULL on other rows, and if the time is unknown'
)
COMMENT 'Which client pulled from which queue, as captured traffic shows it; one row per queue, group and connection.'
AS
WITH pulled AS (
  SELECT
    brokerName, topic, queueId, consumerGroup, connection, max(client) AS address, count(*) AS pulls, count_if(recordedCode = 0) AS found,
    min(arrivalMicros) AS firstMicros, max(arrivalMicros) AS lastMicros
  FROM pull_request
  WHERE consumerGroup IS NOT NULL AND topic IS NOT NULL AND queueId IS NOT NULL
  GROUP BY brokerName, topic, queueId, consumerGroup, connection
), had AS (
  -- a client that has left has no queue; a client without heartbeats takes no part in the sharing of queues, and may pull from any queue
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
