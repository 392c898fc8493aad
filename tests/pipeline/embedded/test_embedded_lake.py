"""`pullsim sql` and `pullsim lag` without Spark, over lakes that deltalake wrote: rows by hand, hostile names, bad input, safety."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from pipeline.commands.engine import Engine
from pipeline.embedded.database import EmbeddedLake
from pipeline.embedded.opened_tables import NotSupportedError
from pipeline.embedded.questions import QuestionError, ask
from pipeline.embedded.translation import parsed
from pipeline.lake.committed import LakeVersion
from pipeline.lake.lake_errors import LakeError
from pipeline.main import run
from pipeline.schema.tables import CONSUMER_OFFSET, TABLES_VERSION
from tests.makers.plain_lakes import add_rows, plain_lake
from tests.truth.places import PROJECT

TOPICS = (
    *("orders", "it's", "a b", "%RETRY%g", "%25", "%2F%", "é/ü", "x=y", 'a"b', "🤦", "[a-z]*?", "a\\b", "a:b#c", "\t", None),
    "a'; DROP TABLE queue; --",
)
END = 1_700_000_100_000
HEADER = "#Group #Topic #Broker Name #QID #Broker Offset #Consumer Offset #Diff #LastTime #Lag Seconds #Lag Bytes #Reason"
Rows = list[tuple[Any, ...]]


def entries() -> list[dict[str, Any]]:
    """Three entries in queues 0 and NULL of each topic."""
    return [
        {
            "brokerName": "b",
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": number,
            "size": 10,
            "storeTimestamp": END - 1000 * (3 - number),
        }
        | {"physicOffset": 100 * place + number, "bytesBefore": 10 * number}
        for place, topic in enumerate(TOPICS)
        for queue_id in (0, None)
        for number in range(3)
    ]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A group at offset 1 of queue 0 of each topic, whose queues have three entries."""
    topics = [topic for topic in TOPICS if topic is not None]
    queue = {"brokerName": "b", "queueId": 0}
    return plain_lake(
        tmp_path_factory.mktemp("plain") / "lake, with 'quotes' and é",
        {
            "broker": [
                {"brokerName": "b", "maxStoreTimestamp": END, "minPhyOffset": 0, "maxPhyOffset": 500, "mappedFileSizeCommitLog": 1000}
            ],
            "store_file": [{"brokerName": "b", "kind": "commitlog", "fromOffset": 0, "length": 1000, "mtimeMs": END}],
            "queue": [queue | {"topic": topic, "minOffset": 0, "maxOffset": 3} for topic in topics],
            "consumer_offset": [queue | {"topic": topic, "consumerGroup": "g", "consumerOffset": 1} for topic in topics],
            "consume_queue": entries(),
            "consume_queue_segment": [
                queue | {"topic": topic, "fileFirstOffset": 0, "entryBytes": 30, "entryCount": 3} for topic in topics
            ],
        },
    )


def rows(lake: Path, query: str) -> Rows:
    return list(ask(EmbeddedLake(str(lake)), query).rows)


def pullsim(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = run([str(word) for word in words])
    return code, *capsys.readouterr()


def test_partitions_with_hostile_names_have_the_values_of_the_log(lake: Path) -> None:
    found = rows(lake, "SELECT topic, queueId, queueOffset, physicOffset FROM consume_queue")
    wanted = [tuple(entry[name] for name in ("topic", "queueId", "queueOffset", "physicOffset")) for entry in entries()]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_lag_of_hostile_topics_is_counted(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = pullsim(capsys, "lag", "--lake", lake, "--format", "json")
    assert (code, err) == (0, "")
    found = {row.pop("topic"): row for row in map(json.loads, out.splitlines())}
    wanted = {"brokerName": "b", "consumerGroup": "g", "queueId": 0, "minOffset": 0, "brokerOffset": 3, "consumerOffset": 1, "lag": 2}
    wanted |= {"lagBytes": 20, "lagMillis": 2000, "lastConsumedTimestamp": END - 3000, "asOf": END, "reason": None}
    assert found == {topic: wanted for topic in TOPICS if topic is not None}


def test_one_topic_of_hostile_name_is_asked_for(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for topic in ("it's", "a'; DROP TABLE queue; --", "%RETRY%g", "a\\b"):
        code, out, _ = pullsim(capsys, "lag", "--lake", lake, "--topic", topic, "--group", "g", "--broker", "b")
        header, line, _, total = out.splitlines()
        assert code == 0
        assert " ".join(header.split()) == HEADER
        assert line.split() == ["g", *topic.split(), "b", "0", "3", "1", "2", "2023-11-14", "22:14:57", "2.000", "20"]
        assert total == "Diff Total: 2"


def test_a_table_is_read_at_the_version_of_the_last_commit(tmp_path: Path) -> None:
    row = {"brokerName": "b", "consumerGroup": "g", "topic": "t", "queueId": 0, "consumerOffset": 1}
    lake = plain_lake(tmp_path / "lake", {"consumer_offset": [row]})
    add_rows(lake, CONSUMER_OFFSET, [row | {"queueId": 1}])
    assert rows(lake, "SELECT queueId FROM consumer_offset") == [(0,)]
    assert DeltaTable(str(lake / "consumer_offset")).version() == 1


def test_a_lake_is_read_at_a_version_that_is_known(tmp_path: Path) -> None:
    row = {"brokerName": "b", "consumerGroup": "g", "topic": "t", "queueId": 0, "consumerOffset": 1}
    lake = plain_lake(tmp_path / "lake", {"consumer_offset": [row]})
    add_rows(lake, CONSUMER_OFFSET, [row | {"queueId": 1}])
    newest = EmbeddedLake(str(lake)).at
    known = EmbeddedLake(str(lake), LakeVersion(newest.version, {**newest.tables, "consumer_offset": 1}))
    assert known.table(parsed("SELECT queueId FROM consumer_offset ORDER BY queueId")).to_pylist() == [{"queueId": 0}, {"queueId": 1}]


def test_tables_that_the_lake_lacks_are_empty(lake: Path) -> None:
    assert rows(lake, "SELECT count(*) FROM pull_request") == [(0,)]
    assert rows(lake, "SELECT * FROM pull_outcome") == []


@pytest.mark.parametrize(
    ("form", "out"),
    [
        ("json", '{"topic": "orders", "count(1)": 3, "at": null, "list": ["a", "b"], "map": {"k": 1}}\n'),
        ("csv", 'topic,count(1),at,list,map\norders,3,,"[""a"", ""b""]","{""k"": 1}"\n'),
        ("table", 'topic   count(1)    at  list        map\norders         3  NULL  ["a", "b"]  {"k": 1}\n'),
    ],
)
def test_rows_are_shown_in_each_form(lake: Path, capsys: pytest.CaptureFixture[str], form: str, out: str) -> None:
    query = "SELECT topic, count(*), CAST(NULL AS BIGINT) AS at, array('a', 'b') AS list, map('k', 1) AS map "
    query += "FROM consume_queue WHERE topic = 'orders' AND queueId = 0 GROUP BY topic"
    code, found, err = pullsim(capsys, "sql", "--engine", "duckdb", "--lake", lake, query, "--format", form)
    assert (code, err) == (0, "")
    assert "\n".join(line.rstrip() for line in found.split("\n")) == out


@pytest.mark.parametrize(
    "words",
    [
        ["sql", "SELECT count(*) AS n FROM consume_queue"],
        ["lag", "--group", "g"],
        ["retention", "--rate", "0", "--format", "csv"],
        ["report", "--out", "report.html"],
    ],
)
def test_no_spark_and_no_java_are_needed(lake: Path, words: list[str], tmp_path: Path) -> None:
    script = f"import sys; from pipeline.main import run; code = run({[*words, '--lake', str(lake)]!r}); "
    script += "print(code, sorted(sys.modules.keys() & {'pyspark', 'pandas', 'numba'}))"
    env = {"PATH": "", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if not line.endswith("?")] == []
    assert done.stdout.splitlines()[-1] == "0 []"


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (
            "SELECT consumerGrup FROM consumer_offset",
            "line 1, column 8: there is no column 'consumerGrup'; the nearest known: `consumerGroup`,",
        ),
        ("SELECT topic,\n  o.nonsense FROM consumer_offset o", "line 2, column 5: there is no column 'nonsense'"),
        ("SELECT * FROM queue_status", "'queue_status' is a function, found it without parentheses; write queue_status()"),
        ("SELECT * FROM consumer_ofset", "there is no table or view 'consumer_ofset'; the nearest known: consumer_offset"),
        ("SELECT 1 / (queueId - queueId) AS x FROM consumer_offset", "division by zero; use try_divide"),
        ("SELECT 9223372036854775807 + queueOffset AS x FROM consume_queue", "Overflow in addition"),
        ("SELECT sum(9223372036854775807) AS x FROM consume_queue", "a sum is greater than a BIGINT"),
        ("SELECT topic = 1 AS x FROM consumer_offset", "Could not convert string"),
    ],
)
def test_a_wrong_query_ends_with_2_and_one_sentence(lake: Path, capsys: pytest.CaptureFixture[str], query: str, told: str) -> None:
    code, out, err = pullsim(capsys, "sql", "--lake", lake, query, "--format", "csv")
    assert (code, out.strip()) in {(2, ""), (2, "x")}
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [["sql", "SELECT count(*) FROM consumer_offset"], ["lag"]])
def test_damaged_lakes_end_with_2_and_name_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    row = {"brokerName": "b", "consumerGroup": "g", "topic": "t", "queueId": 0, "consumerOffset": 1}
    lake = plain_lake(tmp_path / "lake", {"consumer_offset": [row]})
    [file] = (lake / "consumer_offset").glob("*.parquet")
    content = file.read_bytes()
    at = f"table consumer_offset, file {file}: expected a data file of the lake, found"
    for broken in (content[:-4] + b"PARX", content[:10], b""):
        file.write_bytes(broken)
        assert_told(pullsim(capsys, *words, "--lake", lake), f"{at} one that is no Parquet file, or was cut short; restore the file")
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    file.write_bytes(content[:footer] + b"\xff" * 8 + content[footer + 8 :])
    assert_told(pullsim(capsys, *words, "--lake", lake), "expected data files of the lake, found one with damaged bytes (")
    file.unlink()
    assert_told(pullsim(capsys, *words, "--lake", lake), f"{at} none: it was deleted or moved; restore the file")
    (lake / "consumer_offset" / "_delta_log" / f"{0:020d}.json").write_text("{")
    assert_told(pullsim(capsys, *words, "--lake", lake), "consumer_offset: cannot read version 0")
    other = plain_lake(tmp_path / "other", {"consumer_offset": [row]}, tables_version=TABLES_VERSION + 1)
    assert_told(pullsim(capsys, *words, "--lake", other), f"expected tables of version {TABLES_VERSION}, found {TABLES_VERSION + 1}")
    assert_told(pullsim(capsys, *words, "--lake", tmp_path / "none"), f"pullsim import STORE --lake {tmp_path / 'none'}")


def test_losses_of_a_store_without_a_message_need_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = {"brokerName": "b", "minPhyOffset": 0, "maxPhyOffset": 0, "mappedFileSizeCommitLog": 1000}
    file = {"brokerName": "b", "kind": "commitlog", "fromOffset": 0, "length": 1000, "mtimeMs": 0}
    lake = plain_lake(tmp_path / "lake", {"broker": [broker], "store_file": [file]})
    assert_told(
        pullsim(capsys, "retention", "--lake", lake), "expected a message of broker 'b', whose time is looked ahead from, found none"
    )
    code, out, err = pullsim(capsys, "retention", "--lake", lake, "--at", END, "--format", "csv")
    assert (code, out.count("\n"), err) == (0, 1, "")


def assert_told(done: tuple[int, str, str], told: str) -> None:
    code, out, err = done
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_unknown_groups_topics_and_brokers_are_named(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_told(pullsim(capsys, "lag", "--lake", lake, "--group", "gg"), "the lake knows no consumer group 'gg'; the nearest known: 'g'")
    assert_told(pullsim(capsys, "lag", "--lake", lake, "--topic", "order"), "the lake knows no topic 'order'; the nearest known: 'orders'")
    assert_told(pullsim(capsys, "lag", "--lake", lake, "--broker", "c"), "expected broker 'c', found 'b'")


# SQL that reads or changes what is not the lake, in Spark's words and in DuckDB's
OUTSIDE = (
    "SELECT * FROM parquet.`{other}`",
    "SELECT * FROM text.`{other}`",
    "SELECT * FROM delta.`{lake}/queue`",
    "SELECT * FROM read_text('{other}')",
    "SELECT * FROM read_csv('{other}')",
    "SELECT * FROM read_parquet('{other}')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM '{other}'",
    'SELECT * FROM "{other}"',
    "SELECT * FROM `{other}`",
    "SELECT read_text('{other}')",
    "SELECT getenv('HOME')",
    "SELECT java_method('java.lang.System', 'getenv', 'HOME')",
    "SELECT current_setting('temp_directory')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM information_schema.tables",
    "COPY (SELECT 1) TO '{written}'",
    "COPY queue FROM '{other}'",
    "EXPORT DATABASE '{written}'",
    "ATTACH '{written}' AS x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "SET enable_external_access = true",
    "CALL pragma_version()",
    "CREATE TABLE x AS SELECT 1",
    "CREATE VIEW queue AS SELECT 1",
    "INSERT INTO queue SELECT * FROM queue",
    "INSERT OVERWRITE DIRECTORY '{written}' USING parquet SELECT 1",
    "UPDATE queue SET queueId = 1",
    "DELETE FROM queue",
    "DROP VIEW queue",
    "TRUNCATE TABLE queue",
    "ADD JAR '{other}'",
    "SELECT 1; SELECT 2",
    "WITH x AS (SELECT * FROM read_text('{other}')) SELECT * FROM x",
    "SELECT (SELECT content FROM read_text('{other}')) AS x",
)


@pytest.mark.parametrize("query", OUTSIDE)
def test_sql_reads_the_lake_and_nothing_else(lake: Path, tmp_path: Path, query: str) -> None:
    other = tmp_path / "secret.txt"
    other.write_text("secret")
    text = query.format(other=other, written=tmp_path / "written", lake=lake)
    before = files_of(lake)
    with pytest.raises((NotSupportedError, LakeError, QuestionError)) as refused:
        list(ask(EmbeddedLake(str(lake)), text).rows)
    assert "secret" not in str(refused.value).replace(str(other), "")
    # DuckDB itself refuses it, too, or has nothing to show of other files
    opened = EmbeddedLake(str(lake))
    opened.define("queue")
    with suppress(duckdb.Error):
        assert "'secret'" not in repr(opened.connection.execute(text).fetchall())
    assert files_of(lake) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.txt"]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_spark_is_taken_where_the_question_or_the_options_need_it(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_session(*_: object, **__: object) -> None:
        raise LakeError("Spark was taken")

    monkeypatch.setattr(Engine, "session", no_session)
    query, other = "SELECT topic FROM queue LIMIT 0", "SELECT upper(topic) AS x FROM queue"
    taken = (2, "", "pullsim: error: Spark was taken\n")
    assert pullsim(capsys, "sql", "--lake", lake, query, "--format", "csv") == (0, "topic\n", "")
    assert pullsim(capsys, "sql", "--lake", lake, query, "--engine", "spark") == taken
    assert pullsim(capsys, "sql", "--lake", lake, query, "--master", "local[1]") == taken
    assert pullsim(capsys, "lag", "--lake", lake, "--conf", "a=b") == taken
    assert pullsim(capsys, "sql", "--lake", lake, other) == taken
    told = "pullsim: DuckDB answered, without Java\n"
    assert pullsim(capsys, "sql", "--lake", lake, query, "--format", "csv", "--verbose") == (0, "topic\n", told)
    for option, why in (("--engine", "spark"), ("--master", "local[1]")):
        err = pullsim(capsys, "sql", "--lake", lake, query, option, why, "--verbose")[2]
        assert err.startswith("pullsim: Spark answers: ")
        assert option in err.splitlines()[0]
    err = pullsim(capsys, "sql", "--lake", lake, query, "--allow-files", "--verbose")[2]
    assert err.splitlines()[0] == "pullsim: Spark answers: --allow-files was given"
    code, _, err = pullsim(capsys, "sql", "--lake", lake, other, "--verbose")
    assert (code, err.splitlines()[0]) == (2, "pullsim: Spark answers: the query has UPPER(topic), which is left to Spark")
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.lake.driver_start.java_fault", lambda: "none")
        assert pullsim(capsys, "sql", "--lake", lake, other) == (code, "", err), "without Java, it is said why Java is needed"
    code, out, err = pullsim(capsys, "sql", "--lake", lake, other, "--engine", "duckdb")
    assert (code, out) == (2, "")
    assert "--engine duckdb: the query has UPPER(topic), which is left to Spark; leave --engine out, or give --engine spark" in err
    code, _, err = pullsim(capsys, "sql", "--lake", lake, query, "--engine", "duckdb", "--master", "local[1]")
    assert code == 2
    assert "--engine duckdb cannot be combined with --master" in err


@pytest.mark.parametrize("root", ["hdfs://host/lake", "/data/a*b/lake", "/data/a%20b/lake"])
def test_places_that_only_spark_opens_are_left_to_it(root: str) -> None:
    with pytest.raises(NotSupportedError, match="is no local path"):
        EmbeddedLake(root)


# what sqlglot alone would translate into something else: query -> value in Spark's ANSI mode
@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("SELECT 'a''b' AS x", "a'b"),
        ("SELECT x FROM (SELECT -queueOffset AS queueOffset, queueOffset AS x FROM consume_queue ORDER BY queueOffset + 0 LIMIT 1)", 2),
        ("SELECT sum(queueOffset) AS queueOffset FROM consume_queue ORDER BY queueOffset + 0", 3 * 2 * len(TOPICS)),
        ("SELECT count_if(queueId > 5) AS x FROM queue WHERE queueId IS NULL", 0),
        ("SELECT max_by(queueId, queueOffset + coalesce(queueId, 9)) AS x FROM consume_queue", None),
        ("SELECT try_add(9223372036854775807, 1L) AS x", None),
        ("SELECT try_divide(1, 0) AS x", None),
        ("SELECT array_contains(array(1, NULL), 2) AS x", None),
        ("SELECT array_contains(array(1, NULL), 1) AS x", True),
        ("SELECT 7 / 2 AS x", 3.5),
        ("SELECT CAST(5e-1 AS DOUBLE) AS x", 0.5),
        ("SELECT -7 DIV 2 AS x", -3),
        ("SELECT -7 % 3 AS x", -1),
        ("SELECT topic AS x FROM queue WHERE topic LIKE 'a_b' ORDER BY topic LIMIT 1", "a b"),
        ("SELECT topic AS x FROM consume_queue ORDER BY topic LIMIT 1", None),
        ("SELECT tags_code('Aa') = tags_code('BB') AS x", True),
        ("SELECT topic <=> NULL AS x FROM queue LIMIT 1", False),
    ],
)
def test_functions_and_operators_are_those_of_spark(lake: Path, query: str, value: Any) -> None:
    assert rows(lake, query) == [(value,)]


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("CAST(7 / 2 AS BIGINT)", 3),
        ("CAST(-7 / 4 AS INT)", -1),
        ("CAST(avg(queueId + 1.9D) AS INT)", 1),
        ("unix_millis(TIMESTAMP '2026-01-01 00:00:00.001999Z')", 1767225600001),
    ],
)
def test_casts_in_views_cut_off_and_do_not_round(lake: Path, query: str, value: int) -> None:
    assert list(EmbeddedLake(str(lake)).query(f"SELECT {query} FROM queue LIMIT 1").rows) == [(value,)]


@pytest.mark.parametrize(("name", "values"), [("last", [5, 5, 7, 7]), ("first", [5, 5, 5, 5])])
def test_windows_pass_over_nulls(lake: Path, name: str, values: list[int]) -> None:
    """As Spark 4.2 does."""
    shown = f"{name}(x) IGNORE NULLS OVER (ORDER BY i) AS known"
    query = f"SELECT i, {shown} FROM (VALUES (1, 5), (2, NULL), (3, 7), (4, NULL)) AS t(i, x)"
    assert sorted(EmbeddedLake(str(lake)).query(query).rows) == list(enumerate(values, 1))


def test_rows_that_do_not_fit_go_to_a_folder_of_the_user_that_is_removed(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    opened = EmbeddedLake(str(lake))
    [folder] = (Path(row[0]) for row in opened.connection.execute("SELECT current_setting('temp_directory')").fetchall())
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
    del opened
    gc.collect()
    assert list(tmp_path.iterdir()) == []
