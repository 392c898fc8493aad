-- The clients that consume, as captured traffic shows them: a row a group of a client and connection. A store knows no clients.
CREATE OR REPLACE TEMPORARY VIEW client (
  brokerName COMMENT 'broker that it is connected to',
  consumerGroup COMMENT 'name of the group',
  clientId COMMENT 'id that the client gives itself; NULL where no heartbeat was captured',
  address COMMENT 'address and port of the client',
  connection COMMENT 'the connection, as in subscription and pull_request',
  state COMMENT 'by the last event of the capture: CONNECTED: it sent heartbeats; UNREGISTERED: it left; CLOSED: its connection ended without that; SEEN: it pulled, no heartbeat was captured and no end of its connection, so that nothing says whether it is still there',
  messageModel COMMENT 'CLUSTERING or BROADCASTING; NULL where no heartbeat was captured',
  consumeType COMMENT 'CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull); likewise',
  topics COMMENT 'topics that it subscribes to, by heartbeats, or else that it pulls from',
  firstMicros COMMENT 'its first captured heartbeat or pull, microseconds since 1970',
  lastMicros COMMENT 'its last captured heartbeat, pull or leaving, microseconds since 1970',
  pulls COMMENT 'its captured pulls'
)
COMMENT 'The clients that consume, as captured traffic shows them.'
AS
WITH told AS (
  SELECT
    brokerName, consumerGroup, connection, max(client) AS address,
    max_by(clientId, CASE WHEN clientId IS NOT NULL THEN sequence END) AS clientId,
    max_by(messageModel, CASE WHEN messageModel IS NOT NULL THEN sequence END) AS messageModel,
    max_by(consumeType, CASE WHEN consumeType IS NOT NULL THEN sequence END) AS consumeType,
    max_by(event, sequence) AS event,
    count(DISTINCT topic) AS topics,
    min(micros) AS firstMicros, max(micros) AS lastMicros
  FROM subscription
  WHERE consumerGroup IS NOT NULL
  GROUP BY brokerName, consumerGroup, connection
), pulled AS (
  SELECT
    brokerName, consumerGroup, connection, max(client) AS address, count(DISTINCT topic) AS topics,
    min(arrivalMicros) AS firstMicros, max(arrivalMicros) AS lastMicros, count(*) AS pulls
  FROM pull_request
  WHERE consumerGroup IS NOT NULL
  GROUP BY brokerName, consumerGroup, connection
)
SELECT
  brokerName, consumerGroup, t.clientId, coalesce(t.address, p.address), connection,
  CASE t.event WHEN 'UNREGISTER_CLIENT' THEN 'UNREGISTERED' WHEN 'CLOSED' THEN 'CLOSED' WHEN 'HEART_BEAT' THEN 'CONNECTED' ELSE 'SEEN' END,
  t.messageModel, t.consumeType, coalesce(nullif(t.topics, 0L), p.topics),
  least(t.firstMicros, p.firstMicros), greatest(t.lastMicros, p.lastMicros), coalesce(p.pulls, 0L)
FROM told t
FULL JOIN pulled p USING (brokerName, consumerGroup, connection)
