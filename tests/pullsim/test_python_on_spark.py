"""`import pullsim` on Spark: the page and the docstrings run as they are, and calls answer as the commands do."""

from __future__ import annotations

import doctest
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.sql import functions as F

import pullsim
from pipeline.files.unpacking import unpack
from pipeline.settings.settings import SettingsError
from pullsim import lake as lakes
from pullsim import rows, shown
from tests.runs.in_session import pullsim_in
from tests.runs.sampling import slow_proof
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEMO = PROJECT / "pipeline" / "demo_data"
PAGE = PROJECT / "docs" / "python.md"
TRACE = [json.loads(line) for line in (PROJECT / "examples" / "trace.jsonl").read_text("utf-8").splitlines()[1:]]
CONFIG = json.loads((PROJECT / "examples" / "trace.jsonl").read_text("utf-8").splitlines()[0])["config"]


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example's store, its broker.conf, requests, and a lake."""
    folder = tmp_path_factory.mktemp("python")
    with tarfile.open(DEMO / "broker-a.tar.xz") as archive:
        unpack(archive, folder, archive)
    shutil.copy(DEMO / "broker-a.conf", folder)
    for name in ("pulls.jsonl", "traffic.pcap"):
        shutil.copy(PROJECT / "examples" / name, folder)
    found = pullsim.import_store(folder / "broker-a", folder / "lake", properties=folder / "broker-a.conf", spark=spark)
    assert found.path == str(folder / "lake")
    return folder


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@slow_proof
def test_examples_of_docstrings_give_what_they_show() -> None:
    finder, runner = doctest.DocTestFinder(recurse=True), doctest.DocTestRunner()
    tried = [
        runner.run(test) for module in (lakes, rows, shown) for test in finder.find(module, globs={"pullsim": pullsim}) if test.examples
    ]
    assert [one.failed for one in tried] == [0] * len(tried)
    public = [
        lakes.open,
        lakes.import_store,
        *(getattr(pullsim.Lake, name) for name in ("sql", "lag", "report", "explain", "replay", "capture")),
    ]
    assert all(">>>" in (one.__doc__ or "") for one in public)


@slow_proof
def test_the_page_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len([line for line in blocks[0].splitlines() if line]) <= 5, "five lines to the first answer"
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {})  # noqa: S102 (our own page)
    out = capsys.readouterr().out
    assert "Diff Total: 576" in out
    assert "OFFSET_OVERFLOW_ONE" in out, "of offset 395, the end of queue 2"
    assert "what" in out, "the head of the table of entries"


def request_frame() -> pl.DataFrame:
    fields = ("group", "topic", "queueId", "offset", "maxMsgNums", "timestamp")
    asked = [line["request"] for line in TRACE]
    return pl.DataFrame(
        [
            {name: one.get(name) for name in fields}
            | {"filterType": (one["filter"] or {}).get("type"), "expression": (one["filter"] or {}).get("expression")}
            for one in asked
        ],
        infer_schema_length=None,
    )


# test_request_frames.py reads each form without Spark, and the page above replays a frame of Polars
@pytest.mark.parametrize("kind", [*(pytest.param(kind, marks=slow_proof) for kind in ("polars", "arrow")), "pandas", "spark"])
def test_frames_of_requests_get_the_recorded_answers(spark: SparkSession, kind: str) -> None:
    frame = request_frame()
    forms: dict[str, Any] = {"polars": frame, "arrow": frame.to_arrow(), "pandas": frame.to_pandas()}
    given: Any = forms[kind] if kind in forms else spark.createDataFrame(frame.to_pandas()).coalesce(1)
    if kind == "pandas":  # rows that a filter kept have an index of their own
        given = given.set_index(given.index + 5)
    if kind == "spark":
        given = given.withColumn("timestamp", F.expr("CAST(timestamp_millis(CAST(timestamp AS BIGINT)) AS TIMESTAMP_NTZ)"))
    settings = {name: value for name, value in CONFIG.items() if name.startswith(("accessMessage", "maxTransfer", "totalPhysical"))}
    assert len(settings) == 6
    found = pullsim.open("lake").replay(given, settings=settings).arrow().to_pylist()
    names = ("status", "nextBeginOffset", "minOffset", "maxOffset", "messageCount", "bufferTotalSize")
    assert [[row[name] for name in names] for row in found] == [[line["response"][name] for name in names] for line in TRACE]
    assert not list(Path("lake").glob("_requests*"))


@slow_proof
def test_spark_and_duckdb_give_the_same_rows(spark: SparkSession) -> None:
    on_spark, at_once = pullsim.open("lake", spark=spark), pullsim.open("lake", engine="duckdb")
    query = "SELECT consumerGroup, sum(lag) AS lag, count(*) FROM consume_lag GROUP BY consumerGroup ORDER BY consumerGroup"
    for ask in (lambda lake: lake.lag(topic="orders"), lambda lake: lake.sql(query)):
        wanted, found = ask(on_spark).arrow(), ask(at_once).arrow()
        assert found.equals(wanted.cast(found.schema))
        assert found.schema.types == wanted.schema.types
    assert on_spark.sql(query).spark().count() == len(at_once.sql(query))
    assert pullsim.open("lake").sql("SELECT upper('a') AS x").arrow().to_pylist() == [{"x": "A"}]


@slow_proof
def test_an_explanation_is_that_of_the_command(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = pullsim_in(spark, monkeypatch, capsys)
    words = ("explain", "--lake", "lake", "--group", "g-tag", "--topic", "orders", "--queue", "1", "--offset", "91", "--expression", "paid")
    text, facts = command(*words)[1], json.loads(command(*words, "--format", "json")[1])
    why = pullsim.open("lake").explain(group="g-tag", topic="orders", queue_id=1, offset=91, expression="paid")
    assert (why.text, why.facts) == (text, facts)
    assert why._repr_html_().startswith("<pre>")


@pytest.mark.parametrize(
    ("ask", "error", "told"),
    [
        (lambda lake: lake.replay("none.jsonl"), pullsim.Error, "none.jsonl"),
        (
            lambda lake: lake.replay(pl.DataFrame({"group": ["g"], "topic": ["t"], "queueId": [0]})),
            pullsim.Error,
            "found none named offset",
        ),
        (lambda lake: lake.replay(request_frame().rename({"expression": "expresion"})), pullsim.Error, "the nearest known: expression"),
        (
            lambda lake: lake.replay(request_frame().with_columns(pl.lit(None).alias("filterType"))),
            pullsim.Error,
            "a filter that is null or",
        ),
        (lambda lake: lake.replay(7), pullsim.Error, "expected a path, or a frame of pandas, Polars, Arrow or Spark, found int"),
        (lambda lake: lake.replay("pulls.jsonl", settings={"maxTransferCount": 8}), SettingsError, "maxTransferCount"),
        (lambda lake: lake.replay("pulls.jsonl", broker="b"), pullsim.Error, "expected broker 'b', found 'broker-a'"),
        (lambda _: pullsim.import_store("broker-a", "uncaptured").replay(), pullsim.Error, "captured"),
        (lambda lake: lake.explain(group="g"), TypeError, "expected group, topic, queue_id and offset"),
        (lambda lake: lake.explain(group="g", request="r"), TypeError, "or else request alone"),
        (lambda lake: lake.explain(request="r"), pullsim.Error, "expected the requestId of a captured pull"),
        (lambda lake: lake.sql("CREATE TABLE x AS SELECT 1"), pullsim.Error, "CREATE"),
        (lambda lake: pullsim.import_store("none", "other"), pullsim.Error, "none"),
    ],
)
def test_bad_input_is_told(ask: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=re.escape(told)):
        ask(pullsim.open("lake"))
    assert not Path("other").exists()
