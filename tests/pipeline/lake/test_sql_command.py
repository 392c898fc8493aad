"""`pullsim sql`: what a query prints in each form, and how bad input ends."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import LakeWriter
from pipeline.schema import tables as t
from pipeline.terminal import show_values
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.sampling import slow_proof
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = r"""
SELECT * FROM VALUES
  (1, 'plain', true, 1.50BD, X'00ff', TIMESTAMP '2022-05-01 00:00:00', named_struct('queueId', 3, 'sizes', array(1, 2)), map('k', X'01')),
  (2, 'a, "b"\nc', false, NULL, NULL, NULL, NULL, NULL),
  (3, '', NULL, -0.25BD, X'', TIMESTAMP '2022-05-01 00:00:00.123', named_struct('queueId', NULL, 'sizes', array()), map())
AS rows(id, text, yes, number, bytes, at, struct, map) ORDER BY id
"""
NAMES = ["id", "text", "yes", "number", "bytes", "at", "struct", "map"]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with one table written, the others not."""
    folder = tmp_path_factory.mktemp("sql") / "lake, with 'quotes'"
    writer = LakeWriter(Lake(spark, str(folder)), run_id="run", what="import", broker="broker-a")
    row = ("broker-a", "group-a", "topic-a", 0, 7)
    writer.prepare(t.CONSUMER_OFFSET, "partitioned")
    writer.replace_broker(t.CONSUMER_OFFSET, spark.createDataFrame([row], t.CONSUMER_OFFSET.schema))
    writer.commit(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    return folder


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def test_json_is_an_object_a_line_with_nulls_and_nested_fields_by_name(pullsim: Pullsim, lake: Path) -> None:
    code, out, _ = pullsim("sql", "--lake", lake, VALUES, "--format", "json")
    first, second, third = map(json.loads, out.splitlines())
    assert code == 0
    assert list(first) == NAMES
    assert first["struct"] == {"queueId": 3, "sizes": [1, 2]}
    assert (first["number"], first["bytes"], first["at"], first["map"]) == ("1.50", "00ff", "2022-05-01T00:00:00", {"k": "01"})
    assert second == dict(zip(NAMES, [2, 'a, "b"\nc', False, *[None] * 5], strict=True))
    assert (third["text"], third["yes"], third["struct"], third["map"]) == ("", None, {"queueId": None, "sizes": []}, {})


def test_csv_has_a_header_and_quotes_commas_and_lines(pullsim: Pullsim, lake: Path) -> None:
    code, out, _ = pullsim("sql", "--lake", lake, VALUES, "--format", "csv")
    header, first, second, third = csv.reader(io.StringIO(out, newline=""))
    assert code == 0
    assert header == NAMES
    assert first == ["1", "plain", "true", "1.50", "00ff", "2022-05-01 00:00:00", '{"queueId": 3, "sizes": [1, 2]}', '{"k": "01"}']
    assert second == ["2", 'a, "b"\nc', "false", "", "", "", "", ""]
    assert third[:3] == ["3", "", ""]


def test_csv_of_no_rows_is_the_header(pullsim: Pullsim, lake: Path) -> None:
    assert pullsim("sql", "--lake", lake, "SELECT topic, lag FROM consume_lag WHERE false", "--format", "csv")[:2] == (0, "topic,lag\n")


def test_the_table_writes_null_out_and_cuts_nothing(pullsim: Pullsim, lake: Path) -> None:
    code, out, _ = pullsim("sql", "--lake", lake, "SELECT repeat('x', 3000) AS long, CAST(NULL AS INT) AS number, 'last' AS word")
    header, line = out.splitlines()
    assert code == 0
    assert header.split() == ["long", "number", "word"]
    assert line.split() == ["x" * 3000, "NULL", "last"]


def test_numbers_are_in_line_on_the_right_and_text_on_the_left(pullsim: Pullsim, lake: Path) -> None:
    _, out, _ = pullsim("sql", "--lake", lake, "SELECT * FROM VALUES (1.5, 'b'), (-20.25, 'ccc'), (NULL, 'd') AS rows(number, text)")
    assert [line.rstrip() for line in out.splitlines()] == ["number  text", "  1.50  b", "-20.25  ccc", "  NULL  d"]


def test_the_tables_the_views_and_the_functions_are_there(pullsim: Pullsim, lake: Path) -> None:
    query = "SELECT l.reason, o.consumerOffset, tags_code('TagA') AS code FROM consume_lag l JOIN consumer_offset o USING (consumerGroup)"
    _, out, _ = pullsim("sql", "--lake", lake, query, "--format", "json")
    assert json.loads(out) == {"reason": "NO_QUEUE", "consumerOffset": 7, "code": 2598919}


@slow_proof
def test_a_table_is_found_whose_name_the_query_puts_together(pullsim: Pullsim, lake: Path) -> None:
    query = "SELECT consumerOffset FROM IDENTIFIER('consumer' || '_offset')"
    assert pullsim("sql", "--lake", lake, query, "--format", "csv")[:2] == (0, "consumerOffset\n7\n")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELEKT 1", "SELEKT"),
        ("SELECT nonsense FROM consume_lag", "nonsense"),
        ("SELECT * FROM consume_lagg", "'consume_lagg'; the nearest known: consume_lag,"),
        ("SELECT consumerGrup FROM consume_lag", "`consumerGroup`"),
        ("SELECT tag_code('a')", "there is no function 'tag_code'; the nearest known: tags_code,"),
        ("SELECT * FROM queue_stat()", "there is no function 'queue_stat'; the nearest known: queue_status,"),
        (" ", '"SHOW TABLES" lists what can be asked'),
    ],
)
def test_a_query_that_spark_refuses_ends_with_2_and_names_the_place(pullsim: Pullsim, lake: Path, query: str, named: str) -> None:
    code, out, err = pullsim("sql", "--lake", lake, query)
    assert (code, out) == (2, "")
    assert named in err
    assert "+-" not in err, "what Spark makes of a query is of no use to who asked it"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM text.`{file}`",
        "SELECT * FROM IDENTIFIER('text.`' || '{file}' || '`')",
        "SELECT * FROM IDENTIFIER('delta.`' || '{lake}/consumer_offset' || '`')",
        "INSERT OVERWRITE DIRECTORY '{folder}' USING csv SELECT 1",
        "CREATE TABLE x USING csv LOCATION '{folder}' AS SELECT 1",
        "DELETE FROM delta.`{lake}/consumer_offset`",
        "SELECT java_method('java.lang.System', 'setProperty', 'pullsim.hostile', 'x')",
        "SELECT TRANSFORM(1) USING 'touch {folder}' AS (a)",
    ],
)
def test_a_query_reads_the_lake_and_nothing_else(pullsim: Pullsim, lake: Path, tmp_path: Path, query: str) -> None:
    file, folder = tmp_path / "secret.txt", tmp_path / "written"
    file.write_text("a secret\n")
    code, out, err = pullsim("sql", "--lake", lake, query.format(file=file, folder=folder, lake=str(lake).replace("'", "\\'")))
    assert (code, out) == (2, ""), err
    assert "secret" not in err.replace(str(file), "")
    assert not folder.exists()
    assert pullsim("sql", "--lake", lake, "SELECT count(*) AS n FROM consumer_offset", "--format", "csv")[1] == "n\n1\n"


def test_with_leave_a_query_reads_other_files(pullsim: Pullsim, lake: Path, tmp_path: Path) -> None:
    (tmp_path / "open.txt").write_text("open\n")
    query = " ".join(("SELECT value FROM", f"text.`{tmp_path}/open.txt`"))
    assert pullsim("sql", "--lake", lake, "--allow-files", query, "--format", "csv")[:2] == (0, "value\nopen\n")


def test_a_command_that_there_is_not_is_answered_with_the_nearest(pullsim: Pullsim) -> None:
    code, out, err = pullsim("replya", "--lake", "lake")
    assert (code, out) == (2, "")
    assert "there is no command 'replya'; the nearest known: replay" in err


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("csv", "given,consumedAll,caughtUpSeconds\nx,true,\n"),
        ("json", '{"given": "x", "consumedAll": true, "caughtUpSeconds": null}\n'),
        ("table", "given  consumedAll  caughtUpSeconds\nx      true                    NULL\n"),
    ],
)
def test_values_at_hand_are_told_as_rows_of_the_lake_are(capsys: pytest.CaptureFixture[str], form: str, told: str) -> None:
    show_values(["given", "consumedAll", "caughtUpSeconds"], [["x", True, None]], form)
    assert "\n".join(line.rstrip() for line in capsys.readouterr().out.split("\n")) == told


@pytest.mark.parametrize(("terminal", "bold"), [(True, True), (False, False)])
def test_only_a_terminal_gets_a_header_in_bold(
    pullsim: Pullsim, lake: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, bold: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    _, out, _ = pullsim("sql", "--lake", lake, "SELECT 1 AS one")
    assert ("\x1b[1m" in out) == bold


@pytest.mark.parametrize("command", [["sql", "SELECT 1"], ["lag"]])
def test_a_path_that_is_no_lake_ends_with_2_and_says_how_to_fill_it(pullsim: Pullsim, tmp_path: Path, command: list[str]) -> None:
    code, out, err = pullsim(*command, "--lake", tmp_path / "nothing")
    assert (code, out) == (2, "")
    assert f"pullsim import STORE --lake {tmp_path / 'nothing'}" in err
    assert not (tmp_path / "nothing").exists()


@slow_proof
def test_the_console_script_prints_rows_on_stdout_and_nothing_else(lake: Path) -> None:
    command = [sys.executable, "-m", "pipeline.main", "sql", "--lake", str(lake), "SELECT topic, consumerOffset FROM consumer_offset"]
    done = subprocess.run(
        [*command, "--format", "csv"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "topic,consumerOffset\ntopic-a,7\n"), done.stderr
