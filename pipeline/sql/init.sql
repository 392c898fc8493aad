-- Tables, views and functions of a lake for spark-sql, as of the lake's newest commit:
--   spark-sql -i FILE --hivevar lake=/data/lake
-- The lake is an absolute path or a URI. Made of the files beside this one by `python -m pipeline.lake.init_file`: change those.
DECLARE OR REPLACE VARIABLE pullsim_tables MAP<STRING, BIGINT>;
DECLARE OR REPLACE VARIABLE pullsim_view STRING;
SET VAR pullsim_tables = (
  SELECT CASE
    WHEN coalesce(tablesVersion, 1) = 1 THEN tables
    ELSE raise_error('the tables of this lake are of version ' || tablesVersion || ', this file is for version 1')
  END
  FROM (
    -- the column may not be there yet
    SELECT max_by(tables, version) AS tables, get_json_object(max_by(to_json(struct(*)), version), '$.tablesVersion') AS tablesVersion
    FROM delta.`${lake}/lake_version`
  )
);

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW commit_log AS SELECT * FROM delta.`${lake}/commit_log` VERSION AS OF ' || pullsim_tables['commit_log'], 'CREATE OR REPLACE TEMPORARY VIEW commit_log AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS queueOffset, CAST(NULL AS BIGINT) AS physicOffset, CAST(NULL AS INT) AS storeSize, CAST(NULL AS INT) AS bodyCrc, CAST(NULL AS INT) AS flag, CAST(NULL AS INT) AS sysFlag, CAST(NULL AS BIGINT) AS bornTimestamp, CAST(NULL AS STRING) AS bornHost, CAST(NULL AS INT) AS bornPort, CAST(NULL AS BIGINT) AS storeTimestamp, CAST(NULL AS STRING) AS storeHost, CAST(NULL AS INT) AS storePort, CAST(NULL AS INT) AS reconsumeTimes, CAST(NULL AS BIGINT) AS preparedTransactionOffset, CAST(NULL AS BINARY) AS body, CAST(NULL AS BINARY) AS propertiesRaw, CAST(NULL AS MAP<STRING, STRING>) AS properties, CAST(NULL AS STRING) AS tags, CAST(NULL AS STRING) AS keys, CAST(NULL AS STRING) AS msgId, CAST(NULL AS BIGINT) AS recordCrc32 WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW consume_queue AS SELECT * FROM delta.`${lake}/consume_queue` VERSION AS OF ' || pullsim_tables['consume_queue'], 'CREATE OR REPLACE TEMPORARY VIEW consume_queue AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS queueOffset, CAST(NULL AS BIGINT) AS physicOffset, CAST(NULL AS INT) AS size, CAST(NULL AS BIGINT) AS tagsCode, CAST(NULL AS STRUCT<tagsCode: BIGINT, msgStoreTime: BIGINT, filterBitMap: BINARY>) AS extUnit, CAST(NULL AS BIGINT) AS storeTimestamp, CAST(NULL AS BIGINT) AS bytesBefore WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW consume_queue_segment AS SELECT * FROM delta.`${lake}/consume_queue_segment` VERSION AS OF ' || pullsim_tables['consume_queue_segment'], 'CREATE OR REPLACE TEMPORARY VIEW consume_queue_segment AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS segment, CAST(NULL AS BIGINT) AS firstQueueOffset, CAST(NULL AS INT) AS entryCount, CAST(NULL AS BINARY) AS entries, CAST(NULL AS BINARY) AS storeTimestamps, CAST(NULL AS BIGINT) AS minStoreTimestamp, CAST(NULL AS BIGINT) AS fileFirstOffset, CAST(NULL AS BIGINT) AS entryBytes, CAST(NULL AS BIGINT) AS bytesBefore, CAST(NULL AS ARRAY<INT>) AS oddEntries, CAST(NULL AS BINARY) AS extUnits WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW consume_queue_properties AS SELECT * FROM delta.`${lake}/consume_queue_properties` VERSION AS OF ' || pullsim_tables['consume_queue_properties'], 'CREATE OR REPLACE TEMPORARY VIEW consume_queue_properties AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS segment, CAST(NULL AS BIGINT) AS firstQueueOffset, CAST(NULL AS BINARY) AS lengths, CAST(NULL AS BINARY) AS properties WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW odd_entry AS SELECT * FROM delta.`${lake}/odd_entry` VERSION AS OF ' || pullsim_tables['odd_entry'], 'CREATE OR REPLACE TEMPORARY VIEW odd_entry AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS BIGINT) AS physicOffset, CAST(NULL AS INT) AS size, CAST(NULL AS BIGINT) AS startOffset, CAST(NULL AS BIGINT) AS queueOffset, CAST(NULL AS BIGINT) AS messagePhysicOffset, CAST(NULL AS STRING) AS msgId, CAST(NULL AS STRING) AS tags, CAST(NULL AS STRING) AS keys, CAST(NULL AS INT) AS bodyCrc, CAST(NULL AS BIGINT) AS storeTimestamp, CAST(NULL AS BIGINT) AS recordCrc32 WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW commit_log_segment AS SELECT * FROM delta.`${lake}/commit_log_segment` VERSION AS OF ' || pullsim_tables['commit_log_segment'], 'CREATE OR REPLACE TEMPORARY VIEW commit_log_segment AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS BIGINT) AS firstPhysicOffset, CAST(NULL AS BIGINT) AS endPhysicOffset, CAST(NULL AS INT) AS recordCount, CAST(NULL AS BINARY) AS ends, CAST(NULL AS BINARY) AS storeTimestamps, CAST(NULL AS BIGINT) AS minStoreTimestamp WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW queue AS SELECT * FROM delta.`${lake}/queue` VERSION AS OF ' || pullsim_tables['queue'], 'CREATE OR REPLACE TEMPORARY VIEW queue AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS minOffset, CAST(NULL AS BIGINT) AS maxOffset WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW store_file AS SELECT * FROM delta.`${lake}/store_file` VERSION AS OF ' || pullsim_tables['store_file'], 'CREATE OR REPLACE TEMPORARY VIEW store_file AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS kind, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS STRING) AS name, CAST(NULL AS BIGINT) AS fromOffset, CAST(NULL AS BIGINT) AS length, CAST(NULL AS BIGINT) AS wrote, CAST(NULL AS BIGINT) AS mtimeMs, CAST(NULL AS STRING) AS path WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW store_file_range AS SELECT * FROM delta.`${lake}/store_file_range` VERSION AS OF ' || pullsim_tables['store_file_range'], 'CREATE OR REPLACE TEMPORARY VIEW store_file_range AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS kind, CAST(NULL AS STRING) AS name, CAST(NULL AS BIGINT) AS position, CAST(NULL AS BINARY) AS bytes, CAST(NULL AS STRING) AS path WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW index_entry AS SELECT * FROM delta.`${lake}/index_entry` VERSION AS OF ' || pullsim_tables['index_entry'], 'CREATE OR REPLACE TEMPORARY VIEW index_entry AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS file, CAST(NULL AS INT) AS entry, CAST(NULL AS INT) AS keyHash, CAST(NULL AS INT) AS slot, CAST(NULL AS BIGINT) AS phyOffset, CAST(NULL AS INT) AS timeDiff, CAST(NULL AS BIGINT) AS storeTimestamp, CAST(NULL AS INT) AS previous WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW checkpoint AS SELECT * FROM delta.`${lake}/checkpoint` VERSION AS OF ' || pullsim_tables['checkpoint'], 'CREATE OR REPLACE TEMPORARY VIEW checkpoint AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS BIGINT) AS physicMsgTimestamp, CAST(NULL AS BIGINT) AS logicsMsgTimestamp, CAST(NULL AS BIGINT) AS indexMsgTimestamp WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW topic_config AS SELECT * FROM delta.`${lake}/topic_config` VERSION AS OF ' || pullsim_tables['topic_config'], 'CREATE OR REPLACE TEMPORARY VIEW topic_config AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS readQueueNums, CAST(NULL AS INT) AS writeQueueNums, CAST(NULL AS INT) AS perm, CAST(NULL AS STRING) AS topicFilterType, CAST(NULL AS INT) AS topicSysFlag, CAST(NULL AS BOOLEAN) AS order, CAST(NULL AS STRING) AS json WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW subscription_group AS SELECT * FROM delta.`${lake}/subscription_group` VERSION AS OF ' || pullsim_tables['subscription_group'], 'CREATE OR REPLACE TEMPORARY VIEW subscription_group AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS BOOLEAN) AS consumeEnable, CAST(NULL AS BOOLEAN) AS consumeFromMinEnable, CAST(NULL AS BOOLEAN) AS consumeBroadcastEnable, CAST(NULL AS INT) AS retryQueueNums, CAST(NULL AS INT) AS retryMaxTimes, CAST(NULL AS BIGINT) AS brokerId, CAST(NULL AS BIGINT) AS whichBrokerWhenConsumeSlowly, CAST(NULL AS BOOLEAN) AS notifyConsumerIdsChangedEnable, CAST(NULL AS STRING) AS json WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW consumer_offset AS SELECT * FROM delta.`${lake}/consumer_offset` VERSION AS OF ' || pullsim_tables['consumer_offset'], 'CREATE OR REPLACE TEMPORARY VIEW consumer_offset AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS consumerOffset WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW delay_offset AS SELECT * FROM delta.`${lake}/delay_offset` VERSION AS OF ' || pullsim_tables['delay_offset'], 'CREATE OR REPLACE TEMPORARY VIEW delay_offset AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS INT) AS delayLevel, CAST(NULL AS BIGINT) AS offset WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW consumer_filter AS SELECT * FROM delta.`${lake}/consumer_filter` VERSION AS OF ' || pullsim_tables['consumer_filter'], 'CREATE OR REPLACE TEMPORARY VIEW consumer_filter AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS topic, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS STRING) AS expression, CAST(NULL AS STRING) AS expressionType, CAST(NULL AS BIGINT) AS bornTime, CAST(NULL AS BIGINT) AS deadTime, CAST(NULL AS BIGINT) AS clientVersion, CAST(NULL AS ARRAY<INT>) AS bloomBitPositions, CAST(NULL AS INT) AS bloomBitNum, CAST(NULL AS STRING) AS json WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW broker AS SELECT * FROM delta.`${lake}/broker` VERSION AS OF ' || pullsim_tables['broker'], 'CREATE OR REPLACE TEMPORARY VIEW broker AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS store, CAST(NULL AS MAP<STRING, STRING>) AS properties, CAST(NULL AS BIGINT) AS minPhyOffset, CAST(NULL AS BIGINT) AS maxPhyOffset, CAST(NULL AS BIGINT) AS mappedFileSizeCommitLog, CAST(NULL AS BIGINT) AS mappedFileSizeConsumeQueue, CAST(NULL AS INT) AS maxHashSlotNum, CAST(NULL AS INT) AS maxIndexNum, CAST(NULL AS BIGINT) AS maxStoreTimestamp, CAST(NULL AS STRING) AS layout, CAST(NULL AS STRING) AS brokerRole, CAST(NULL AS BOOLEAN) AS asFound, CAST(NULL AS BIGINT) AS followedFrom WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW follow_event AS SELECT * FROM delta.`${lake}/follow_event` VERSION AS OF ' || pullsim_tables['follow_event'], 'CREATE OR REPLACE TEMPORARY VIEW follow_event AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS runId, CAST(NULL AS BIGINT) AS batchId, CAST(NULL AS STRING) AS event, CAST(NULL AS BIGINT) AS physicOffset, CAST(NULL AS STRING) AS text, CAST(NULL AS BIGINT) AS maxPhyOffset, CAST(NULL AS TIMESTAMP) AS seenAt WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW pull_request AS SELECT * FROM delta.`${lake}/pull_request` VERSION AS OF ' || pullsim_tables['pull_request'], 'CREATE OR REPLACE TEMPORARY VIEW pull_request AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS STRING) AS requestId, CAST(NULL AS STRING) AS source, CAST(NULL AS STRING) AS sourceDigest, CAST(NULL AS BIGINT) AS sequence, CAST(NULL AS STRING) AS connection, CAST(NULL AS STRING) AS client, CAST(NULL AS INT) AS opaque, CAST(NULL AS BIGINT) AS arrivalMicros, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS BIGINT) AS queueOffset, CAST(NULL AS INT) AS maxMsgNums, CAST(NULL AS INT) AS sysFlag, CAST(NULL AS BIGINT) AS commitOffset, CAST(NULL AS BIGINT) AS suspendTimeoutMillis, CAST(NULL AS STRING) AS subscription, CAST(NULL AS BIGINT) AS subVersion, CAST(NULL AS STRING) AS expressionType, CAST(NULL AS STRING) AS registration, CAST(NULL AS STRING) AS registeredSubString, CAST(NULL AS STRING) AS registeredExpressionType, CAST(NULL AS BIGINT) AS registeredSubVersion, CAST(NULL AS BOOLEAN) AS registeredClassFilterMode, CAST(NULL AS ARRAY<INT>) AS registeredCodeSet, CAST(NULL AS BIGINT) AS registeredFilterVersion, CAST(NULL AS STRING) AS registeredMessageModel, CAST(NULL AS INT) AS recordedCode, CAST(NULL AS STRING) AS recordedRemark, CAST(NULL AS BIGINT) AS recordedNextBeginOffset, CAST(NULL AS BIGINT) AS recordedMinOffset, CAST(NULL AS BIGINT) AS recordedMaxOffset, CAST(NULL AS BIGINT) AS recordedSuggestWhichBrokerId, CAST(NULL AS INT) AS recordedBodyLength, CAST(NULL AS STRING) AS recordedBodySha256, CAST(NULL AS BIGINT) AS answerMicros, CAST(NULL AS BOOLEAN) AS held WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW offset_history AS SELECT * FROM delta.`${lake}/offset_history` VERSION AS OF ' || pullsim_tables['offset_history'], 'CREATE OR REPLACE TEMPORARY VIEW offset_history AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS STRING) AS requestId, CAST(NULL AS STRING) AS source, CAST(NULL AS STRING) AS sourceDigest, CAST(NULL AS BIGINT) AS sequence, CAST(NULL AS STRING) AS connection, CAST(NULL AS STRING) AS client, CAST(NULL AS STRING) AS origin, CAST(NULL AS BIGINT) AS micros, CAST(NULL AS BIGINT) AS consumerOffset, CAST(NULL AS INT) AS code WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW subscription AS SELECT * FROM delta.`${lake}/subscription` VERSION AS OF ' || pullsim_tables['subscription'], 'CREATE OR REPLACE TEMPORARY VIEW subscription AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS STRING) AS topic, CAST(NULL AS STRING) AS requestId, CAST(NULL AS STRING) AS source, CAST(NULL AS STRING) AS sourceDigest, CAST(NULL AS BIGINT) AS sequence, CAST(NULL AS STRING) AS connection, CAST(NULL AS STRING) AS client, CAST(NULL AS STRING) AS event, CAST(NULL AS BIGINT) AS micros, CAST(NULL AS BIGINT) AS answerMicros, CAST(NULL AS STRING) AS clientId, CAST(NULL AS STRING) AS consumeType, CAST(NULL AS STRING) AS messageModel, CAST(NULL AS STRING) AS subString, CAST(NULL AS STRING) AS expressionType, CAST(NULL AS BIGINT) AS subVersion, CAST(NULL AS BOOLEAN) AS classFilterMode, CAST(NULL AS ARRAY<STRING>) AS tagsSet, CAST(NULL AS ARRAY<INT>) AS codeSet WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW bad_request AS SELECT * FROM delta.`${lake}/bad_request` VERSION AS OF ' || pullsim_tables['bad_request'], 'CREATE OR REPLACE TEMPORARY VIEW bad_request AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS source, CAST(NULL AS STRING) AS sourceDigest, CAST(NULL AS BIGINT) AS position, CAST(NULL AS STRING) AS error, CAST(NULL AS BINARY) AS raw WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW replay_run AS SELECT * FROM delta.`${lake}/replay_run` VERSION AS OF ' || pullsim_tables['replay_run'], 'CREATE OR REPLACE TEMPORARY VIEW replay_run AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS runId, CAST(NULL AS STRING) AS source, CAST(NULL AS STRING) AS sourceDigest, CAST(NULL AS MAP<STRING, STRING>) AS settings, CAST(NULL AS STRING) AS at, CAST(NULL AS BIGINT) AS lakeVersion, CAST(NULL AS TIMESTAMP) AS startedAt, CAST(NULL AS TIMESTAMP) AS finishedAt WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW pull_response AS SELECT * FROM delta.`${lake}/pull_response` VERSION AS OF ' || pullsim_tables['pull_response'], 'CREATE OR REPLACE TEMPORARY VIEW pull_response AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS STRING) AS runId, CAST(NULL AS STRING) AS requestId, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS BIGINT) AS queueOffset, CAST(NULL AS INT) AS maxMsgNums, CAST(NULL AS STRING) AS status, CAST(NULL AS INT) AS code, CAST(NULL AS BIGINT) AS nextBeginOffset, CAST(NULL AS BIGINT) AS minOffset, CAST(NULL AS BIGINT) AS maxOffset, CAST(NULL AS INT) AS messageCount, CAST(NULL AS INT) AS bufferTotalSize, CAST(NULL AS BOOLEAN) AS suggestPullingFromSlave, CAST(NULL AS INT) AS msgCount4Commercial, CAST(NULL AS BIGINT) AS diskFallBehind, CAST(NULL AS STRING) AS exception, CAST(NULL AS STRING) AS error, CAST(NULL AS STRING) AS bodySha256, CAST(NULL AS BIGINT) AS heldMillis, CAST(NULL AS BIGINT) AS wokenMillis, CAST(NULL AS ARRAY<STRUCT<queueOffset: BIGINT, physicOffset: BIGINT, size: INT>>) AS entries WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW scenario_step AS SELECT * FROM delta.`${lake}/scenario_step` VERSION AS OF ' || pullsim_tables['scenario_step'], 'CREATE OR REPLACE TEMPORARY VIEW scenario_step AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS runId, CAST(NULL AS STRING) AS scenario, CAST(NULL AS BIGINT) AS line, CAST(NULL AS INT) AS step, CAST(NULL AS BIGINT) AS at, CAST(NULL AS STRING) AS op, CAST(NULL AS STRING) AS asked, CAST(NULL AS STRING) AS result WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW broker_history AS SELECT * FROM delta.`${lake}/broker_history` VERSION AS OF ' || pullsim_tables['broker_history'], 'CREATE OR REPLACE TEMPORARY VIEW broker_history AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS runId, CAST(NULL AS STRING) AS scenario, CAST(NULL AS BIGINT) AS line, CAST(NULL AS INT) AS step, CAST(NULL AS BIGINT) AS at, CAST(NULL AS STRING) AS kind, CAST(NULL AS STRING) AS name, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS queueOffset, CAST(NULL AS STRING) AS row WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW offset_moved_event AS SELECT * FROM delta.`${lake}/offset_moved_event` VERSION AS OF ' || pullsim_tables['offset_moved_event'], 'CREATE OR REPLACE TEMPORARY VIEW offset_moved_event AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS runId, CAST(NULL AS STRING) AS scenario, CAST(NULL AS BIGINT) AS line, CAST(NULL AS INT) AS step, CAST(NULL AS BIGINT) AS at, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS offsetRequest, CAST(NULL AS BIGINT) AS offsetNew WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW lag_history AS SELECT * FROM delta.`${lake}/lag_history` VERSION AS OF ' || pullsim_tables['lag_history'], 'CREATE OR REPLACE TEMPORARY VIEW lag_history AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS observedAt, CAST(NULL AS BIGINT) AS consumerOffset, CAST(NULL AS BIGINT) AS brokerOffset, CAST(NULL AS BIGINT) AS minOffset, CAST(NULL AS BIGINT) AS lag, CAST(NULL AS BIGINT) AS lagMillis, CAST(NULL AS BIGINT) AS asOf, CAST(NULL AS STRING) AS reason, CAST(NULL AS BIGINT) AS lakeVersion WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW simulation_run AS SELECT * FROM delta.`${lake}/simulation_run` VERSION AS OF ' || pullsim_tables['simulation_run'], 'CREATE OR REPLACE TEMPORARY VIEW simulation_run AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS runId, CAST(NULL AS INT) AS variant, CAST(NULL AS BIGINT) AS seed, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS STRING) AS topic, CAST(NULL AS STRING) AS scenario, CAST(NULL AS MAP<STRING, STRING>) AS given, CAST(NULL AS BIGINT) AS beginsMillis, CAST(NULL AS BIGINT) AS endedMillis, CAST(NULL AS BOOLEAN) AS consumedAll, CAST(NULL AS BIGINT) AS caughtUpMillis, CAST(NULL AS BIGINT) AS maxLag, CAST(NULL AS BIGINT) AS lastLag, CAST(NULL AS BIGINT) AS pulls, CAST(NULL AS BIGINT) AS pullsFound, CAST(NULL AS BIGINT) AS flowControl, CAST(NULL AS BIGINT) AS delivered, CAST(NULL AS BIGINT) AS duplicates, CAST(NULL AS BIGINT) AS succeeded, CAST(NULL AS BIGINT) AS sentBack, CAST(NULL AS BIGINT) AS deadLetters, CAST(NULL AS BIGINT) AS notCounted, CAST(NULL AS INT) AS clients, CAST(NULL AS INT) AS idleClients, CAST(NULL AS BIGINT) AS events WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW consumption AS SELECT * FROM delta.`${lake}/consumption` VERSION AS OF ' || pullsim_tables['consumption'], 'CREATE OR REPLACE TEMPORARY VIEW consumption AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS runId, CAST(NULL AS INT) AS variant, CAST(NULL AS BIGINT) AS seed, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS queueOffset, CAST(NULL AS INT) AS firstQueueId, CAST(NULL AS BIGINT) AS firstQueueOffset, CAST(NULL AS INT) AS reconsumeTimes, CAST(NULL AS STRING) AS clientId, CAST(NULL AS BIGINT) AS pulledMicros, CAST(NULL AS BIGINT) AS startedMicros, CAST(NULL AS BIGINT) AS endedMicros, CAST(NULL AS STRING) AS result WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW simulated_lag AS SELECT * FROM delta.`${lake}/simulated_lag` VERSION AS OF ' || pullsim_tables['simulated_lag'], 'CREATE OR REPLACE TEMPORARY VIEW simulated_lag AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS runId, CAST(NULL AS INT) AS variant, CAST(NULL AS BIGINT) AS seed, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS atMillis, CAST(NULL AS BIGINT) AS brokerOffset, CAST(NULL AS BIGINT) AS consumerOffset, CAST(NULL AS BIGINT) AS reachedOffset, CAST(NULL AS BIGINT) AS lag, CAST(NULL AS BIGINT) AS waitedMillis WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW rebalance_event AS SELECT * FROM delta.`${lake}/rebalance_event` VERSION AS OF ' || pullsim_tables['rebalance_event'], 'CREATE OR REPLACE TEMPORARY VIEW rebalance_event AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS runId, CAST(NULL AS INT) AS variant, CAST(NULL AS BIGINT) AS seed, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS STRING) AS topic, CAST(NULL AS BIGINT) AS atMillis, CAST(NULL AS STRING) AS clientId, CAST(NULL AS INT) AS clients, CAST(NULL AS ARRAY<STRING>) AS taken, CAST(NULL AS ARRAY<STRING>) AS dropped WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW dead_letter AS SELECT * FROM delta.`${lake}/dead_letter` VERSION AS OF ' || pullsim_tables['dead_letter'], 'CREATE OR REPLACE TEMPORARY VIEW dead_letter AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS runId, CAST(NULL AS INT) AS variant, CAST(NULL AS BIGINT) AS seed, CAST(NULL AS STRING) AS consumerGroup, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS queueOffset, CAST(NULL AS BIGINT) AS atMillis, CAST(NULL AS INT) AS reconsumeTimes WHERE false');
EXECUTE IMMEDIATE pullsim_view;

SET VAR pullsim_view = coalesce('CREATE OR REPLACE TEMPORARY VIEW simulated_transactions AS SELECT * FROM delta.`${lake}/simulated_transactions` VERSION AS OF ' || pullsim_tables['simulated_transactions'], 'CREATE OR REPLACE TEMPORARY VIEW simulated_transactions AS SELECT CAST(NULL AS STRING) AS brokerName, CAST(NULL AS STRING) AS runId, CAST(NULL AS INT) AS variant, CAST(NULL AS BIGINT) AS seed, CAST(NULL AS STRING) AS topic, CAST(NULL AS BIGINT) AS sent, CAST(NULL AS BIGINT) AS committed, CAST(NULL AS BIGINT) AS committedAgain, CAST(NULL AS BIGINT) AS rolledBack, CAST(NULL AS BIGINT) AS checked, CAST(NULL AS BIGINT) AS givenUp, CAST(NULL AS BIGINT) AS undecided, CAST(NULL AS BIGINT) AS commitMillis50, CAST(NULL AS BIGINT) AS commitMillis99, CAST(NULL AS BIGINT) AS commitMillisMax WHERE false');
EXECUTE IMMEDIATE pullsim_view;

CREATE OR REPLACE TEMPORARY VIEW lake_version AS SELECT * FROM delta.`${lake}/lake_version`;

CREATE OR REPLACE TEMPORARY FUNCTION pull_status(offset BIGINT, minOffset BIGINT, maxOffset BIGINT) RETURNS STRING
COMMENT 'Status of a pull that needs no scan of the queue, NULL where the scan decides or an argument is NULL'
RETURN CASE
  WHEN offset IS NULL OR minOffset IS NULL OR maxOffset IS NULL THEN NULL
  WHEN maxOffset = 0 THEN 'NO_MESSAGE_IN_QUEUE'
  WHEN offset < minOffset THEN 'OFFSET_TOO_SMALL'
  WHEN offset = maxOffset THEN 'OFFSET_OVERFLOW_ONE'
  WHEN offset > maxOffset THEN 'OFFSET_OVERFLOW_BADLY'
END;

CREATE OR REPLACE TEMPORARY FUNCTION correct_offset(offset BIGINT, minOffset BIGINT, maxOffset BIGINT, brokerRole STRING, offsetCheckInSlave BOOLEAN) RETURNS BIGINT
COMMENT 'Next offset of a pull that needs no scan of the queue, NULL as pull_status is or for an unknown role'
RETURN CASE
  WHEN offset IS NULL OR minOffset IS NULL OR maxOffset IS NULL THEN NULL
  WHEN NOT coalesce(brokerRole IN ('ASYNC_MASTER', 'SYNC_MASTER', 'SLAVE') AND offsetCheckInSlave IS NOT NULL, FALSE) THEN NULL
  WHEN NOT (maxOffset = 0 OR offset < minOffset OR offset = maxOffset OR offset > maxOffset) THEN NULL
  WHEN brokerRole = 'SLAVE' AND NOT offsetCheckInSlave THEN offset
  WHEN maxOffset = 0 THEN 0
  WHEN offset < minOffset THEN minOffset
  WHEN offset = maxOffset THEN offset
  WHEN offset > maxOffset THEN IF(minOffset = 0, minOffset, maxOffset)
END;

CREATE OR REPLACE TEMPORARY FUNCTION response_code(status STRING, offset BIGINT, brokerRole STRING, offsetCheckInSlave BOOLEAN) RETURNS INT
COMMENT 'Code of the answer to a pull with this status, NULL for a NULL argument or an unknown status or role'
RETURN CASE
  WHEN offset IS NULL OR NOT coalesce(brokerRole IN ('ASYNC_MASTER', 'SYNC_MASTER', 'SLAVE') AND offsetCheckInSlave IS NOT NULL, FALSE) THEN NULL
  WHEN status IN ('NO_MATCHED_LOGIC_QUEUE', 'NO_MESSAGE_IN_QUEUE') AND offset = 0 THEN 19
  WHEN status IN ('NO_MATCHED_LOGIC_QUEUE', 'NO_MESSAGE_IN_QUEUE', 'OFFSET_OVERFLOW_BADLY', 'OFFSET_TOO_SMALL')
    THEN IF(brokerRole = 'SLAVE' AND NOT offsetCheckInSlave, 20, 21)
  WHEN status IN ('FOUND') THEN 0
  WHEN status IN ('OFFSET_FOUND_NULL', 'OFFSET_OVERFLOW_ONE') THEN 19
  WHEN status IN ('MESSAGE_WAS_REMOVING', 'NO_MATCHED_MESSAGE') THEN 20
END;

CREATE OR REPLACE TEMPORARY FUNCTION suggest_which_broker_id(status STRING, offset BIGINT, suggestPullingFromSlave BOOLEAN, brokerRole STRING, offsetCheckInSlave BOOLEAN, slaveReadEnable BOOLEAN, brokerId BIGINT, whichBrokerWhenConsumeSlowly BIGINT) RETURNS BIGINT
COMMENT 'Broker to pull from next: suggestWhichBrokerId of the answer. NULL for a NULL argument or an unknown role'
RETURN CASE
  WHEN status IS NULL OR offset IS NULL OR suggestPullingFromSlave IS NULL OR slaveReadEnable IS NULL
    OR NOT coalesce(brokerRole IN ('ASYNC_MASTER', 'SYNC_MASTER', 'SLAVE') AND offsetCheckInSlave IS NOT NULL, FALSE) THEN NULL
  WHEN brokerRole = 'SLAVE' AND NOT offsetCheckInSlave AND status IN ('NO_MATCHED_LOGIC_QUEUE', 'NO_MESSAGE_IN_QUEUE', 'OFFSET_OVERFLOW_BADLY', 'OFFSET_TOO_SMALL')
    AND NOT (status IN ('NO_MATCHED_LOGIC_QUEUE', 'NO_MESSAGE_IN_QUEUE') AND offset = 0) THEN brokerId
  WHEN NOT slaveReadEnable THEN 0
  ELSE IF(suggestPullingFromSlave, whichBrokerWhenConsumeSlowly, brokerId)
END;

CREATE OR REPLACE TEMPORARY FUNCTION tags_code(tag STRING) RETURNS BIGINT
COMMENT 'Hash code that the broker keeps of a tag, 0 without one'
RETURN (aggregate(regexp_extract_all(hex(encode(coalesce(tag, ''), 'UTF-16BE')), '....', 0), 0L, (hash, unit) -> (hash * 31 + CAST(conv(unit, 16, 10) AS BIGINT)) & 4294967295) ^ 2147483648) - 2147483648;

CREATE OR REPLACE TEMPORARY FUNCTION tag_matches(subscription STRING, tagsCode BIGINT) RETURNS BOOLEAN
COMMENT 'Whether a TAG subscription matches an entry with this tagsCode, NULL where it does not parse'
RETURN CASE
  WHEN subscription IS NULL OR subscription IN ('', '*') THEN TRUE
  WHEN replace(subscription, '||', '') = '' THEN NULL
  WHEN tagsCode IS NULL THEN TRUE
  ELSE exists(
    transform(split(subscription, '[|][|]'), part -> trim(BOTH decode(X'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20', 'UTF-8') FROM part)),
    tag -> tag <> '' AND aggregate(regexp_extract_all(hex(encode(tag, 'UTF-16BE')), '....', 0), 0L, (hash, unit) -> (hash * 31 + CAST(conv(unit, 16, 10) AS BIGINT)) & 4294967295) = tagsCode & 4294967295)
END;

CREATE OR REPLACE TEMPORARY FUNCTION deliver_timestamp(level INT, storeTimestamp BIGINT) RETURNS BIGINT
COMMENT 'When a message of this delay level is due (ms), by the default levels, NULL where an argument is NULL'
RETURN coalesce(
  try_add(storeTimestamp, CASE WHEN level BETWEEN 1 AND 18 THEN get(array(1000L, 5000L, 10000L, 30000L, 60000L, 120000L, 180000L, 240000L, 300000L, 360000L, 420000L, 480000L, 540000L, 600000L, 1200000L, 1800000L, 3600000L, 7200000L), level - 1) WHEN level IS NOT NULL THEN 1000L END),
  storeTimestamp - 9223372036854775807 + CASE WHEN level BETWEEN 1 AND 18 THEN get(array(1000L, 5000L, 10000L, 30000L, 60000L, 120000L, 180000L, 240000L, 300000L, 360000L, 420000L, 480000L, 540000L, 600000L, 1200000L, 1800000L, 3600000L, 7200000L), level - 1) WHEN level IS NOT NULL THEN 1000L END - 9223372036854775807 - 2);

-- Status of each queue of each group by Burrow's rules, over the last observations in lag_history. Source: linkedin/Burrow,
-- core/internal/evaluator/caching.go (evaluatePartitionStatus, calculatePartitionStatus and the checks below it).
CREATE OR REPLACE TEMPORARY FUNCTION queue_status(
  intervals INT DEFAULT 10 COMMENT 'observations in the window, Burrow: intervals',
  minimumComplete DOUBLE DEFAULT 1.0 COMMENT 'part of the window that must have an offset before it is judged, Burrow: minimum-complete, there 0 by default',
  allowedLag BIGINT DEFAULT 0 COMMENT 'lag that counts as none, Burrow: allowed-lag'
)
RETURNS TABLE (
  brokerName STRING COMMENT 'broker whose store it is',
  consumerGroup STRING COMMENT 'name of the group',
  topic STRING COMMENT 'topic, as the broker spells it',
  queueId INT COMMENT 'queue of the topic',
  status STRING COMMENT 'OK, WARN, STOP, STALL or REWIND',
  why STRING COMMENT 'the rule that spoke',
  lag BIGINT COMMENT 'messages behind at the last observation, 0 where the offset lies past the end, NULL without an offset',
  complete DOUBLE COMMENT 'part of the window that has an offset of the queue',
  committedAt BIGINT COMMENT 'the last observation by which the group is known to have committed, ms',
  observedFrom BIGINT COMMENT 'first observation in the window, ms',
  observedAt BIGINT COMMENT 'last observation of the broker, ms'
)
COMMENT 'Status of each queue of each group by the rules of Burrow.'
RETURN
WITH observed AS (
  SELECT
    brokerName, consumerGroup, topic, queueId, observedAt, consumerOffset, brokerOffset,
    -- an offset past the end is no lag, as in Burrow, and a difference that no BIGINT holds is the greatest
    CASE WHEN consumerOffset IS NOT NULL THEN greatest(coalesce(lag, 9223372036854775807), 0) END AS behind,
    row_number() OVER (PARTITION BY brokerName, consumerGroup, topic, queueId ORDER BY observedAt DESC) AS newness
  FROM lag_history
), compared AS (
  -- against the offset that was known last, for one may be missing in between
  SELECT
    *,
    consumerOffset <> lag(consumerOffset) IGNORE NULLS OVER queue AS moved
  FROM observed
  WHERE newness <= queue_status.intervals
  WINDOW queue AS (PARTITION BY brokerName, consumerGroup, topic, queueId ORDER BY observedAt)
), told AS (
  -- clients commit all their queues together: where one queue of the topic has moved, the group has committed the others too
  SELECT *, coalesce(bool_or(moved) OVER (PARTITION BY brokerName, consumerGroup, topic, observedAt), false) AS committed
  FROM compared
), windows AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    max_by(consumerOffset, observedAt) AS consumerOffset,
    max_by(behind, observedAt) AS currentLag,
    count(consumerOffset) / queue_status.intervals AS complete,
    collect_list(brokerOffset) AS brokerOffsets,
    sort_array(collect_list(
      CASE WHEN consumerOffset IS NOT NULL THEN struct(observedAt AS at, consumerOffset AS offset, behind, committed) END
    )) AS offsets,
    min(observedAt) AS observedFrom,
    max(observedAt) AS observedAt
  FROM told
  GROUP BY brokerName, consumerGroup, topic, queueId
), present AS (
  -- a queue that the last observation of its broker no longer has is gone
  SELECT w.*, filter(w.offsets, (one, i) -> i = 0 OR one.committed) AS commits
  FROM windows w
  JOIN (SELECT brokerName, max(observedAt) AS observedAt FROM lag_history GROUP BY brokerName) last
    ON last.brokerName = w.brokerName AND last.observedAt = w.observedAt
), measured AS (
  SELECT
    *,
    get(commits, 0).at AS firstCommit,
    get(commits, size(commits) - 1).at AS lastCommit,
    -- places where something is so of a commit and the one before it
    filter(sequence(0, size(commits)), i -> get(commits, i).offset < get(commits, i - 1).offset) AS rewinds,
    filter(sequence(0, size(commits)), i -> get(commits, i).offset <> get(commits, i - 1).offset) AS moves,
    filter(sequence(0, size(commits)), i -> get(commits, i).behind < get(commits, i - 1).behind) AS decreases
  FROM present
), judged AS (
  SELECT
    *,
    CASE
      WHEN currentLag IS NULL THEN 'NO_OFFSET'
      WHEN complete < queue_status.minimumComplete THEN 'INCOMPLETE_WINDOW'
      WHEN currentLag <= queue_status.allowedLag THEN 'NO_LAG'
      -- checkIfOffsetsStopped, checkIfRecentLagZero
      WHEN observedAt - lastCommit > lastCommit - firstCommit AND NOT exists(brokerOffsets, one -> one <= consumerOffset) THEN 'NO_COMMITS'
      -- checkIfOffsetsRewind, checkIfRewindRecovered
      WHEN size(rewinds) > 0
        AND NOT exists(slice(commits, get(rewinds, 0) + 1, size(commits)), one -> one.offset >= get(commits, get(rewinds, 0) - 1).offset)
        THEN 'OFFSET_WENT_BACK'
      -- isLagAlwaysNotZero
      WHEN exists(commits, one -> one.behind <= queue_status.allowedLag) THEN 'HAD_NO_LAG'
      -- checkIfOffsetsStalled
      WHEN size(moves) = 0 THEN 'OFFSET_STANDS'
      -- checkIfLagNotDecreasing
      WHEN size(decreases) = 0 THEN 'LAG_NOT_DECREASING'
      ELSE 'LAG_DECREASED'
    END AS why
  FROM measured
)
SELECT
  brokerName, consumerGroup, topic, queueId,
  CASE why
    WHEN 'NO_COMMITS' THEN 'STOP'
    WHEN 'OFFSET_WENT_BACK' THEN 'REWIND'
    WHEN 'OFFSET_STANDS' THEN 'STALL'
    WHEN 'LAG_NOT_DECREASING' THEN 'WARN'
    ELSE 'OK'
  END,
  why, currentLag, complete, lastCommit, observedFrom, observedAt
FROM judged;

-- How far each consumer group is behind, a row a queue: each queue with a stored offset, and each other queue that the store has, of a topic
-- on which the group has an offset. The broker's own count is AdminBrokerProcessor.getConsumeStats; it takes a missing offset for 0 and an
-- unknown time for 0, here both are NULL. What cannot be known is NULL, and reason says why.
CREATE OR REPLACE TEMPORARY VIEW consume_lag (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it (%RETRY%group included)',
  queueId COMMENT 'queue of the topic',
  minOffset COMMENT 'ConsumeQueue.getMinOffsetInQueue, 0 where the store has no such queue',
  brokerOffset COMMENT 'ConsumeQueue.getMaxOffsetInQueue, 0 where the store has no such queue',
  consumerOffset COMMENT 'next offset that the group will consume; NULL where it stored none',
  lag COMMENT 'brokerOffset - consumerOffset; negative where the offset lies past the end',
  lagBytes COMMENT 'sizes of the entries from the greater of consumerOffset and minOffset on',
  lagMillis COMMENT 'asOf less storeTimestamp of entry consumerOffset: how long the next message has waited, ms; 0 where lag is 0',
  lastConsumedTimestamp COMMENT 'storeTimestamp of entry consumerOffset - 1, ms',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms',
  reason COMMENT 'why something is NULL or odd; where several reasons hold, the first:
NO_OFFSET: the group has stored no offset for the queue, how far it is there is not known.
NO_QUEUE: an offset is stored, but the store has no such queue: the topic was deleted, or the offset came from elsewhere.
OFFSET_BEYOND_BROKER_OFFSET: the offset lies past the end of the queue, lag is negative: it was set wrong, or the queue was made anew or restored from an older copy. No message waits; the next pull is told another offset.
OFFSET_BELOW_MIN: the messages from consumerOffset to minOffset - 1 were deleted before the group consumed them. lag counts them, lagBytes does not.
PRE_BLANK: the next entry is one of those that fill a queue up to where it begins. It has no message; its size, 2147483647, counts in lagBytes.
NO_QUEUE_FILE: a file of the queue is missing at the offset or behind it. lag counts its entries, lagBytes is NULL.
MESSAGE_REMOVED: the next entry is there, its message is not in the commit log; a pull passes over it.
NOTHING_CONSUMED: consumerOffset is 0, there is no message consumed last. Nothing is wrong.
LAST_CONSUMED_REMOVED: the message consumed last is no longer in the store. Usual where a group keeps up and messages are few.'
)
COMMENT 'How far each consumer group is behind, a row a queue.'
AS
WITH pairs AS (
  SELECT g.brokerName, g.consumerGroup, g.topic, q.queueId, CAST(NULL AS BIGINT) AS consumerOffset, q.minOffset, q.maxOffset
  FROM (SELECT DISTINCT brokerName, consumerGroup, topic FROM consumer_offset) g JOIN queue q USING (brokerName, topic)
  UNION ALL
  SELECT brokerName, consumerGroup, topic, queueId, consumerOffset, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT) FROM consumer_offset
), positions AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    max(consumerOffset) AS consumerOffset,
    max(maxOffset) IS NOT NULL AS hasQueue,
    coalesce(max(minOffset), 0) AS minOffset,
    coalesce(max(maxOffset), 0) AS brokerOffset,
    greatest(max(consumerOffset), max(minOffset), CASE WHEN max(minOffset) IS NULL THEN 0 END) AS countedFrom
  FROM pairs
  GROUP BY brokerName, consumerGroup, topic, queueId
), wanted AS (
  -- the entries that say when and how much: at most three a row, however long the queue is. A client may have committed any number, so sums are
  -- tried. The group stays a column so that a filter on it reaches consumer_offset, and with it the partitions of consume_queue
  SELECT brokerName, consumerGroup, topic, queueId, consumerOffset, countedFrom, queueOffset
  FROM positions
  LATERAL VIEW explode(array_distinct(array(try_subtract(consumerOffset, 1L), consumerOffset, countedFrom))) needed AS queueOffset
  WHERE hasQueue AND consumerOffset IS NOT NULL
), found AS (
  -- one pass over three columns of consume_queue, not one a group: the few wanted entries are sent to where the many are
  SELECT /*+ BROADCAST(w) */
    w.brokerName, w.consumerGroup, w.topic, w.queueId,
    -- bytes that are no message can have a time of 0, which getConsumeStats takes for none
    max(CASE WHEN e.queueOffset < w.consumerOffset AND e.storeTimestamp > 0 THEN e.storeTimestamp END) AS lastTimestamp,
    max(CASE WHEN e.queueOffset = w.consumerOffset AND e.storeTimestamp > 0 THEN e.storeTimestamp END) AS nextTimestamp,
    max(CASE WHEN e.queueOffset = w.consumerOffset THEN e.size END) AS nextSize,
    max(CASE WHEN e.queueOffset = w.countedFrom THEN e.bytesBefore END) AS bytesBefore
  FROM consume_queue e
  JOIN wanted w
    ON e.brokerName = w.brokerName AND e.topic = w.topic AND e.queueId = w.queueId AND e.queueOffset = w.queueOffset
  GROUP BY w.brokerName, w.consumerGroup, w.topic, w.queueId
), file AS (
  SELECT brokerName, topic, queueId, fileFirstOffset, sum(entryBytes) AS bytes, sum(entryCount) AS entries
  FROM consume_queue_segment
  GROUP BY brokerName, topic, queueId, fileFirstOffset
), behind AS (
  -- bytes of the files that reach behind the offset, and how many entries there are from it on
  SELECT
    p.brokerName, p.consumerGroup, p.topic, p.queueId,
    sum(f.bytes) AS bytes,
    sum(f.fileFirstOffset + f.entries - greatest(f.fileFirstOffset, p.countedFrom)) AS entries
  FROM positions p
  JOIN file f
    ON f.brokerName = p.brokerName AND f.topic = p.topic AND f.queueId = p.queueId AND f.fileFirstOffset + f.entries > p.countedFrom
  GROUP BY p.brokerName, p.consumerGroup, p.topic, p.queueId
), measured AS (
  SELECT
    brokerName, consumerGroup, topic, queueId, p.minOffset, p.brokerOffset, p.consumerOffset,
    try_subtract(p.brokerOffset, p.consumerOffset) AS lag,
    CASE
      WHEN coalesce(b.entries, 0) < p.brokerOffset - p.countedFrom THEN NULL
      WHEN p.consumerOffset IS NOT NULL THEN coalesce(b.bytes, 0) - coalesce(n.bytesBefore, 0)
    END AS lagBytes,
    CASE WHEN p.brokerOffset = p.consumerOffset THEN 0 ELSE try_subtract(a.maxStoreTimestamp, n.nextTimestamp) END AS lagMillis,
    n.lastTimestamp AS lastConsumedTimestamp,
    a.maxStoreTimestamp AS asOf,
    p.hasQueue, p.countedFrom, n.nextSize, b.entries
  FROM positions p
  LEFT JOIN found n USING (brokerName, consumerGroup, topic, queueId)
  LEFT JOIN behind b USING (brokerName, consumerGroup, topic, queueId)
  LEFT JOIN broker a USING (brokerName)
)
SELECT
  brokerName, consumerGroup, topic, queueId, minOffset, brokerOffset, consumerOffset, lag, lagBytes, lagMillis, lastConsumedTimestamp, asOf,
  CASE
    WHEN consumerOffset IS NULL THEN 'NO_OFFSET'
    WHEN NOT hasQueue AND consumerOffset <> 0 THEN 'NO_QUEUE'
    WHEN consumerOffset > brokerOffset THEN 'OFFSET_BEYOND_BROKER_OFFSET'
    WHEN consumerOffset < minOffset THEN 'OFFSET_BELOW_MIN'
    WHEN lagMillis IS NULL AND nextSize = 2147483647 THEN 'PRE_BLANK'
    WHEN lagMillis IS NULL AND nextSize IS NULL OR coalesce(entries, 0) < brokerOffset - countedFrom THEN 'NO_QUEUE_FILE'
    WHEN lagMillis IS NULL THEN 'MESSAGE_REMOVED'
    WHEN lastConsumedTimestamp IS NULL AND consumerOffset = 0 THEN 'NOTHING_CONSUMED'
    WHEN lastConsumedTimestamp IS NULL THEN 'LAST_CONSUMED_REMOVED'
  END AS reason
FROM measured;

-- consume_lag summed, a row a group and topic of each broker. Sums leave out what is NULL; the counts beside them say for how many queues that is, so
-- that a part is not taken for the whole. A negative lag lowers the sum, as it does in mqadmin.
CREATE OR REPLACE TEMPORARY VIEW consume_lag_by_group (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queues COMMENT 'queues of the topic in consume_lag',
  queuesUnknown COMMENT 'of them those whose lag is not known: they are in neither lag nor lagBytes',
  queuesNegative COMMENT 'of them those whose offset lies past the end: they lower lag',
  lag COMMENT 'messages that the group is behind, all queues together',
  lagBytes COMMENT 'their bytes',
  lagMillisMax COMMENT 'the longest that a next message has waited, ms',
  lagMillisUnknown COMMENT 'queues of which it is not known how long the next message has waited: they are not in lagMillisMax',
  lastConsumedTimestamp COMMENT 'storeTimestamp of the newest message that the group consumed last in a queue, ms',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'How far each consumer group is behind on a topic.'
AS
SELECT
  brokerName, consumerGroup, topic,
  count(*) AS queues,
  count_if(lag IS NULL) AS queuesUnknown,
  count_if(lag < 0) AS queuesNegative,
  try_sum(lag) AS lag,
  sum(lagBytes) AS lagBytes,
  max(lagMillis) AS lagMillisMax,
  count_if(lagMillis IS NULL) AS lagMillisUnknown,
  max(lastConsumedTimestamp) AS lastConsumedTimestamp,
  max(asOf) AS asOf
FROM consume_lag
GROUP BY brokerName, consumerGroup, topic;

-- How far each group is behind in all, a row a group of each broker: its topics, its retry topic and its dead letter queue apart, as
-- rocketmq-exporter has them (MetricsCollectTask.collectConsumerOffset). Sums leave out what is NULL; the counts beside them say for how many queues that is.
CREATE OR REPLACE TEMPORARY VIEW group_lag (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  groupDiff COMMENT 'messages behind on topics that are neither retry nor dead letter ones: rocketmq_group_diff of all of them, Diff Total of mqadmin consumerProgress less the retry topic''s. A negative lag lowers it, as in mqadmin',
  groupRetryDiff COMMENT 'messages behind on its retry topic: rocketmq_group_retrydiff. They failed once at least and wait to be tried again; NULL where it has no offset there',
  groupDlqDiff COMMENT 'messages behind on a dead letter topic: rocketmq_group_dlqdiff; NULL where it has no offset there, as groups do not consume their own',
  dlqMessages COMMENT 'messages in its dead letter topic that the store still has: they failed for good; 0 where there is no such topic',
  lagBytes COMMENT 'bytes behind on all topics together',
  lagMillisMax COMMENT 'the longest that a next message has waited, ms',
  topics COMMENT 'topics on which the group has an offset',
  queues COMMENT 'their queues',
  queuesUnknown COMMENT 'of them those whose lag is not known: they are in no sum',
  queuesNegative COMMENT 'of them those whose offset lies past the end: they lower the sums',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'How far each group is behind in all, its retry topic and dead letter queue apart.'
AS
WITH lags AS (
  SELECT
    brokerName, consumerGroup,
    try_sum(lag) FILTER (WHERE NOT startswith(topic, '%RETRY%') AND NOT startswith(topic, '%DLQ%')) AS groupDiff,
    try_sum(lag) FILTER (WHERE startswith(topic, '%RETRY%')) AS groupRetryDiff,
    try_sum(lag) FILTER (WHERE startswith(topic, '%DLQ%')) AS groupDlqDiff,
    sum(lagBytes) AS lagBytes,
    max(lagMillis) AS lagMillisMax,
    count(DISTINCT topic) AS topics,
    count(*) AS queues,
    count_if(lag IS NULL) AS queuesUnknown,
    count_if(lag < 0) AS queuesNegative,
    max(asOf) AS asOf
  FROM consume_lag
  GROUP BY brokerName, consumerGroup
), dead AS (
  SELECT brokerName, substring(topic, 6) AS consumerGroup, sum(maxOffset - minOffset) AS messages
  FROM queue
  WHERE startswith(topic, '%DLQ%')
  GROUP BY brokerName, topic
)
SELECT
  brokerName, consumerGroup, groupDiff, groupRetryDiff, groupDlqDiff, coalesce(d.messages, 0L),
  lagBytes, lagMillisMax, topics, queues, queuesUnknown, queuesNegative, asOf
FROM lags
LEFT JOIN dead d USING (brokerName, consumerGroup);

-- The filter that each group has on each topic, as far as it is known: what a capture saw last, else what the broker stored. The broker stores filters of
-- SQL92 only (ConsumerFilterManager); those of TAG it has from heartbeats, and forgets them when it stops.
CREATE OR REPLACE TEMPORARY VIEW group_filter (
  brokerName COMMENT 'broker that was told of it',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  expressionType COMMENT 'TAG or SQL92, or what the client calls it',
  expression COMMENT 'the filter; * for all messages',
  classFilterMode COMMENT 'whether a filter class of the client decides, which nobody else has',
  knownFrom COMMENT 'HEART_BEAT: a captured heartbeat; PULL_MESSAGE: a captured pull that brought it; CONSUMER_FILTER: config/consumerFilter.json; RETRY_TOPIC: nothing, but clients take all of their retry topic',
  micros COMMENT 'when it was told, microseconds since 1970; of CONSUMER_FILTER by the clock of the client; NULL for RETRY_TOPIC',
  filters COMMENT 'different filters that were seen: with more than one the group changed it, or its consumers do not agree'
)
COMMENT 'The filter that each group has on each topic, as far as it is known.'
AS
WITH told AS (
  SELECT
    brokerName, consumerGroup, topic, coalesce(expressionType, 'TAG') AS expressionType, subString AS expression,
    coalesce(classFilterMode, false) AS classFilterMode, 'HEART_BEAT' AS knownFrom, micros
  FROM subscription
  WHERE event = 'HEART_BEAT' AND topic IS NOT NULL
  UNION ALL
  SELECT
    brokerName, consumerGroup, topic, coalesce(expressionType, 'TAG'), subscription, coalesce(sysFlag & 8, 0) <> 0, 'PULL_MESSAGE', arrivalMicros
  FROM pull_request
  WHERE subscription IS NOT NULL
  UNION ALL
  SELECT brokerName, consumerGroup, topic, expressionType, expression, false, 'CONSUMER_FILTER', clientVersion * 1000 FROM consumer_filter
  UNION ALL
  SELECT DISTINCT brokerName, consumerGroup, topic, 'TAG', '*', false, 'RETRY_TOPIC', CAST(NULL AS BIGINT)
  FROM consumer_offset
  WHERE topic = concat('%RETRY%', consumerGroup)
)
SELECT
  brokerName, consumerGroup, topic, last.expressionType, last.expression, last.classFilterMode, last.knownFrom, last.micros, filters
FROM (
  SELECT
    brokerName, consumerGroup, topic,
    max_by(struct(expressionType, expression, classFilterMode, knownFrom, micros), coalesce(micros, -1)) AS last,
    count(DISTINCT expressionType, expression) AS filters
  FROM told
  GROUP BY brokerName, consumerGroup, topic
);

-- How far each group is behind in messages that it wants, a row a queue of consume_lag: what its own filter (group_filter) lets pass of what waits.
-- Broker source: ExpressionMessageFilter.isMatchedByConsumeQueue and isMatchedByCommitLog. By tags the broker compares hash codes, so what another
-- tag of the same code has is counted, as it is given; the client drops it.
CREATE OR REPLACE TEMPORARY VIEW consume_lag_matched (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  minOffset COMMENT 'begin of the queue',
  brokerOffset COMMENT 'end of the queue',
  consumerOffset COMMENT 'next offset that the group will consume; NULL where it stored none',
  expressionType COMMENT 'TAG or SQL92; NULL where no filter is known',
  expression COMMENT 'the filter; NULL where none is known',
  knownFrom COMMENT 'where it is known from, as in group_filter',
  lag COMMENT 'all messages behind, as in consume_lag',
  lagMatched COMMENT 'of the messages from consumerOffset on that the store still has those that the filter lets pass',
  lagMatchedBytes COMMENT 'their bytes',
  lagMatchedMillis COMMENT 'asOf less storeTimestamp of the first of them: how long the next message that the group wants has waited, ms; 0 where none waits',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms',
  reason COMMENT 'why lagMatched is NULL; else that of consume_lag:
NO_OFFSET: the group has stored no offset for the queue.
NO_FILTER: it is not known what the group subscribed to; pullsim capture learns it from heartbeats and pulls.
CLASS_FILTER: a filter class of the client decides.
FILTER_NOT_PARSED: the broker cannot parse the filter and refuses the pulls.
NEEDS_PYTHON: filters of SQL92 are evaluated in Python, which spark-sql has not; pullsim sql has.
NO_QUEUE_FILE: a file of the queue is missing at the offset or behind it.'
)
COMMENT 'How far each group is behind in messages that its own filter lets pass.'
AS
WITH positions AS (
  SELECT l.*, greatest(l.consumerOffset, l.minOffset) AS countedFrom, f.expressionType, f.expression, f.classFilterMode, f.knownFrom
  FROM consume_lag l
  LEFT JOIN group_filter f USING (brokerName, consumerGroup, topic)
), waiting AS (
  SELECT
    p.brokerName, p.consumerGroup, p.topic, p.queueId, p.expressionType, p.expression,
    e.physicOffset, e.size, e.storeTimestamp,
    CASE WHEN e.extUnit IS NOT NULL THEN e.extUnit.tagsCode WHEN e.tagsCode >= -2147483648 THEN e.tagsCode END AS tagsCode
  FROM positions p
  JOIN consume_queue e
    ON e.brokerName = p.brokerName AND e.topic = p.topic AND e.queueId = p.queueId
    AND e.queueOffset >= p.countedFrom AND e.queueOffset < p.brokerOffset
  WHERE p.expressionType IS NOT NULL AND NOT p.classFilterMode
), judged AS (
  SELECT brokerName, consumerGroup, topic, queueId, size, storeTimestamp, tag_matches(expression, tagsCode) AS matches
  FROM waiting
  WHERE expressionType = 'TAG'
  UNION ALL
  SELECT
    w.brokerName, w.consumerGroup, w.topic, w.queueId, w.size, w.storeTimestamp,
    CAST(NULL AS BOOLEAN)
  FROM waiting w
  LEFT JOIN commit_log m ON m.brokerName = w.brokerName AND m.physicOffset = w.physicOffset
  WHERE w.expressionType <> 'TAG'
), matched AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    count(*) AS entries,
    count_if(matches IS NULL) AS notParsed,
    count(storeTimestamp) FILTER (WHERE matches) AS messages,
    sum(size) FILTER (WHERE matches AND storeTimestamp IS NOT NULL) AS bytes,
    min(storeTimestamp) FILTER (WHERE matches) AS waitsSince
  FROM judged
  GROUP BY brokerName, consumerGroup, topic, queueId
), reasoned AS (
  SELECT
    p.*, m.messages, m.bytes, m.waitsSince,
    CASE
      WHEN p.consumerOffset IS NULL THEN 'NO_OFFSET'
      WHEN p.expressionType IS NULL THEN 'NO_FILTER'
      WHEN p.classFilterMode THEN 'CLASS_FILTER'
      WHEN m.notParsed > 0 AND p.expressionType = 'TAG' THEN 'FILTER_NOT_PARSED'
      WHEN m.notParsed > 0 THEN 'NEEDS_PYTHON'
      WHEN coalesce(m.entries, 0) < p.brokerOffset - p.countedFrom THEN 'NO_QUEUE_FILE'
    END AS whyNot
  FROM positions p
  LEFT JOIN matched m USING (brokerName, consumerGroup, topic, queueId)
)
SELECT
  brokerName, consumerGroup, topic, queueId, minOffset, brokerOffset, consumerOffset, expressionType, expression, knownFrom, lag,
  CASE WHEN whyNot IS NULL THEN coalesce(messages, 0L) END,
  CASE WHEN whyNot IS NULL THEN coalesce(bytes, 0L) END,
  CASE WHEN whyNot IS NULL THEN coalesce(asOf - waitsSince, 0L) END,
  asOf,
  coalesce(whyNot, reason)
FROM reasoned;

-- When each group will have caught up if it goes on as it does, a row a queue of consume_lag: lag over the difference of two paces, both from the
-- last ten observations in lag_history.
CREATE OR REPLACE TEMPORARY VIEW catch_up (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  lag COMMENT 'messages behind now, as in consume_lag',
  consumerOffsetPerHour COMMENT 'how fast the group consumes: from the first to the last of the last ten observations that have an offset; NULL with fewer than two',
  brokerOffsetPerHour COMMENT 'how fast the queue grows, over the same observations',
  catchUpMillis COMMENT 'an estimate, ms from the last observation: lag / (consumerOffsetPerHour - brokerOffsetPerHour). 0 where nothing waits, NULL where reason says why',
  reason COMMENT 'why there is no estimate, the first of these:
NO_OFFSET: the group has stored no offset for the queue.
LAG_UNKNOWN: the lag is no number that fits.
NOTHING_WAITS: the group has caught up.
NO_HISTORY: lag_history has fewer than two observations of the queue with an offset: pullsim lag --record.
OFFSET_WENT_BACK: the offset fell within them, a pace of that says nothing.
DOES_NOT_CATCH_UP: the queue grows at least as fast as the group consumes.'
)
COMMENT 'When each group will have caught up if it goes on as it does.'
AS
WITH recent AS (
  -- a client may have committed any number
  SELECT
    brokerName, consumerGroup, topic, queueId, observedAt, CAST(consumerOffset AS DOUBLE) AS consumerOffset, brokerOffset,
    row_number() OVER (PARTITION BY brokerName, consumerGroup, topic, queueId ORDER BY observedAt DESC) AS newness
  FROM lag_history
  WHERE consumerOffset IS NOT NULL
), moves AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    max_by(consumerOffset, observedAt) - min_by(consumerOffset, observedAt) AS consumed,
    max_by(brokerOffset, observedAt) - min_by(brokerOffset, observedAt) AS produced,
    (max(observedAt) - min(observedAt)) / 3600000 AS hours
  FROM recent
  WHERE newness <= 10
  GROUP BY brokerName, consumerGroup, topic, queueId
), judged AS (
  SELECT
    l.brokerName, l.consumerGroup, l.topic, l.queueId, l.consumerOffset, l.lag,
    try_divide(m.consumed, m.hours) AS consumerOffsetPerHour,
    try_divide(m.produced, m.hours) AS brokerOffsetPerHour
  FROM consume_lag l
  LEFT JOIN moves m USING (brokerName, consumerGroup, topic, queueId)
), reasoned AS (
  SELECT
    *,
    CASE
      WHEN consumerOffset IS NULL THEN 'NO_OFFSET'
      WHEN lag IS NULL THEN 'LAG_UNKNOWN'
      WHEN lag <= 0 THEN 'NOTHING_WAITS'
      WHEN consumerOffsetPerHour IS NULL THEN 'NO_HISTORY'
      WHEN consumerOffsetPerHour < 0 THEN 'OFFSET_WENT_BACK'
      WHEN consumerOffsetPerHour <= brokerOffsetPerHour THEN 'DOES_NOT_CATCH_UP'
    END AS reason
  FROM judged
)
SELECT
  brokerName, consumerGroup, topic, queueId, lag, consumerOffsetPerHour, brokerOffsetPerHour,
  CASE
    WHEN reason = 'NOTHING_WAITS' THEN 0L
    WHEN reason IS NULL THEN CAST(least(lag * 3600000D / (consumerOffsetPerHour - brokerOffsetPerHour), 9E18D) AS BIGINT)
  END,
  reason
FROM reasoned;

-- Which groups are in trouble, without thresholds: the rules of Burrow (queue_status) over the last ten observations in lag_history, once a queue has
-- ten. Other windows and an allowed lag: SELECT * FROM queue_status(intervals => 20, minimumComplete => 0.5, allowedLag => 100).
CREATE OR REPLACE TEMPORARY VIEW group_status (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  status COMMENT 'OK, WARN, STOP, STALL or REWIND; why has the rule',
  why COMMENT 'the rule that spoke, the first of these:
NO_OFFSET: OK, the group has stored no offset for the queue.
INCOMPLETE_WINDOW: OK, there are too few observations yet.
NO_LAG: OK, no message waits.
NO_COMMITS: STOP, no queue of the topic has moved for longer than the window shows the group committing, and the offset lies before all ends of the queue in the window. The consumers are gone, or hang.
OFFSET_WENT_BACK: REWIND, the offset fell and has not come back to where it was.
HAD_NO_LAG: OK, some time in the window no message waited.
OFFSET_STANDS: STALL, this queue stands still while the group commits others of the topic: a message that cannot be consumed, say.
LAG_NOT_DECREASING: WARN, the offset moves, but the lag never became less.
LAG_DECREASED: OK, the lag became less once at least.',
  groupStatus COMMENT 'the worst status of all queues of the group, in the order OK, WARN, STOP, STALL, REWIND; Burrow calls the last three ERR',
  lag COMMENT 'messages behind at the last observation, 0 where the offset lies past the end; NULL without an offset',
  complete COMMENT 'part of the ten observations that have an offset of the queue',
  committedAt COMMENT 'the last observation by which the group is known to have committed: a queue of the topic had moved, or the window begins; ms',
  observedFrom COMMENT 'first observation in the window, ms',
  observedAt COMMENT 'last observation of the broker, ms: the moment that the rules take for now'
)
COMMENT 'Status of each queue of each group, and the worst of the group, by the rules of Burrow.'
AS
SELECT
  brokerName, consumerGroup, topic, queueId, status, why,
  element_at(
    array('OK', 'WARN', 'STOP', 'STALL', 'REWIND'),
    CAST(max(array_position(array('OK', 'WARN', 'STOP', 'STALL', 'REWIND'), status)) OVER (PARTITION BY brokerName, consumerGroup) AS INT)
  ),
  lag, complete, committedAt, observedFrom, observedAt
FROM queue_status();

-- What each group has lost, or will lose, to the deletion of old messages, a row a queue of consume_lag. Broker source:
-- DefaultMessageStore.CleanCommitLogService.deleteExpiredFiles, MappedFileQueue.deleteExpiredFileByTime, ConsumeQueue.correctMinOffset.
CREATE OR REPLACE TEMPORARY VIEW retention_risk (
  brokerName COMMENT 'broker whose store it is',
  consumerGroup COMMENT 'name of the group',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  minOffset COMMENT 'begin of the queue: what lies below was deleted',
  consumerOffset COMMENT 'next offset that the group will consume; NULL where it stored none',
  brokerOffset COMMENT 'end of the queue',
  lostMessages COMMENT 'messages from consumerOffset to minOffset - 1: deleted before the group consumed them; NULL where that is not known',
  messagesToLoss COMMENT 'consumerOffset - minOffset: messages that can still be deleted before one goes that the group has not consumed; 0 where some are lost',
  minOffsetPerHour COMMENT 'how fast minOffset moves: from the first to the last observation of the queue in lag_history; NULL with fewer than two. It moves in jumps, whenever a file is deleted, so the longer the history, the better',
  consumerOffsetPerHour COMMENT 'how fast the group consumes: the same over the last ten observations; 0 where the offset fell',
  timeToLossMillis COMMENT 'an estimate, ms from asOf: when the next message of the group will be deleted. 0 where messages are lost already, NULL where reason says why.
With basis HISTORY: messagesToLoss / (minOffsetPerHour - consumerOffsetPerHour), as if both went on as they do.
With basis FILE_RESERVED_TIME, where minOffset has not been seen to move: the age at which messages go, less lagMillis, as if the group stopped now. That age is fileReservedTime, 72 hours by default; in a log that has lost its first files and whose oldest message is younger, it is the age of that message: the disk was full, and will be again. Deletion waits for the hour deleteWhen, for the whole file to be of that age, and for another file to follow, so that messages rather go later.',
  basis COMMENT 'HISTORY or FILE_RESERVED_TIME; NULL where there is no estimate',
  reason COMMENT 'why there is no estimate, or none is needed; the first of these:
NO_OFFSET: the group has stored no offset for the queue.
NO_QUEUE: the store has no such queue, what was in it is not known.
LOST: messages were deleted before the group consumed them.
NOTHING_WAITS: the group has consumed all that there is.
STAYS_AHEAD: the group consumes at least as fast as messages are deleted.
NO_STORE_TIME: it is not known how long the next message has waited, consume_lag says why.',
  asOf COMMENT 'the greatest storeTimestamp of the broker in the lake, ms'
)
COMMENT 'What each group has lost, or will lose, to the deletion of old messages, a row a queue.'
AS
WITH observed AS (
  -- a client may have committed any number
  SELECT
    brokerName, consumerGroup, topic, queueId, observedAt, minOffset, CAST(consumerOffset AS DOUBLE) AS consumerOffset,
    row_number() OVER (PARTITION BY brokerName, consumerGroup, topic, queueId ORDER BY observedAt DESC) AS newness
  FROM lag_history
), moves AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    max_by(minOffset, observedAt) - min_by(minOffset, observedAt) AS deleted,
    (max(observedAt) - min(observedAt)) / 3600000 AS hours,
    max_by(consumerOffset, observedAt) FILTER (WHERE isRecent) - min_by(consumerOffset, observedAt) FILTER (WHERE isRecent) AS consumed,
    (max(observedAt) FILTER (WHERE isRecent) - min(observedAt) FILTER (WHERE isRecent)) / 3600000 AS recentHours
  FROM (SELECT *, newness <= 10 AND consumerOffset IS NOT NULL AS isRecent FROM observed)
  GROUP BY brokerName, consumerGroup, topic, queueId
), paces AS (
  SELECT
    brokerName, consumerGroup, topic, queueId,
    try_divide(deleted, hours) AS minOffsetPerHour,
    try_divide(CASE WHEN consumed < 0 THEN 0 ELSE consumed END, recentHours) AS consumerOffsetPerHour
  FROM moves
), retained AS (
  SELECT
    b.brokerName,
    CASE
      WHEN b.minPhyOffset > 0 THEN least(b.maxStoreTimestamp - o.oldest, reserved.millis)
      ELSE reserved.millis
    END AS retainedMillis
  FROM broker b
  LEFT JOIN (SELECT brokerName, min(storeTimestamp) AS oldest FROM consume_queue WHERE storeTimestamp > 0 GROUP BY brokerName) o
    ON o.brokerName = b.brokerName,
  LATERAL (SELECT coalesce(try_multiply(try_cast(b.properties['fileReservedTime'] AS BIGINT), 3600000L), 72 * 3600000L) AS millis) reserved
), positions AS (
  -- offsets below 0 have no messages
  SELECT *, CASE WHEN consumerOffset IS NOT NULL THEN greatest(consumerOffset, 0) END AS nextOffset
  FROM consume_lag
), judged AS (
  SELECT
    p.*, h.minOffsetPerHour, h.consumerOffsetPerHour, r.retainedMillis,
    CASE
      WHEN p.consumerOffset IS NULL THEN 'NO_OFFSET'
      WHEN p.reason = 'NO_QUEUE' THEN 'NO_QUEUE'
      WHEN p.nextOffset < p.minOffset THEN 'LOST'
      WHEN p.nextOffset >= p.brokerOffset THEN 'NOTHING_WAITS'
      WHEN h.minOffsetPerHour > 0 AND h.consumerOffsetPerHour >= h.minOffsetPerHour THEN 'STAYS_AHEAD'
      WHEN h.minOffsetPerHour > 0 AND h.consumerOffsetPerHour IS NOT NULL THEN NULL
      WHEN p.lagMillis IS NULL OR r.retainedMillis IS NULL THEN 'NO_STORE_TIME'
    END AS whyNot,
    CASE WHEN h.minOffsetPerHour > 0 AND h.consumerOffsetPerHour IS NOT NULL THEN 'HISTORY' ELSE 'FILE_RESERVED_TIME' END AS basis
  FROM positions p
  LEFT JOIN paces h USING (brokerName, consumerGroup, topic, queueId)
  LEFT JOIN retained r USING (brokerName)
)
SELECT
  brokerName, consumerGroup, topic, queueId, minOffset, consumerOffset, brokerOffset,
  CASE WHEN whyNot IN ('NO_OFFSET', 'NO_QUEUE') THEN NULL ELSE greatest(minOffset - nextOffset, 0) END,
  CASE WHEN whyNot IN ('NO_OFFSET', 'NO_QUEUE') THEN NULL ELSE greatest(nextOffset - minOffset, 0) END,
  minOffsetPerHour, consumerOffsetPerHour,
  CASE
    WHEN whyNot = 'LOST' THEN 0
    WHEN whyNot IS NOT NULL THEN NULL
    WHEN basis = 'HISTORY'
      THEN CAST(least((nextOffset - minOffset) * 3600000D / (minOffsetPerHour - consumerOffsetPerHour), 9E18D) AS BIGINT)
    ELSE greatest(retainedMillis - lagMillis, 0)
  END,
  CASE WHEN whyNot IS NULL THEN basis END,
  whyNot, asOf
FROM judged;

-- How the pulls of the latest finished run of each broker were answered, by group, topic and status.
CREATE OR REPLACE TEMPORARY VIEW pull_status_summary (
  brokerName COMMENT 'broker that was asked',
  runId COMMENT 'its latest finished run',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic that it pulled from',
  status COMMENT 'GetMessageStatus, else the class of the exception, else why there is no answer, else null where the store answers null',
  pulls COMMENT 'requests answered so',
  messages COMMENT 'messages given',
  bytes COMMENT 'their bytes',
  fromDisk COMMENT 'pulls whose last entry read lies on disk',
  diskFallBehindMax COMMENT 'the most bytes between the last entry read and the end of the log'
)
COMMENT 'How the pulls of the latest finished run of each broker were answered.'
AS
SELECT
  r.brokerName, r.runId, r.consumerGroup, r.topic,
  coalesce(r.status, r.exception, r.error, 'null') AS status,
  count(*) AS pulls,
  sum(r.messageCount) AS messages,
  sum(r.bufferTotalSize) AS bytes,
  count_if(r.suggestPullingFromSlave) AS fromDisk,
  max(r.diskFallBehind) AS diskFallBehindMax
FROM pull_response r
JOIN (SELECT brokerName, max_by(runId, finishedAt) AS runId FROM replay_run GROUP BY brokerName) latest USING (brokerName, runId)
GROUP BY ALL;

-- How each pull ended, captured and replayed ones under the same columns: what the other views of pulls are made of. Of replays the latest finished
-- run of each broker counts; a captured pull that was replayed is there twice, told apart by source. Broker source:
-- PullMessageProcessor.processRequest, which puts the GetMessageStatus into the remark of its answer.
CREATE OR REPLACE TEMPORARY VIEW pull_outcome (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what replay answered',
  brokerName COMMENT 'broker that was asked',
  runId COMMENT 'the run that replayed it; NULL for CAPTURED',
  requestId COMMENT 'that of pull_request and pull_response',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  arrivalMicros COMMENT 'when the request was captured, microseconds since 1970; NULL for pulls that were replayed from a file',
  queueOffset COMMENT 'offset asked for',
  maxMsgNums COMMENT 'messages asked for',
  outcome COMMENT 'GetMessageStatus where the store was asked; else the name of the response code, the class of the exception, or why there is no answer; NO_ANSWER where the capture has none, null where the store answers null',
  code COMMENT 'response code',
  nextBeginOffset COMMENT 'offset to ask for next',
  minOffset COMMENT 'of the queue, as the answer has it',
  maxOffset COMMENT 'of the queue, as the answer has it',
  messageCount COMMENT 'messages given; NULL for CAPTURED where some were: the capture keeps their bytes and not their number',
  bodyBytes COMMENT 'bytes of the messages',
  fromDisk COMMENT 'whether the last entry read lies on disk. CAPTURED: true where the answer sends the group to another broker than 0 (slaveReadEnable), else NULL, for the wire does not say',
  diskFallBehind COMMENT 'bytes between the last entry read and the end of the log; NULL for CAPTURED',
  heldFromMicros COMMENT 'when a held pull (long polling) began to wait, microseconds since 1970; NULL where it was not held',
  heldMillis COMMENT 'for how long it waited, ms; NULL where it was not held or never answered'
)
COMMENT 'How each pull ended, captured and replayed ones.'
AS
WITH captured AS (
  SELECT
    *,
    CASE
      WHEN recordedCode IS NULL THEN 'NO_ANSWER'
      WHEN recordedCode IN (0, 19, 20, 21) THEN recordedRemark
      ELSE coalesce(
        element_at(
          map(
            1, 'SYSTEM_ERROR', 2, 'SYSTEM_BUSY', 3, 'REQUEST_CODE_NOT_SUPPORTED', 14, 'SERVICE_NOT_AVAILABLE', 16, 'NO_PERMISSION',
            17, 'TOPIC_NOT_EXIST', 23, 'SUBSCRIPTION_PARSE_FAILED', 24, 'SUBSCRIPTION_NOT_EXIST', 25, 'SUBSCRIPTION_NOT_LATEST',
            26, 'SUBSCRIPTION_GROUP_NOT_EXIST', 27, 'FILTER_DATA_NOT_EXIST', 28, 'FILTER_DATA_NOT_LATEST'
          ),
          recordedCode
        ),
        concat('CODE_', recordedCode)
      )
    END AS outcome
  FROM pull_request
), latest AS (
  SELECT brokerName, max_by(runId, finishedAt) AS runId FROM replay_run GROUP BY brokerName
)
SELECT
  'CAPTURED', brokerName, CAST(NULL AS STRING), requestId, consumerGroup, topic, queueId, arrivalMicros, queueOffset, maxMsgNums, outcome,
  recordedCode, recordedNextBeginOffset, recordedMinOffset, recordedMaxOffset,
  CASE WHEN recordedBodyLength = 0 THEN 0 END,
  CAST(recordedBodyLength AS BIGINT),
  CASE WHEN outcome = 'FOUND' AND recordedSuggestWhichBrokerId <> 0 THEN true END,
  CAST(NULL AS BIGINT),
  CASE WHEN held THEN arrivalMicros END,
  CASE WHEN held THEN CAST((answerMicros - arrivalMicros) DIV 1000 AS BIGINT) END
FROM captured
UNION ALL
SELECT
  'REPLAYED', r.brokerName, r.runId, r.requestId, r.consumerGroup, r.topic, r.queueId, p.arrivalMicros, r.queueOffset, r.maxMsgNums,
  coalesce(r.status, r.exception, r.error, 'null'),
  r.code, r.nextBeginOffset, r.minOffset, r.maxOffset,
  r.messageCount, CAST(r.bufferTotalSize AS BIGINT), r.suggestPullingFromSlave, r.diskFallBehind,
  r.heldMillis * 1000, r.wokenMillis - r.heldMillis
FROM pull_response r
JOIN latest USING (brokerName, runId)
LEFT JOIN pull_request p ON p.brokerName = r.brokerName AND p.requestId = r.requestId;

-- What moved an offset on the broker's side: each pull that was sent to another offset than it asked for, and what that cost. Broker source:
-- DefaultMessageStore.getMessage (nextOffsetCorrection), PullMessageProcessor.generateOffsetMovedEvent. A pull whose filter let nothing pass is told a
-- later offset too (NO_MATCHED_MESSAGE); that is no correction.
CREATE OR REPLACE TEMPORARY VIEW offset_correction (
  source COMMENT 'CAPTURED, REPLAYED, or SCENARIO for an OFFSET_MOVED event of an answered scenario',
  brokerName COMMENT 'broker that was asked',
  runId COMMENT 'the run that answered; NULL for CAPTURED',
  requestId COMMENT 'that of pull_request and pull_response; NULL for SCENARIO',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  arrivalMicros COMMENT 'when the request came, microseconds since 1970; NULL where that is not known',
  status COMMENT 'why, a GetMessageStatus; NULL for SCENARIO:
OFFSET_TOO_SMALL: the offset lies below the first message that is left.
OFFSET_OVERFLOW_BADLY: the offset lies past the end: on to the end, or back to 0 where the queue begins at 0.
NO_MESSAGE_IN_QUEUE: the queue is empty, back to 0.
OFFSET_FOUND_NULL: a file of the queue is missing, on to the next one.
MESSAGE_WAS_REMOVING: the queue has entries whose messages are gone, on past them.',
  offsetRequest COMMENT 'offset asked for',
  offsetNew COMMENT 'offset given',
  minOffset COMMENT 'of the queue, as the answer has it',
  maxOffset COMMENT 'of the queue, as the answer has it',
  skipped COMMENT 'offsets from offsetRequest, or 0 where that is less, to offsetNew - 1: messages that the group never gets, or that never were',
  readAgain COMMENT 'messages from offsetNew to the lesser of offsetRequest and maxOffset: the group gets them again where it had them; NULL where maxOffset is not known'
)
COMMENT 'Each pull that was sent to another offset than it asked for.'
AS
WITH moved AS (
  SELECT
    source, brokerName, runId, requestId, consumerGroup, topic, queueId, arrivalMicros, outcome AS status,
    queueOffset AS offsetRequest, nextBeginOffset AS offsetNew, minOffset, maxOffset
  FROM pull_outcome
  WHERE nextBeginOffset <> queueOffset
    AND outcome IN (
      'OFFSET_TOO_SMALL', 'OFFSET_OVERFLOW_BADLY', 'NO_MESSAGE_IN_QUEUE', 'NO_MATCHED_LOGIC_QUEUE', 'OFFSET_FOUND_NULL', 'MESSAGE_WAS_REMOVING'
    )
  UNION ALL
  SELECT
    'SCENARIO', brokerName, runId, NULL, consumerGroup, topic, queueId, at * 1000, NULL, offsetRequest, offsetNew, NULL, NULL
  FROM offset_moved_event
)
SELECT
  *,
  greatest(coalesce(try_subtract(offsetNew, greatest(offsetRequest, 0L)), 9223372036854775807), 0L),
  CASE
    WHEN offsetNew >= offsetRequest THEN 0L
    WHEN maxOffset IS NOT NULL THEN greatest(least(offsetRequest, maxOffset) - offsetNew, 0L)
  END
FROM moved;

-- Pulls that brought no message, and why: by group, topic and outcome. Broker source: PullMessageProcessor.processRequest, DefaultMessageStore.getMessage.
CREATE OR REPLACE TEMPORARY VIEW pull_nothing_found (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what the latest run answered',
  brokerName COMMENT 'broker that was asked',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  outcome COMMENT 'that of pull_outcome: any but FOUND',
  why COMMENT 'the same in words; NULL for outcomes of exceptions and errors, which are words already',
  pulls COMMENT 'pulls that ended so',
  share COMMENT 'part that they are of all pulls of the group on the topic, from 0 to 1',
  queues COMMENT 'queues that they asked for',
  held COMMENT 'of them those that the broker held (long polling) before',
  firstMicros COMMENT 'the first of them, microseconds since 1970; NULL where the time is not known',
  lastMicros COMMENT 'the last of them, likewise'
)
COMMENT 'Pulls that brought no message, and why.'
AS
WITH counted AS (
  SELECT
    source, brokerName, consumerGroup, topic, outcome,
    count(*) AS pulls,
    count(*) / sum(count(*)) OVER (PARTITION BY source, brokerName, consumerGroup, topic) AS share,
    count(DISTINCT queueId) AS queues,
    count(heldFromMicros) AS held,
    min(arrivalMicros) AS firstMicros,
    max(arrivalMicros) AS lastMicros
  FROM pull_outcome
  GROUP BY source, brokerName, consumerGroup, topic, outcome
)
SELECT
  source, brokerName, consumerGroup, topic, outcome,
  CASE outcome
    WHEN 'OFFSET_OVERFLOW_ONE' THEN 'the group is at the end of the queue: nothing waits'
    WHEN 'NO_MESSAGE_IN_QUEUE' THEN 'nothing was ever written to the queue'
    WHEN 'NO_MATCHED_LOGIC_QUEUE' THEN 'the store has no such queue'
    WHEN 'NO_MATCHED_MESSAGE' THEN 'messages were there, and the filter of the group let none of those in the window pass'
    WHEN 'OFFSET_TOO_SMALL' THEN 'the messages asked for were deleted: the group is sent to the first that is left'
    WHEN 'OFFSET_OVERFLOW_BADLY' THEN 'the offset lies past the end: the group is sent to another one'
    WHEN 'OFFSET_FOUND_NULL' THEN 'a file of the queue is missing: the group is sent to the next one'
    WHEN 'MESSAGE_WAS_REMOVING' THEN 'the queue has entries, and their messages were deleted from the commit log'
    WHEN 'NO_ANSWER' THEN 'the capture has no answer: the client left, or the capture ended'
    WHEN 'NO_PERMISSION' THEN 'the broker, the topic or the group may not be read'
    WHEN 'TOPIC_NOT_EXIST' THEN 'the broker does not know the topic'
    WHEN 'SUBSCRIPTION_GROUP_NOT_EXIST' THEN 'the broker does not know the group, and autoCreateSubscriptionGroup is false'
    WHEN 'SUBSCRIPTION_NOT_EXIST' THEN 'no consumer of the group has told the broker of the topic: no heartbeat came yet, or another consumer of the group overwrote the subscription'
    WHEN 'SUBSCRIPTION_NOT_LATEST' THEN 'the pull is of a newer subscription than the last heartbeat: usual for a moment after a change'
    WHEN 'SUBSCRIPTION_PARSE_FAILED' THEN 'the filter does not parse'
    WHEN 'FILTER_DATA_NOT_EXIST' THEN 'the group has no SQL92 filter registered for the topic'
    WHEN 'FILTER_DATA_NOT_LATEST' THEN 'the pull is of a newer filter than the registered one: usual for a moment after a change'
    WHEN 'SYSTEM_ERROR' THEN 'the broker refused the request: pull_request.recordedRemark says why'
    WHEN 'null' THEN 'the store cannot be read'
  END,
  pulls, share, queues, held, firstMicros, lastMicros
FROM counted
WHERE outcome <> 'FOUND';

-- How much passes of what the broker looks at for a group, a row a group and topic. Broker source: DefaultMessageStore.getMessage: the scan goes on from
-- entry to entry until the batch is full or its window ends, and nextBeginOffset says how far it came.
CREATE OR REPLACE TEMPORARY VIEW filter_efficiency (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what the latest run answered',
  brokerName COMMENT 'broker that was asked',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  expressionType COMMENT 'TAG or SQL92; NULL where no filter is known',
  expression COMMENT 'the filter, as in group_filter: the last one that is known; NULL where none is known',
  pulls COMMENT 'pulls for which entries were looked at: those that found messages and those whose filter let none pass',
  pullsForNothing COMMENT 'of them those whose filter let none pass (NO_MATCHED_MESSAGE)',
  offsetsPassed COMMENT 'entries looked at: nextBeginOffset less the offset asked for, of all these pulls',
  messageCount COMMENT 'messages given; NULL where reason says why',
  bodyBytes COMMENT 'their bytes',
  efficiency COMMENT 'messages given in an entry looked at, from 0 to 1; NULL where one is not known',
  reason COMMENT 'why messageCount is NULL: NOT_ON_THE_WIRE: a capture has the bytes of messages and not their number. Replay it to know'
)
COMMENT 'How much passes of what the broker looks at for a group, a row a group and topic.'
AS
WITH counted AS (
  SELECT
    source, brokerName, consumerGroup, topic,
    count(*) AS pulls,
    count_if(outcome = 'NO_MATCHED_MESSAGE') AS pullsForNothing,
    sum(nextBeginOffset - queueOffset) AS offsetsPassed,
    -- a pull that found nothing gave none, whatever is known of others
    CASE WHEN count_if(messageCount IS NULL AND outcome = 'FOUND') = 0 THEN coalesce(sum(messageCount), 0L) END AS messageCount,
    coalesce(sum(bodyBytes), 0L) AS bodyBytes
  FROM pull_outcome
  WHERE outcome IN ('FOUND', 'NO_MATCHED_MESSAGE')
  GROUP BY source, brokerName, consumerGroup, topic
)
SELECT
  source, brokerName, consumerGroup, topic, f.expressionType, f.expression, pulls, pullsForNothing, offsetsPassed, messageCount, bodyBytes,
  try_divide(messageCount, offsetsPassed),
  CASE WHEN messageCount IS NULL THEN 'NOT_ON_THE_WIRE' END
FROM counted
LEFT JOIN group_filter f USING (brokerName, consumerGroup, topic);

-- How far pulls read from disk, a row a queue and group. Broker source: DefaultMessageStore.getMessage, checkInDiskByCommitOffset, isTheBatchFull: a
-- message counts as on disk where it lies further behind the end of the log than accessMessageInMemoryMaxRatio percent of the memory, and a pull that
-- comes to one gives maxTransferCountOnMessageInDisk (8) messages at most: a group that is behind gets slower.
CREATE OR REPLACE TEMPORARY VIEW disk_read (
  source COMMENT 'CAPTURED: what the real broker answered; REPLAYED: what the latest run answered',
  brokerName COMMENT 'broker that was asked',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  found COMMENT 'pulls that found messages',
  fromDisk COMMENT 'of them those whose last entry read lies on disk; NULL where that is known of none of them',
  fromDiskUnknown COMMENT 'of them those of which it is not known: on the wire it shows only where slaveReadEnable is set. Replay the capture to know',
  messagesFromDisk COMMENT 'messages given by a pull from disk, on the average; NULL where there was none, or numbers are not known',
  messagesFromMemory COMMENT 'messages given by a pull from memory, likewise',
  diskFallBehindMax COMMENT 'the most bytes between the last entry read and the end of the log; NULL where not known',
  reason COMMENT 'why fromDisk is NULL: NOT_ON_THE_WIRE'
)
COMMENT 'How far pulls read from disk, a row a queue and group.'
AS
SELECT
  source, brokerName, consumerGroup, topic, queueId,
  count(*),
  CASE WHEN count(fromDisk) > 0 THEN count_if(fromDisk) END,
  count_if(fromDisk IS NULL),
  avg(messageCount) FILTER (WHERE fromDisk),
  avg(messageCount) FILTER (WHERE NOT fromDisk),
  max(diskFallBehind),
  CASE WHEN count(fromDisk) = 0 THEN 'NOT_ON_THE_WIRE' END
FROM pull_outcome
WHERE outcome = 'FOUND'
GROUP BY source, brokerName, consumerGroup, topic, queueId;

-- Pulls that the broker held (long polling), one a row: for how long, and what ended it. Broker source: PullRequestHoldService.notifyMessageArriving and
-- checkHoldRequest, which looks every five seconds: a timeout of 15 s takes 15 to 20.
CREATE OR REPLACE TEMPORARY VIEW pull_hold (
  source COMMENT 'CAPTURED: as far as the wire shows it; REPLAYED: as replay --hold held it',
  brokerName COMMENT 'broker that was asked',
  requestId COMMENT 'that of pull_request and pull_response',
  consumerGroup COMMENT 'group that pulled',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  queueOffset COMMENT 'offset asked for',
  heldFromMicros COMMENT 'when it began to wait, microseconds since 1970',
  heldMillis COMMENT 'for how long, ms; NULL where it was never answered',
  ending COMMENT 'what ended it:
MESSAGE: a message for the group came.
NOT_FOR_IT: it was woken, and its filter let nothing pass.
TIMEOUT: it was answered that nothing came.
NO_ANSWER: the client left, or the capture ended.
REFUSED: the broker refused it when it was woken: outcome says why.',
  outcome COMMENT 'that of pull_outcome'
)
COMMENT 'Pulls that the broker held (long polling), and what ended it.'
AS
SELECT
  source, brokerName, requestId, consumerGroup, topic, queueId, queueOffset, heldFromMicros, heldMillis,
  CASE
    WHEN outcome = 'NO_ANSWER' THEN 'NO_ANSWER'
    WHEN code = 0 THEN 'MESSAGE'
    WHEN code IN (20, 21) THEN 'NOT_FOR_IT'
    WHEN code = 19 THEN 'TIMEOUT'
    ELSE 'REFUSED'
  END,
  outcome
FROM pull_outcome
WHERE heldFromMicros IS NOT NULL;

-- How messages are spread over the queues of a topic, a row a queue: one that gets more than its share is hot. Counted are the entries that the store
-- still has a message for.
CREATE OR REPLACE TEMPORARY VIEW hot_queue (
  brokerName COMMENT 'broker whose store it is',
  topic COMMENT 'topic, as the broker spells it',
  queueId COMMENT 'queue of the topic',
  minOffset COMMENT 'begin of the queue',
  maxOffset COMMENT 'end of the queue: messages that were ever written to it',
  messages COMMENT 'entries from minOffset on whose message is in the store',
  bytes COMMENT 'their bytes in the commit log',
  messagesShare COMMENT 'part of the messages of the topic that they are, from 0 to 1; NULL where the topic has none',
  bytesShare COMMENT 'part of the bytes of the topic, likewise',
  timesFairShare COMMENT 'messagesShare times the queues of the topic: 1 where all queues get the same',
  firstStoreTimestamp COMMENT 'storeTimestamp of the oldest of them, ms; NULL where there is none',
  lastStoreTimestamp COMMENT 'storeTimestamp of the newest of them, ms; NULL where there is none',
  messagesPerSecond COMMENT 'messages in a second, from the first to the last; NULL where there are fewer than two, or all are of one millisecond'
)
COMMENT 'How messages are spread over the queues of a topic.'
AS
WITH entry AS (
  SELECT
    e.brokerName, e.topic, e.queueId,
    count(*) AS messages, sum(e.size) AS bytes, min(e.storeTimestamp) AS firstStoreTimestamp, max(e.storeTimestamp) AS lastStoreTimestamp
  FROM consume_queue e
  JOIN queue q ON q.brokerName = e.brokerName AND q.topic = e.topic AND q.queueId = e.queueId AND e.queueOffset >= q.minOffset
  WHERE e.storeTimestamp IS NOT NULL
  GROUP BY e.brokerName, e.topic, e.queueId
), sized AS (
  SELECT q.*, coalesce(e.messages, 0L) AS messages, coalesce(e.bytes, 0L) AS bytes, e.firstStoreTimestamp, e.lastStoreTimestamp
  FROM queue q
  LEFT JOIN entry e USING (brokerName, topic, queueId)
)
SELECT
  brokerName, topic, queueId, minOffset, maxOffset, messages, bytes,
  try_divide(messages, sum(messages) OVER topic),
  try_divide(bytes, sum(bytes) OVER topic),
  try_divide(messages * count(*) OVER topic, sum(messages) OVER topic),
  firstStoreTimestamp, lastStoreTimestamp,
  try_divide((messages - 1) * 1000D, lastStoreTimestamp - firstStoreTimestamp)
FROM sized
WINDOW topic AS (PARTITION BY brokerName, topic);

-- Topics by size and rate, a row a topic: the queues of hot_queue together.
CREATE OR REPLACE TEMPORARY VIEW topic_size (
  brokerName COMMENT 'broker whose store it is',
  topic COMMENT 'topic, as the broker spells it',
  kind COMMENT 'RETRY, DLQ, SCHEDULE, TRANSACTION (half messages and their ends), or NORMAL',
  queues COMMENT 'queues that have a folder',
  offsets COMMENT 'sum of maxOffset: messages that were ever written, rocketmq_producer_offset of rocketmq-exporter',
  messages COMMENT 'messages that the store still has',
  bytes COMMENT 'their bytes in the commit log',
  bytesPerMessage COMMENT 'their bytes on the average; NULL where there is none',
  firstStoreTimestamp COMMENT 'storeTimestamp of the oldest of them, ms; NULL where there is none',
  lastStoreTimestamp COMMENT 'storeTimestamp of the newest of them, ms; NULL where there is none',
  messagesPerSecond COMMENT 'messages in a second, from the first to the last; NULL where there are fewer than two, or all are of one millisecond',
  bytesPerSecond COMMENT 'bytes in a second, likewise'
)
COMMENT 'Topics by size and rate.'
AS
WITH topics AS (
  SELECT
    brokerName, topic,
    count(*) AS queues, sum(maxOffset) AS offsets, sum(messages) AS messages, sum(bytes) AS bytes,
    min(firstStoreTimestamp) AS firstStoreTimestamp, max(lastStoreTimestamp) AS lastStoreTimestamp
  FROM hot_queue
  GROUP BY brokerName, topic
)
SELECT
  brokerName, topic,
  CASE
    WHEN startswith(topic, '%RETRY%') THEN 'RETRY'
    WHEN startswith(topic, '%DLQ%') THEN 'DLQ'
    WHEN topic = 'SCHEDULE_TOPIC_XXXX' THEN 'SCHEDULE'
    WHEN topic IN ('RMQ_SYS_TRANS_HALF_TOPIC', 'RMQ_SYS_TRANS_OP_HALF_TOPIC') THEN 'TRANSACTION'
    ELSE 'NORMAL'
  END,
  queues, offsets, messages, bytes,
  try_divide(bytes, messages),
  firstStoreTimestamp, lastStoreTimestamp,
  try_divide((messages - 1) * 1000D, lastStoreTimestamp - firstStoreTimestamp),
  CASE WHEN messages > 1 THEN try_divide(bytes * 1000D, lastStoreTimestamp - firstStoreTimestamp) END
FROM topics;

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
COMPRESSED: the client compressed the body (zlib): CAST(uncompress_body(body, sysFlag) AS STRING) is its text, in Python.
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
FROM commit_log;
