-- Clients that consume, as captured traffic shows them: one row per group of a client and connection. A store does not know clients.
CREATE OR REPLACE TEMPORARY VIEW client (
  brokerName COMMENT 'broker to which the client is connected',
  consumerGroup COMMENT 'name of the consumer group',
  clientId COMMENT 'id that the client gives itself; NULL if no heartbeat of the client was captured',
  address COMMENT 'address and port of the client',
  connection COMMENT 'connection of the client to the broker, as in subscription and pull_request',
  state COMMENT 'state of the client after the last captured event:
CONNECTED: the client sent heartbeats.
UNREGISTERED: the client unregistered from the broker.
CLOSED: the connection ended, and the client did not unregister.
SEEN: the client pulled, but neither a heartbeat nor the end of its connection was captured. Nothing says whether the client is still there.',
  messageModel COMMENT 'CLUSTERING or BROADCASTING; NULL if no heartbeat of the client was captured',
  consumeType COMMENT 'CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull); NULL if no heartbeat of the client was captured',
  topics COMMENT 'topics in the client''s heartbeats; if heartbeats name none, topics that the client pulls from',
  firstMicros COMMENT 'time of the client''s first captured event (heartbeat, pull or leaving), microseconds since 1970',
  lastMicros COMMENT 'time of the client''s last captured event (heartbeat, pull or leaving), microseconds since 1970',
  pulls COMMENT 'captured pulls of the client'
)
COMMENT 'Clients that consume, as captured traffic shows them; one row per group of a client and connection.'
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
