"""The contract of the tables: they are as pipeline.schema.tables says, other readers read the same, other versions are refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest

from pipeline.docpages.tables_page import PAGE, tables_page
from pipeline.lag.lag_history import record
from pipeline.lake import committed
from pipeline.lake.init_file import init_file, init_sql
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.session import SHORT_JOBS
from pipeline.schema import tables as t
from tests.makers.lakes import contents, file_rows, import_as, live_files, metadata, tiny_store
from tests.runs.packaged import dependencies
from tests.runs.replaying import NOON
from tests.runs.sampling import slow_proof
from tests.truth.places import PROJECT
from udfs.sql_functions import PANDAS_UDFS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUES = [("orders", 0), ("orders", 1), ("%RETRY%group a", 0), ("订单", 3)]
# Spark SQL types as the protocol of Delta spells them
SPELLED = {"BIGINT": "long", "INT": "integer", "STRING": "string", "BINARY": "binary", "BOOLEAN": "boolean", "TIMESTAMP": "timestamp"}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker with some queues, and an observation of its lag."""
    folder = tmp_path_factory.mktemp("contract")
    store = tiny_store(folder / "store", QUEUES)
    (store / "config").mkdir()
    offsets = {"orders@group a": {0: 1}, "%RETRY%group a@group a": {0: 0}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}), "utf-8")
    import_as(spark, folder / "lake", store, "b", layout="partitioned")
    record(OpenedBroker(Lake(spark, str(folder / "lake")), "b"), observed_at=7, keep_days=None, run_id="look", committed_at=NOON)
    return folder / "lake"


@pytest.fixture
def versions(lake: Path) -> dict[str, int]:
    """The committed version of each table, read from the files of lake_version."""
    table = lake / t.LAKE_VERSION.name
    newest = len(list((table / "_delta_log").glob("*.json"))) - 1
    found = [row for add in live_files(table, newest).values() for row in file_rows(table, add)]
    assert {row["tablesVersion"] for row in found} == {t.TABLES_VERSION}
    return dict(max(found, key=lambda row: row["version"])["tables"])


def fields(table: Path, version: int) -> list[tuple[str, Any, str]]:
    schema = json.loads(metadata(table, version)["schemaString"])
    return [(field["name"], field["type"], field["metadata"].get("comment", "")) for field in schema["fields"]]


def test_real_tables_have_the_columns_types_and_comments_of_the_contract(lake: Path, versions: dict[str, int]) -> None:
    assert versions.keys() >= {table.name for table in t.IMPORTED}
    for name, version in versions.items():
        table, found = t.TABLES[name], fields(lake / name, version)
        assert [(field, comment) for field, _, comment in found] == [(column.name, column.comment) for column in table.columns]
        assert metadata(lake / name, version)["description"] == table.comment
        flat = {column.name: SPELLED[column.type] for column in table.columns if column.type in SPELLED}
        assert {field: kind for field, kind, _ in found if field in flat} == flat


def test_no_two_rows_have_the_same_key_and_no_key_is_null(lake: Path, versions: dict[str, int]) -> None:
    checked = 0
    for name, version in versions.items():
        key = t.TABLES[name].key
        found = [
            tuple(row[column] for column in key) for add in live_files(lake / name, version).values() for row in file_rows(lake / name, add)
        ]
        assert not key or (len(found) == len(set(found)) and all(None not in one for one in found)), name
        checked += bool(key) * len(found)
    assert checked > 30


def test_every_key_is_made_of_columns_of_its_table() -> None:
    for table in (*t.TABLES.values(), t.LAKE_VERSION):
        assert set(table.key) <= set(table.names), table.name


@pytest.mark.parametrize(("page", "text"), [(PAGE, tables_page()), (init_file(), init_sql())], ids=["docs/tables.md", "init.sql"])
def test_what_is_made_of_the_tables_is_current(page: Path, text: str) -> None:
    assert (PROJECT / page).read_text("utf-8") == text


@pytest.mark.parametrize(
    ("known", "hint"), [(t.TABLES_VERSION - 1, "a newer pullsim wrote them"), (t.TABLES_VERSION + 1, "import the stores into a new --lake")]
)
def test_a_lake_of_another_version_is_refused_and_says_what_to_do(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, known: int, hint: str
) -> None:
    monkeypatch.setattr(committed, "TABLES_VERSION", known)
    with pytest.raises(LakeError, match=f"expected tables of version {known}, found {t.TABLES_VERSION}; .*{hint}"):
        Lake(spark, str(lake))


def as_texts(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as `contents` gives them: partition columns are texts, and maps are lists of pairs."""
    texts = [
        {
            name: str(value) if name in t.PARTITION_COLUMNS else list(value.items()) if isinstance(value, dict) else value
            for name, value in row.items()
        }
        for row in rows
    ]
    return sorted(repr(sorted(row.items())) for row in texts)


@pytest.mark.parametrize("name", ["consume_queue", "consumer_offset", "queue"])
def test_polars_reads_the_same_rows(lake: Path, versions: dict[str, int], name: str) -> None:
    found = pl.read_delta(str(lake / name), version=versions[name])
    assert found.columns == t.TABLES[name].names
    wanted = contents(lake, {name: versions[name]})[name]
    by_queue = t.TABLES[name].by_queue
    assert (as_texts(found.to_dicts()) if by_queue else sorted(repr(sorted(row.items())) for row in found.to_dicts())) == wanted


def test_duckdb_answers_over_the_same_tables(lake: Path, versions: dict[str, int]) -> None:
    with duckdb.connect() as engine:
        for name in ("commit_log", "consumer_offset", "queue"):
            table = deltalake.DeltaTable(str(lake / name), version=versions[name])
            engine.register(name, pa.table(table.to_pyarrow_table()))
        lag = "SELECT q.topic, maxOffset - consumerOffset FROM queue q JOIN consumer_offset o USING (brokerName, topic, queueId) ORDER BY 1"
        assert engine.sql(lag).fetchall() == [("%RETRY%group a", 3), ("orders", 2)]
        keys = "SELECT count(*), count(DISTINCT topic) FROM commit_log WHERE brokerName = 'b' AND keys = 'k' AND storeTimestamp > 0"
        assert engine.sql(keys).fetchall() == [(12, 3)]


QUESTIONS = [
    (
        "SELECT consumerGroup, topic, queueId, lag FROM consume_lag ORDER BY topic, queueId",
        "group a\t%RETRY%group a\t0\t3\ngroup a\torders\t0\t2\ngroup a\torders\t1\tNULL",
    ),
    ("SELECT tags_code('TagA'), pull_status(7L, 0L, 7L)", "2598919\tOFFSET_OVERFLOW_ONE"),
    ("SELECT topic, sum(lagMatched) FROM consume_lag_matched WHERE expressionType = 'TAG' GROUP BY topic", "%RETRY%group a\t3"),
    ("SELECT bodyText, keyList FROM message WHERE topic = '订单' AND queueOffset = 2", 'message 2\t["k"]'),
    ("SELECT count(*), max(version) FROM lake_version", "2\t2"),
    ("SELECT count(*) FROM pull_response", "0"),
    ("SELECT DISTINCT why FROM group_status WHERE queueId = 0", "INCOMPLETE_WINDOW"),
]


def test_the_init_file_calls_no_function_that_is_in_python() -> None:
    assert not [name for name in PANDAS_UDFS if re.search(rf"{name}\((?!body, sysFlag)", init_sql())]


@slow_proof
def test_spark_sql_sees_tables_views_and_functions_through_the_init_file(lake: Path, tmp_path: Path) -> None:
    pyspark = Path(dependencies()) / "pyspark"
    conf = {
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": SHORT_JOBS["spark.driver.extraJavaOptions"],
    }
    command = [
        *(pyspark / "bin" / "spark-sql", "--master", "local[2]", "--properties-file", PROJECT / "conf" / "spark-defaults-cluster.conf"),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        *("-i", init_file(), "--hivevar", f"lake={lake}", "-e", ";".join(query for query, _ in QUESTIONS)),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")} | {"SPARK_HOME": str(pyspark)}
    done = subprocess.run(list(map(str, command)), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-9:] == [line for _, answer in QUESTIONS for line in answer.splitlines()]
