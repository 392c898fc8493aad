"""What reaches a terminal: no text from a store, a file or a request gives it commands."""

from __future__ import annotations

import csv
import json
import time
from typing import Any

import pytest

from pipeline import terminal
from pipeline.terminal import progress_to_stderr, show_table, show_values, table_text
from store_format.errors import SHOWN_MAX, printable, shown

HOSTILE = "\x1b[2Jred\x07\x7f\x9b1m\u202egnp.exe\u2028"


def test_a_message_has_no_character_that_a_terminal_takes_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    progress_to_stderr(f"{HOSTILE}\nanother line\tand a tab; 甲乙")
    lines = capsys.readouterr().err.splitlines()
    assert [line.isprintable() for line in lines] == [True, True]
    assert lines[1] == "another line    and a tab; 甲乙"


def test_a_table_has_none_either(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([HOSTILE], [(HOSTILE,), ("two\nlines",), (None,)])
    told = capsys.readouterr().out
    assert [line.strip() for line in told.splitlines()][1:] == [printable(HOSTILE), "two", "lines", "NULL"]
    assert told.replace("\n", "").isprintable()


def test_a_table_has_columns_as_wide_as_a_terminal_shows_their_cells(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["topic", "lag", "note"], [("甲乙", 12, "two\nlines"), ("e\u0301", None, ""), ("orders-a", 7, "x")])
    assert capsys.readouterr().out.splitlines() == [
        "topic      lag  note ",
        "甲乙        12  two  ",
        "                lines",
        "e\u0301         NULL       ",
        "orders-a     7  x    ",
    ]


def test_a_table_without_rows_has_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["a", "b"], [])
    assert capsys.readouterr().out == "a  b\n"


def test_a_large_table_is_shown_at_once() -> None:
    start = time.process_time()
    assert table_text(["group", "lag"], [(f"group-{number}", number) for number in range(50_000)]).count("\n") == 50_001
    assert time.process_time() - start < 5  # rich took 15


@pytest.mark.parametrize("text", ["=1+2", "+cmd|'/C calc'!A0", "-1+2", "@SUM(1)", "\t=1"])
def test_a_spreadsheet_runs_no_text_of_a_csv(capsys: pytest.CaptureFixture[str], text: str) -> None:
    show_values(("key", "lag", "group"), [(text, -1, "-a-group|%")], "csv")
    [row] = list(csv.reader(capsys.readouterr().out.splitlines()))[1:]
    assert row == [f"'{text}", "-1", "-a-group|%"]


def test_json_gives_the_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show_values(["a"], [(HOSTILE,)], "json")
    assert capsys.readouterr().out == '{"a": "\\u001b[2Jred\\u0007\x7f\x9b1m\u202egnp.exe\u2028"}\n'


def test_json_on_a_terminal_is_the_same_value_without_commands(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    show_values(["a"], [(HOSTILE,), ("甲乙",)], "json")
    hostile, harmless = capsys.readouterr().out.splitlines()
    assert hostile.isascii()
    assert hostile.isprintable()
    assert json.loads(hostile) == {"a": HOSTILE}
    assert harmless == '{"a": "甲乙"}'


def test_csv_on_a_terminal_has_no_commands_and_elsewhere_the_text_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show_values([HOSTILE, "lag"], [(HOSTILE, 1)], "csv")
    assert capsys.readouterr().out == f"{HOSTILE},lag\n{HOSTILE},1\n"
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    show_values([HOSTILE, "lag"], [(HOSTILE, 1), (["\x9b"], None)], "csv")
    shown = printable(HOSTILE)
    assert capsys.readouterr().out == f'{shown},lag\n{shown},1\n"[""\\x9b""]",\n'


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        (b"a\xff\x1b", r"'a\\xff\x1b'"),
        ("x" * SHOWN_MAX, repr("x" * SHOWN_MAX)),
        ("x" * (SHOWN_MAX + 1), repr("x" * SHOWN_MAX + "...")),
        ("甲".encode() * 10**6, repr("甲" * SHOWN_MAX + "...")),
        (["x" * 10**6], f"['{'x' * (SHOWN_MAX - 2)}..."),
        (7, "7"),
        (1 << 16_000, "an integer of 16001 bits"),
        ([1 << 16_000], "a list with a number too long"),
        (nested(10_000), "a list nested too deeply"),
    ],
    ids=range(10),
)
def test_a_value_is_shown_short(value: object, text: str) -> None:
    assert shown(value) == text
