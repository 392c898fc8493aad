"""`pullsim sql` without a query on the command line: files, standard input, and the prompt."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from pipeline.commands.engine import Engine
from pipeline.commands.sql_statements import Answers, completer, prompting, run_prompt, statements
from pipeline.embedded import questions
from pipeline.embedded.database import EmbeddedLake
from pipeline.embedded.translation import parsed
from pipeline.main import run
from tests.makers.plain_lakes import plain_lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    row = {"brokerName": "b", "consumerGroup": "g", "topic": "t", "queueId": 0, "consumerOffset": 7}
    return plain_lake(tmp_path_factory.mktemp("statements") / "lake", {"consumer_offset": [row]})


def pullsim(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = run([str(word) for word in words])
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT ';' AS a; -- b;\nSELECT 2;\n;;", ["SELECT ';' AS a", "-- b;\nSELECT 2"]),
        ("SELECT 'it''s;'; SELECT `a;b`", ["SELECT 'it''s;'", "SELECT `a;b`"]),
        (" -- nothing\n", []),
        ("SELECT 'open", ["SELECT 'open"]),
    ],
)
def test_statements_end_at_semicolons_outside_of_texts(text: str, found: list[str]) -> None:
    assert list(statements(text)) == found


def test_a_file_and_standard_input_hold_statements(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "two.sql"
    file.write_text("SELECT topic FROM consumer_offset;\nSELECT consumerOffset FROM consumer_offset;\n")
    wanted = (0, "topic\nt    \n\nconsumerOffset\n             7\n", "")
    assert pullsim(capsys, "sql", "--lake", lake, "--file", file) == wanted
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text()))
    assert pullsim(capsys, "sql", "--lake", lake) == wanted
    file.write_text("SELECT topic FROM consumer_offset; SELECT nonsense FROM consumer_offset; SELECT 1 AS never")
    code, out, err = pullsim(capsys, "sql", "--lake", lake, "--file", file, "--format", "csv")
    assert (code, out) == (2, "topic\nt\n")
    assert "there is no column 'nonsense'" in err


def test_files_that_cannot_be_read_end_with_2(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary.sql").write_bytes(b"\xff")
    for name in ("none.sql", "binary.sql", "."):
        code, out, err = pullsim(capsys, "sql", "--lake", lake, "--file", tmp_path / name)
        assert (code, out) == (2, "")
        assert f"--file {tmp_path / name}: expected a file of SQL in UTF-8" in err
    code, _, err = pullsim(capsys, "sql", "--lake", lake, "--file", "a.sql", "SELECT 1")
    assert code == 2
    assert "--file cannot be combined with a query" in err


def typing(*lines: str | type[BaseException]) -> Callable[[str], str]:
    """A function in place of `input`: gives the lines in turn, raises those that are exceptions, and then the end of the input."""
    given: Iterator[str | type[BaseException]] = iter(lines)

    def read(_prompt: str) -> str:
        line = next(given, EOFError)
        if not isinstance(line, str):
            raise line
        return line

    return read


def prompted(lake: Path, *lines: str | type[BaseException], choice: str = "duckdb") -> None:
    with Answers(Engine(choice=choice), str(lake), "csv") as answers:
        run_prompt(answers, typing(*lines))


def test_the_prompt_answers_statements_until_its_end(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompted(lake, "SELECT topic", "FROM consumer_offset;", "SELECT 1 AS a; SELECT 2 AS b;", ".quit", "SELECT 3 AS c;")
    out, err = capsys.readouterr()
    assert out.partition("runs.\n")[2] == "topic\nt\na\n1\nb\n2\n"
    assert err == ""


def test_the_prompt_shows_errors_and_goes_on(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompted(lake, "SELECT nonsense FROM queue;", "SELECT upper('a') AS a;", "SELECT 1 / 0 AS a;", "SELECT 4 AS d;")
    out, err = capsys.readouterr()
    assert out.endswith("\nd\n4\n")
    assert [line.partition(": ")[2][:40] for line in err.splitlines()] == [
        "error: line 1, column 8: there is no col",
        "error: --engine duckdb: the query has UP",
        "error: division by zero; use try_divide ",
    ]


def test_ctrl_c_drops_a_line_or_ends_a_query_and_not_the_prompt(
    lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompted(lake, "SELECT wrong", KeyboardInterrupt, "SELECT 5 AS e;")
    assert capsys.readouterr().out.endswith("\ne\n5\n")
    asked = questions.ask

    def ended_once(*arguments: object) -> object:
        monkeypatch.setattr(questions, "ask", asked)
        raise KeyboardInterrupt

    monkeypatch.setattr(questions, "ask", ended_once)
    prompted(lake, "SELECT 6 AS f;", "SELECT 7 AS g;")
    out, err = capsys.readouterr()
    assert out.endswith("\ng\n7\n")
    assert "\nf\n" not in out
    assert err == "pullsim: the query was ended\n"


@pytest.mark.parametrize("shown", ["rows", "table"])
def test_ctrl_c_ends_a_query_that_runs(lake: Path, shown: str) -> None:
    """The signal comes while DuckDB's other thread has all the work; the query itself would take half an hour."""
    opened = EmbeddedLake(str(lake))
    short, long = (parsed(f"SELECT max(range & 1023) AS s FROM range({rows})") for rows in (3, 10**12))
    assert list(opened.rows(short).rows) == [(2,)]  # all that it needs is imported now
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), questions.errors_told():
        getattr(opened, shown)(long)
    assert list(opened.rows(parsed("SELECT 1 AS one")).rows) == [(1,)]


def test_without_java_the_prompt_tells_so_and_goes_on(
    lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    prompted(lake, "SELECT upper('a') AS a;", "SELECT 4 AS d;", choice="auto")
    out, err = capsys.readouterr()
    assert out.endswith("\nd\n4\n")
    assert "Spark needs Java" in err


def test_the_prompt_lists_tables_and_describes_them(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompted(lake, ".tables", ".schema consumer_offset", ".nonsense")
    out, _ = capsys.readouterr()
    assert ",consume_lag,true\n" in out
    assert "\ntopic,string," in out
    assert out.count(".quit") == 2


def test_lines_are_kept_in_a_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("SELECT 1;\r")
        assert prompting()("> ") == "SELECT 1;"
    [history] = tmp_path.rglob("sql_history")
    assert "SELECT 1;" in history.read_text()


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("SELECT * FROM consume_lag_m", "consume_lag_matched"),
        ("SELECT l.lagMat", "lagMatched"),
        ("SELECT tags_c", "tags_code"),
        ("SELECT * FROM queue_s", "queue_status"),
        ("sel", "SELECT"),
        ("SELECT * FROM pull_out", "pull_outcome"),
    ],
)
def test_names_and_words_are_completed(line: str, word: str) -> None:
    assert word in {one.text for one in completer().get_completions(Document(line), CompleteEvent())}
