"""`pullsim report`: one page that loads nothing, says what the lake holds, and shows names as they are, whatever they are."""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from markupsafe import Markup

from pipeline.embedded.database import EmbeddedLake
from pipeline.lake.lake import Lake
from pipeline.lake.views import create_views
from pipeline.main import run
from pipeline.report.build import QUESTIONS
from pipeline.report.questions.behind_now import BEHIND_NOW
from pipeline.report.questions.lag_over_time import LAG_OVER_TIME
from pipeline.report.scope import Scope
from pipeline.report.window import Window
from pipeline.schema import tables as t
from pipeline.schema.capture_tables import OFFSET_HISTORY, PULL_REQUEST
from tests.makers.report_lakes import BROKER, HOSTILE, OBSERVED_TABLE, START, TOPIC, hostile_rows, observed_rows, report_lake
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.sampling import slow_proof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALONE = {"meta", "link", "br", "img", "input", "hr", "path", "use", "rect"}
# what the command line takes for the wall clock
NOW = "pipeline.commands.report_commands.now", lambda: dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
# elements that the template and the pictures are made of: nothing that runs or loads
KNOWN = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "h1",
        "h2",
        "dl",
        "div",
        "dt",
        "dd",
        "main",
        "section",
        "ul",
        "li",
        "span",
        "a",
        "nav",
    ),
    *("p", "figure", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre", "code", "footer", "b", "bdi"),
    *("svg", "g", "path", "defs", "clippath", "use", "text", "rect", "style"),
}


class Page(HTMLParser):
    """What a page is made of: elements, attributes, texts by element."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.found: set[str] = set()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: dict[str, list[str]] = defaultdict(list)
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in ALONE or not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open += [] if tag == "meta" else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]].append(data)


def shown(name: str) -> str:
    """A name as the page shows it."""
    pictures = {"\0": "\u2400", "\x07": "\u2407", "\u202e": "\ufffd", "\u2028": "\ufffd"}
    return "".join(pictures.get(char, char) for char in name)


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*NOW)


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_lake(tmp_path_factory.mktemp("report") / "lake of 'mine'", hostile_rows())


@pytest.fixture(scope="module")
def html(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page about the lake of hostile names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*NOW)
        return written("--lake", lake, "--out", tmp_path_factory.mktemp("page") / "report.html")


def written(*words: object) -> str:
    """The page that a report without Spark writes."""
    assert run(["report", *map(str, words), "--engine", "duckdb"]) == 0
    return Path(str(words[words.index("--out") + 1])).read_text("utf-8")


def test_the_page_runs_and_loads_nothing_and_shows_names_as_they_are(html: str) -> None:
    page = Page(html)
    assert page.open == []
    assert page.found <= KNOWN, page.found - KNOWN
    assert not [one for one in page.attributes if one[1].startswith("on") or one[1] in {"src", "srcset", "action", "formaction"}]
    assert all((value or "").startswith("#") for _, name, value in page.attributes if name.endswith("href"))
    assert not re.search(r"@import|url\((?!#)|https?://", html)
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    names = set(page.texts["bdi"])
    assert {shown(name) for name in (*HOSTILE, TOPIC, BROKER)} <= names
    assert "2024-01-01 12:00:00" in page.texts["span"], "when it was made"
    titles = "".join(page.texts["title"])
    assert all(shown(name) in titles for name in HOSTILE), "tooltips of the picture of lag"
    sections = {value for tag, name, value in page.attributes if (tag, name) == ("section", "id")}
    assert sections == {"summary", *(question.anchor for question in QUESTIONS)}


@slow_proof
def test_spark_writes_the_same_page(pullsim: Pullsim, lake: Path, html: str, tmp_path: Path) -> None:
    assert pullsim("report", "--lake", lake, "--out", tmp_path / "report.html", "--engine", "spark")[0] == 0
    assert (tmp_path / "report.html").read_text("utf-8") == html


def test_the_summary_says_what_the_lake_holds(html: str) -> None:
    said = html[html.index('id="summary"') : html.index('id="behind"')]
    said = said.replace("<b>", "").replace("</b>", "").replace("\N{NO-BREAK SPACE}", " ")
    assert f"8 of 8 groups are behind, {Markup('<bdi>{}</bdi>').format(HOSTILE[0])} the furthest: 200 messages" in said
    assert "160 pulls were captured: 25 % brought messages" in said
    assert "40 pulls were sent to another offset than they asked for" in said
    assert "let nothing pass in 67 % of its 15 pulls" in said
    assert "5 messages were deleted before a group had consumed them, in 1 queue" in said
    assert "gets 1.9 × its share: 195 messages, 93 % of the topic" in said


@slow_proof
def test_the_sql_in_the_page_is_what_was_asked_and_runs_by_itself(
    pullsim: Pullsim, spark: SparkSession, lake: Path, tmp_path: Path
) -> None:
    assert pullsim("report", "--lake", lake, "--out", tmp_path / "report.html", "--broker", BROKER)[0] == 0
    texts = Page((tmp_path / "report.html").read_text("utf-8")).texts["code"]
    queries = [text for text in texts if "SELECT" in text]
    assert len(queries) == len(QUESTIONS) + 4, "one a question, two of slow queues, of corrections, of losses and of topics"
    session = create_views(Lake(spark, str(lake)))
    assert all("LIMIT" in query or "bins of" in query for query in queries), "rows are bounded"
    [without_rows] = [query for query in queries if session.sql(query).isEmpty()]
    assert "sentBack" in without_rows, "no group of this lake has sent messages back"


def test_captured_lag_is_the_end_of_the_queue_less_the_last_offset_that_was_told(lake: Path) -> None:
    window = Window(START, 5000, 4)
    scope = Scope("lake", (BROKER,), captured=window)
    [query] = LAG_OVER_TIME.queries(scope)
    [told] = EmbeddedLake(str(lake)).asked([query])
    found = {(row["consumerGroup"], row["bin"]): row["lag"] for row in told}
    rows = hostile_rows()
    wanted = {}
    for group in HOSTILE:
        for number in range(window.bins):
            before = (START + 5000 * (number + 1)) * 1000
            last = max(
                (row["micros"], row["consumerOffset"])
                for row in rows[OFFSET_HISTORY]
                if row["consumerGroup"] == group and row["micros"] < before
            )
            stored = [
                row["queueOffset"] + 1 for row in rows[t.CONSUME_QUEUE] if row["queueId"] == 0 and row["storeTimestamp"] * 1000 < before
            ]
            answered = [row["recordedMaxOffset"] for row in rows[PULL_REQUEST] if row["answerMicros"] < before]
            wanted[group, number] = max(*stored, *answered) - last[1]
    assert found == wanted


def test_what_waits_in_one_queue_does_not_hide_in_an_offset_past_the_end_of_another(spark: SparkSession) -> None:
    lags = [("hidden", "t", 100), ("hidden", "t", -1000), ("retrying", "t", -5), ("retrying", "%RETRY%retrying", 3), ("unknown", "t", None)]
    rows = [("b", *lag, 10, 5) for lag in [*lags, ("done", "t", 0)]]
    names = "brokerName STRING, consumerGroup STRING, topic STRING, lag BIGINT, lagBytes BIGINT, lagMillis BIGINT"
    spark.createDataFrame(rows, names).createOrReplaceTempView("consume_lag")
    ends = "brokerName STRING, topic STRING, minOffset BIGINT, maxOffset BIGINT"
    spark.createDataFrame([("b", "%DLQ%hidden", 1, 4)], ends).createOrReplaceTempView("queue")
    [query] = BEHIND_NOW.queries(Scope("lake", ("b",), imported=True))
    found = spark.sql(query).collect()
    assert [(row["consumerGroup"], row["messagesBehind"], row["retriesBehind"], row["dlqMessages"]) for row in found] == [
        ("hidden", 100, None, 3),
        ("retrying", 0, 3, 0),
        ("done", 0, None, 0),
        ("unknown", None, None, 0),
    ]
    assert {(row["groups"], row["groupsBehind"], row["queuesUnknownInAll"]) for row in found} == {(4, 2, 1)}


@slow_proof
def test_observed_lag_comes_before_captured_lag(tmp_path: Path) -> None:
    lake = report_lake(tmp_path / "lake", hostile_rows() | {OBSERVED_TABLE: observed_rows()})
    html = written("--lake", lake, "--out", tmp_path / "report.html")
    section = html[html.index('<section id="lag"') : html.index('<section id="slow"')]
    assert "that were observed" in section
    assert "<b>114</b> messages at 11-14 22:15" in section
    assert "100 at first and <b>114</b> in the end" in section


def test_what_has_no_data_says_why_and_which_command_brings_it(tmp_path: Path) -> None:
    lake = report_lake(tmp_path / "lake", {t.CONSUMER_OFFSET: []}, broker="b")
    page = Page(written("--lake", lake, "--out", tmp_path / "report.html"))
    commands = [text for text in page.texts["code"] if text.startswith("pullsim ") and "…" not in text]
    assert {" ".join(text.split()[:2]) for text in commands} == {"pullsim import", "pullsim capture", "pullsim replay", "pullsim lag"}
    assert all(f"--lake {tmp_path / 'lake'}" in text for text in commands)
    assert len(page.texts["h2"]) == len(QUESTIONS) + 1
    assert "svg" not in page.found


@pytest.mark.parametrize(
    ("timed", "told"),
    [
        (20, "-- pulls in each of 39 bins of 500 ms"),  # 19 s, and the answer to the last
        (0, "The clock of the capture gave times before 1970 or after the year 9999"),
    ],
)
def test_captured_traffic_alone_has_a_broker_whatever_its_clock_said(tmp_path: Path, timed: int, told: str) -> None:
    pulls = hostile_rows()[PULL_REQUEST][:20]
    # later than any calendar goes, up to the last time of pcapng; the pulls count, and have no place in a picture
    odd = [
        {**pulls[0], "sequence": 20 + n, "arrivalMicros": at, "answerMicros": at} for n, at in enumerate((3 * 10**17, 4 * 10**18, 2**62))
    ]
    lake = report_lake(tmp_path / "lake", {PULL_REQUEST: [*pulls[:timed], *odd]}, broker="sniffed")
    html = (
        written("--lake", lake, "--out", tmp_path / "report.html", "--broker", "sniffed", "--topic", TOPIC)
        .replace("<b>", "")
        .replace("</b>", "")
    )
    assert f"{timed + 3} pulls were captured" in html
    assert told in html
    assert "No pulls were captured" not in html


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--out", "nowhere/report.html"], "expected a folder that holds the file"),
        (["--broker", "c", "--out", "x.html"], "expected broker 'c'"),
    ],
)
def test_a_page_that_cannot_be_ends_with_2_before_anything_is_asked(
    lake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["report", "--lake", str(lake), *arguments]) == 2
    assert named in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
