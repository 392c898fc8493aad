"""The lake's tables by name, in a Hive metastore embedded in Spark: what docs/cluster.md says, run in sessions of their own.

./run long -k test_catalog
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.lake.lake import Lake
from tests.makers.lakes import MESSAGES, import_as, tiny_store
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_PAGE = PROJECT / "docs" / "cluster.md"
_SESSION = """
import json, sys
from pipeline.lake.session import SHORT_JOBS, build_session
folder, statements = sys.argv[1], json.loads(sys.argv[2])
metastore = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
conf = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.javax.jdo.option.ConnectionURL": metastore}
conf |= {"spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.sql.shuffle.partitions": "2"}
spark = build_session(master="local[2]", conf=SHORT_JOBS | conf, functions=False)
print(json.dumps([[list(row) for row in spark.sql(statement).collect()] for statement in statements], default=str))
spark.stop()
"""


def in_a_session(folder: Path, *statements: str) -> list[list[list[Any]]]:
    """The rows of each statement, run in a new session with the metastore in `folder`."""
    call = [sys.executable, "-c", _SESSION, str(folder), json.dumps(statements)]
    run = subprocess.run(call, cwd=PROJECT, stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    rows: list[list[list[Any]]] = json.loads(run.stdout.splitlines()[-1])
    return rows


def shown(lake: Path, word: str) -> list[str]:
    """The statements of the page's SQL block that has the word, for this lake."""
    blocks = re.findall(r"^```sql\n(.*?)^```", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    [block] = [block for block in blocks if word in block]
    return [statement.strip() for statement in block.replace("/data/lake", str(lake)).split(";\n") if statement.strip()]


def test_other_sessions_see_the_tables_by_name(spark: SparkSession, tmp_path: Path) -> None:
    store, lake = tiny_store(tmp_path / "store", [("TopicA", 0), ("TopicB", 1)]), tmp_path / "lake"
    import_as(spark, lake, store)
    tables, views = shown(lake, "USING delta"), shown(lake, "CREATE OR REPLACE VIEW")
    *_, written = in_a_session(tmp_path, *tables, *views)
    statements = [text for (text,) in written]
    assert len(statements) == len(Lake(spark, str(lake)).at.tables)
    in_a_session(tmp_path, *statements)
    counted = [
        "SELECT topic, count(*) FROM rocketmq.commit_log_newest GROUP BY topic ORDER BY topic",
        "SELECT topic, count(*) FROM rocketmq.commit_log GROUP BY topic ORDER BY topic",
    ]
    of_store = [["TopicA", MESSAGES], ["TopicB", MESSAGES]]
    # rows that are in no version of the lake: the table shows them, the view does not
    begun = "INSERT INTO rocketmq.commit_log_newest SELECT * FROM rocketmq.commit_log WHERE topic = 'TopicB'"
    assert in_a_session(tmp_path, *counted, begun, *counted) == [of_store] * 2 + [[]] + [[of_store[0], ["TopicB", 2 * MESSAGES]], of_store]
