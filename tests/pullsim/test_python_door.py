"""`import pullsim` without Spark: rows and pages as the commands give them, displays, errors."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pullsim
from pipeline.commands.engine import Engine
from pipeline.lake.lake_errors import LakeError
from pipeline.main import run
from tests.makers.plain_lakes import plain_lake
from tests.truth.places import PROJECT

END = 1_700_000_100_000
GROUPS = ("<b>g</b>", "it's", "g")
LARGE = 2**53 + 1  # not a double


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three groups with an offset of a queue of LARGE + 9 messages, and none of another queue of the topic."""
    queue = {"brokerName": "b", "topic": "t", "queueId": 0}
    offsets = [queue | {"consumerGroup": group, "consumerOffset": LARGE + number} for number, group in enumerate(GROUPS)]
    return plain_lake(
        tmp_path_factory.mktemp("door") / "lake",
        {
            "broker": [{"brokerName": "b", "maxStoreTimestamp": END, "minPhyOffset": 0}],
            "queue": [queue | {"minOffset": 0, "maxOffset": LARGE + 9}, queue | {"queueId": 1, "minOffset": 0, "maxOffset": 4}],
            "consumer_offset": offsets,
        },
    )


@pytest.fixture
def lake(path: Path) -> pullsim.Lake:
    return pullsim.open(path)


def of_command(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict[str, Any]]:
    assert run([*map(str, words), "--format", "json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_import_takes_no_engine() -> None:
    script = "import sys; import pullsim; print(sorted(sys.modules.keys() & {'pyspark', 'pandas', 'polars', 'duckdb', 'pyarrow', 'numpy'}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_rows_are_those_of_the_commands_in_each_form(lake: pullsim.Lake, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = of_command(capsys, "lag", "--lake", path)
    lags = {(row["consumerGroup"], row["queueId"]): row["lag"] for row in wanted}
    assert lags == {(group, queue): None if queue else 9 - number for number, group in enumerate(GROUPS) for queue in (0, 1)}
    assert lake.lag().arrow().to_pylist() == wanted
    assert lake.lag().polars().to_dicts() == wanted
    shown = lake.lag(group="g").pandas()
    assert (shown["consumerOffset"][0], shown["consumerOffset"].isna().tolist()) == (LARGE + 2, [False, True])
    asked = "SELECT consumerGroup, sum(lag) AS total, count(*) FROM consume_lag GROUP BY consumerGroup ORDER BY total"
    found = lake.sql(asked)
    assert found.arrow().to_pylist() == of_command(capsys, "sql", asked, "--lake", path)
    assert found.arrow().schema.types == [pa.string(), pa.int64(), pa.int64()]
    assert (found.columns, len(found)) == (["consumerGroup", "total", "count(1)"], 3)


def test_statements_that_describe_give_rows(lake: pullsim.Lake) -> None:
    assert "consume_lag" in lake.sql("SHOW TABLES").arrow()["tableName"].to_pylist()
    assert lake.sql("DESCRIBE queue").columns == ["col_name", "data_type", "comment"]


def test_a_notebook_and_a_terminal_show_names_as_they_are(lake: pullsim.Lake) -> None:
    html = lake.lag()._repr_html_()
    assert "&lt;b&gt;g&lt;/b&gt;" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 1 + 6
    assert "6 rows; Diff Total: 24 (3 of 6 queues left out: their lag is not known)" in html
    assert repr(lake.sql("SELECT 1 AS a, 'x\x1b[2J' AS b")) == "a  b\n1  x\\x1b[2J\n(1 row)"
    many = lake.sql("SELECT a.queueId, a.queueId FROM consumer_offset a CROSS JOIN consumer_offset b CROSS JOIN consumer_offset c")
    assert repr(many).endswith("(the first 20 of 27 rows)")


def test_lag_says_what_of_it_is_deleted(tmp_path: Path) -> None:
    queue = {"brokerName": "b", "topic": "t", "queueId": 0}
    tables = {
        "broker": [{"brokerName": "b", "maxStoreTimestamp": END, "minPhyOffset": 0}],
        "queue": [queue | {"minOffset": 10, "maxOffset": 20}],
        "consumer_offset": [queue | {"consumerGroup": "g", "consumerOffset": 4}],
    }
    shown = repr(pullsim.open(plain_lake(tmp_path / "lake", tables)).lag())
    assert shown.endswith("(1 row; Diff Total: 16 (6 of them deleted before they were consumed, see pullsim retention))")


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], {}),
        (["--group", "it's", "--topic", "t", "--broker", "b"], {"group": "it's", "topic": "t", "broker": "b"}),
        (
            ["--from", "2023-11-14T22:13:20", "--to", str(END)],
            {"from_": dt.datetime(2023, 11, 14, 22, 13, 20), "to": END},  # noqa: DTZ001 (in UTC, as the command takes it)
        ),
    ],
)
def test_the_page_is_that_of_the_command(lake: pullsim.Lake, path: Path, tmp_path: Path, words: list[str], given: dict[str, Any]) -> None:
    assert run(["report", "--lake", str(path), "--out", str(tmp_path / "command.html"), *words]) == 0
    page = lake.report(**given)
    page.save(tmp_path / "door.html")
    assert (tmp_path / "door.html").read_text("utf-8") == page.html
    made = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
    assert made.sub("", page.html) == made.sub("", (tmp_path / "command.html").read_text("utf-8"))
    assert page._repr_html_().count("<") == 2, "the page lies in an attribute"


def test_each_call_reads_the_newest_version(tmp_path: Path) -> None:
    row = {"brokerName": "b", "topic": "t", "queueId": 0, "consumerGroup": "g", "consumerOffset": 1}
    lake = pullsim.open(plain_lake(tmp_path / "lake", {"consumer_offset": [row]}))
    assert len(lake.sql("SELECT * FROM consumer_offset")) == 1
    plain_lake(tmp_path / "lake", {"consumer_offset": [row | {"queueId": 1}]}, version=2)
    assert len(lake.sql("SELECT * FROM consumer_offset")) == 2


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda lake: lake.lag(group="gg"), "the lake knows no consumer group 'gg'; the nearest known: 'g'"),
        (lambda lake: lake.lag(topic="x"), "the lake knows no topic 'x'"),
        (lambda lake: lake.lag(broker="c"), "expected broker 'c', found 'b'"),
        (lambda lake: lake.report(broker="c"), "expected broker 'c', found 'b'"),
        (lambda lake: lake.report(group="gg"), "the lake knows no consumer group 'gg'; the nearest known: 'g'"),
        (lambda lake: lake.report(topic="x"), "the lake knows no topic 'x'"),
        (lambda lake: lake.report(from_=END, to=END), "from_: expected a time before that of to"),
        (lambda lake: lake.report(to=dt.datetime(1969, 12, 31, tzinfo=dt.UTC)), "to: expected a time from 1970 to the year 9999"),
        (lambda lake: lake.report(to=-1), "to: expected a time from 1970 to the year 9999, found -1"),
        (lambda lake: lake.sql("SELECT lagg FROM consume_lag"), "line 1, column 8: there is no column 'lagg'"),
        (lambda lake: lake.sql("SELECT * FROM consum_lag"), "the nearest known: consume_lag"),
        (lambda lake: lake.sql("SELECT sum(9223372036854775807) AS x FROM consumer_offset"), "a sum is greater than a BIGINT"),
        (lambda lake: pullsim.open(f"{lake.path}/none"), "expected a lake, found no table lake_version"),
        (lambda lake: pullsim.open(lake.path, engine="duckdb").sql("SELECT upper(topic) AS x FROM queue"), "which is left to Spark"),
        (lambda lake: lake.report().save("no/folder/report.html"), "expected a folder that holds the file"),
    ],
)
def test_bad_input_is_told_in_one_sentence(lake: pullsim.Lake, ask: Any, told: str) -> None:
    with pytest.raises(pullsim.Error) as error:
        ask(lake)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_what_cannot_be_asked_of_a_call_is_said(lake: pullsim.Lake) -> None:
    with pytest.raises(ValueError, match=r'engine: expected "auto", "duckdb" or "spark", found \'duck\''):
        pullsim.open(lake.path, engine="duck")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="DuckDB gave these rows"):
        lake.lag().spark()


@pytest.mark.parametrize("package", ["polars", "pandas"])
def test_a_package_that_is_not_installed_is_named(lake: pullsim.Lake, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    rows = lake.lag()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"{package} is not installed: install it with `pip install {package}`, or take arrow"):
        getattr(rows, package)()


def test_spark_is_taken_only_for_what_duckdb_leaves(lake: pullsim.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_session(**_: Any) -> None:
        raise LakeError("Spark was taken")

    monkeypatch.setattr("pullsim.session.session", no_session)
    monkeypatch.setattr(Engine, "session", no_session)
    assert len(lake.lag()) == 6
    for ask in (
        lambda: lake.sql("SELECT upper(topic) AS x FROM queue"),
        lambda: pullsim.open(lake.path, engine="spark").lag(),
        lambda: pullsim.open(lake.path, engine="spark").report(),
    ):
        with pytest.raises(LakeError, match="Spark was taken"):
            ask()
