"""Which SQL only reads the lake: each way to another file, to a write or to code is refused, and usual queries are not."""

from __future__ import annotations

import re

import pytest

from pipeline.lake.read_only_sql import NotReadOnlyError, check_read_only
from pipeline.sql.statements import FUNCTIONS, VIEWS, view_sql

REFUSED = {
    "a file as a table": "SELECT * FROM text.`/etc/passwd`",
    "a file beside us": "SELECT * FROM csv.`secret`",
    "a Delta table by its path": "SELECT * FROM delta.`/data/other`",
    "a format by its class": "SELECT * FROM org.apache.spark.sql.parquet.`/x`",
    "a file in a join": "SELECT * FROM broker JOIN json.`/x` USING (a)",
    "a file in a subquery": "SELECT (SELECT max(value) FROM text.`/x`) FROM broker",
    "a file in a CTE": "WITH a AS (SELECT * FROM binaryFile.`/x`) SELECT * FROM a",
    "a file with blanks and comments": "SELECT * FROM text /* . */ . /* x */ `/x`",
    "a file that DESCRIBE reads": "DESCRIBE parquet.`/x`",
    "details of a path": "DESCRIBE DETAIL '/x'",
    "the history of a path": "desc history '/x'",
    "a file that SHOW reads": "SHOW COLUMNS IN parquet.`/x`",
    "a file in EXPLAIN": "EXPLAIN EXTENDED SELECT * FROM text.`/x`",
    "a file in DESCRIBE QUERY": "DESCRIBE QUERY SELECT * FROM text.`/x`",
    "a function that reads a path": "SELECT * FROM read_files('/x')",
    "changes of a table": "SELECT * FROM table_changes('delta.`/x`', 0)",
    "changes of a path": "SELECT * FROM table_changes_by_path(concat('/', 'x'), 0)",
    "changes of a path, by a name that is put together": "SELECT * FROM IDENTIFIER('table_changes_' || 'by_path')('/x', 0)",
    "the same with a comment and quotes": "SELECT * FROM `IDENTIFIER`/* */('table_changes_by_path') -- )\n ('/x', 0) AS t",
    "a schema of XML in a file": "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/x'))",
    "a schema of XML in a file, told": "SELECT Schema_Of_XML ('<a/>', map('rowValidationXSDPath', '/x'))",
    "a schema of Avro in a file": "SELECT from_avro(body, '{}', map('avroSchemaUrl', 'file:///x')) FROM message",
    "a file of descriptors": "SELECT from_protobuf(body, 'm', '/x.desc') FROM message",
    "Java": "SELECT java_method('java.lang.System', 'getenv', 'PATH')",
    "Java by its other name": "SELECT ReFlect('java.lang.System', 'exit', 1)",
    "Java, null on errors": "SELECT try_reflect ('java.lang.Runtime', 'getRuntime')",
    "Java in quotes": "SELECT `reflect`('a')",
    "Java, qualified": "SELECT system.builtin.java_method('a', 'b')",
    "Java after a comment": "SELECT reflect /* ( */ -- ''\n ('a', 'b')",
    "Java behind a raw text": "SELECT r'\\', java_method('a', 'b') --'",
    "Java by a name that is put together": "SELECT IDENTIFIER('java_' || 'method')('a', 'b')",
    "the shell": "SELECT TRANSFORM(topic) USING 'cat /etc/passwd' AS (a) FROM broker",
    "the shell, MAP": 'FROM broker MAP topic USING "sh -c ls"',
    "the shell, REDUCE": "FROM broker REDUCE topic USING 'ls' AS a",
    "a folder that is written": "INSERT OVERWRITE DIRECTORY '/x' USING csv SELECT 1",
    "a folder that is written from a table": "FROM broker INSERT OVERWRITE DIRECTORY '/x' SELECT *",
    "INSERT": "INSERT INTO broker SELECT * FROM broker",
    "INSERT in a WITH": "WITH a AS (SELECT 1) INSERT INTO broker SELECT * FROM a",
    "two INSERTs": "FROM broker INSERT INTO a SELECT * INSERT INTO b SELECT *",
    "DELETE": "DELETE FROM delta.`lake/broker`",
    "UPDATE": "UPDATE broker SET brokerName = 'x'",
    "MERGE": "MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN DELETE",
    "TRUNCATE": "TRUNCATE TABLE broker",
    "CREATE TABLE": "CREATE TABLE x USING parquet LOCATION '/x' AS SELECT 1",
    "CREATE VIEW": "CREATE OR REPLACE TEMPORARY VIEW broker AS SELECT 1",
    "CREATE FUNCTION": "CREATE FUNCTION f AS 'a.B' USING JAR '/x.jar'",
    "DROP": "DROP VIEW broker",
    "ALTER": "ALTER TABLE broker SET LOCATION '/x'",
    "VACUUM": "VACUUM delta.`lake/broker` RETAIN 0 HOURS",
    "OPTIMIZE": "OPTIMIZE delta.`lake/broker`",
    "RESTORE": "RESTORE TABLE broker TO VERSION AS OF 0",
    "CONVERT": "CONVERT TO DELTA parquet.`/x`",
    "SET": "SET spark.sql.runSQLOnFiles=true",
    "RESET": "RESET",
    "USE": "USE other",
    "ADD JAR": "ADD JAR '/x.jar'",
    "LIST": "LIST FILES",
    "LOAD DATA": "LOAD DATA INPATH '/x' INTO TABLE broker",
    "CACHE": "CACHE TABLE x AS SELECT * FROM text.`/x`",
    "REFRESH": "REFRESH '/x'",
    "ANALYZE": "ANALYZE TABLE broker COMPUTE STATISTICS",
    "CALL": "CALL system.run('x')",
    "EXECUTE": "EXECUTE IMMEDIATE 'DROP VIEW broker'",
    "a script": "BEGIN DROP VIEW broker; END",
    "two statements": "SELECT 1; DROP VIEW broker",
    "two statements, the first in a comment": "/* SELECT 1 */ DROP VIEW broker",
    "a comment that ends elsewhere for Spark": "/* /*+ */ INSERT INTO a SELECT 1 /* */ */ SELECT 1",
    "a nested comment": "/* /* */ SHOW x */ DROP VIEW broker",
    "a comment that a carriage return ends": "SELECT value -- \r FROM text.`/x`",
    "a comment before SHOW": "-- \\\n SHOW a\nDROP VIEW broker",
    "SHOW and another statement": "SHOW TABLES; DROP VIEW broker",
    "a text between dollar signs": "SELECT $$ ' $$, 1 FROM text.`/x` -- '",
    "a table of another catalog": "SELECT * FROM spark_catalog.default.t",
    "EXPLAIN of a write": "EXPLAIN INSERT INTO broker SELECT 1",
    "nothing": "  -- nothing\n",
    "a quote without end": "SELECT 'a",
    "what is no SQL": "SELECT FROM WHERE )",
}
READ = [
    "SELECT * FROM consume_lag WHERE reason IS NOT NULL;",
    "(SELECT 1) UNION ALL SELECT 2",
    "VALUES (1, 'a'), (2, 'b')",
    "FROM consume_lag SELECT topic, lag",
    "WITH a AS (SELECT topic, max(lag) AS l FROM consume_lag GROUP BY topic) SELECT * FROM a ORDER BY l DESC LIMIT 3",
    "SELECT /*+ BROADCAST(o) */ l.lag, o.consumerOffset FROM consume_lag l JOIN consumer_offset o USING (topic, queueId)",
    "SELECT tags_code('TagA'), correct_offset(1, 0, 2, 'SLAVE', false)",
    "SELECT sql92_matches('a > 1', map('a', '2')) AS m, properties['TAGS'], `topic` FROM commit_log",
    "SELECT * FROM queue_status()",
    "SELECT * FROM queue_stat()",
    "SELECT id, col FROM range(3) LATERAL VIEW explode(array(1, 2)) t AS col",
    "SELECT filter(array(1, 2), x -> x > 1), row_number() OVER (PARTITION BY topic ORDER BY lag) FROM consume_lag",
    "SELECT consumerOffset FROM IDENTIFIER('consumer' || '_offset')",
    "SELECT * FROM message WHERE body = 'INSERT INTO x; DROP TABLE y' -- DELETE",
    "SELECT 'text.`/etc/passwd`' AS a, \"reflect\" AS b, 'it''s' AS c, r'C:\\x' AS d",
    "SHOW TABLES",
    "SHOW FUNCTIONS LIKE 'tag*'",
    "DESCRIBE consume_lag",
    "describe function extended tags_code",
    "DESC QUERY SELECT 1",
    "EXPLAIN FORMATTED SELECT * FROM consume_lag",
]


@pytest.mark.parametrize("query", REFUSED.values(), ids=REFUSED)
def test_what_does_more_than_to_read_the_lake_is_refused(query: str) -> None:
    with pytest.raises(NotReadOnlyError, match=r"expected SQL that reads the lake and nothing else, found .*; --allow-files runs any SQL"):
        check_read_only(query, FUNCTIONS)


@pytest.mark.parametrize("query", READ)
def test_what_reads_the_lake_is_not(query: str) -> None:
    check_read_only(query, FUNCTIONS)


@pytest.mark.parametrize("name", VIEWS)
def test_the_lakes_own_views_pass(name: str) -> None:
    query = re.search(r"\bAS\s+((?:WITH|SELECT)\b.*)", view_sql(name), re.DOTALL)
    assert query is not None
    check_read_only(query[1], FUNCTIONS)


def test_the_message_names_what_was_found() -> None:
    with pytest.raises(NotReadOnlyError, match="found the function java_method;"):
        check_read_only("SELECT java_method('a', 'b')")
    with pytest.raises(NotReadOnlyError, match="found 'SELEKT' as its first word;"):
        check_read_only("SELEKT 1")
    with pytest.raises(NotReadOnlyError, match="in line 2, column "):
        check_read_only("SELECT 1,\n FROM WHERE")
