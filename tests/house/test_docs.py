"""The pages: generated pages are current, and every command on a page exists. test_site.py looks at the site that is made of them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from functools import cache
from pathlib import Path

import click
import pytest

from pipeline.commands.cli import cli
from pipeline.docpages import commands_page, findings_page, functions_page, rules_page, views_page
from pipeline.main import run
from pipeline.sql.definitions import documented
from pipeline.sql.statements import VIEWS, view_sql
from tests.runs.doc_commands import EXAMPLES, PAGES, SHOWN, Shown, described, inline_commands
from tests.truth.places import PROJECT
from udfs.sql_functions import PANDAS_UDFS
from udfs.sql_statements import SQL_FUNCTIONS

NAMED = [one for page in PAGES for one in inline_commands(page) if one.words[0].islower()]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (commands_page.PAGE, commands_page.commands_page()),
        (functions_page.PAGE, functions_page.functions_page()),
        (rules_page.PAGE, rules_page.rules_page()),
        (views_page.PAGE, views_page.views_page()),
        (findings_page.PAGE, findings_page.findings_page()),
    ],
    ids=["commands", "functions", "rules", "views", "findings"],
)
def test_what_is_made_of_the_code_is_current(page: Path, text: str) -> None:
    assert (PROJECT / page).read_text("utf-8") == text, f"python -m pipeline.docpages.{page.stem}_page"


def test_every_command_view_and_function_is_on_its_page() -> None:
    told = (PROJECT / commands_page.PAGE).read_text("utf-8")
    assert all(f"\n## {name}\n" in told for name in cli.commands)
    told = (PROJECT / views_page.PAGE).read_text("utf-8")
    assert all(f"\n## {name}\n" in told for name in VIEWS)
    told = (PROJECT / functions_page.PAGE).read_text("utf-8")
    assert all(f"`{name}(" in told for name in [*PANDAS_UDFS, *(one.name for one in SQL_FUNCTIONS)])


@pytest.mark.parametrize("name", VIEWS)
def test_every_column_of_a_view_says_what_it_is(name: str) -> None:
    head, _, _ = view_sql(name).partition("\nAS\n")
    declared = re.findall(r"^  (\w+)", head, re.MULTILINE)
    assert [one.name for one in documented(view_sql(name)).columns if one.what] == declared
    assert declared


@cache
def packages_of_tasks() -> frozenset[str]:
    """The packages of pyproject.toml, but pyspark, that are imported by the modules whose functions run in tasks."""
    runs_tasks = re.compile(r"\.(?:mapInArrow|mapped|applyInArrow|applyInPandasWithState)\(|pandas_udf\(|DataSource(?:Stream)?Reader")
    files = [path for path in sorted((PROJECT / "pipeline").rglob("*.py")) if runs_tasks.search(path.read_text("utf-8"))]
    assert len(files) > 20
    names = [".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in files]
    script = f"import sys, {', '.join(names)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    imported = set(subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split())
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    needed = {name for name in (re.split("[=<>]", one)[0] for one in declared) if name.removesuffix("-spark") in imported} - {"pyspark"}
    assert {"numpy", "lark", "delta-spark", "dpkt", "pydantic"} <= needed
    return frozenset(needed)


@pytest.mark.parametrize("page", ["docs/guide.md", "docs/cluster.md"])
def test_executors_are_promised_every_package_that_modules_of_tasks_import(page: str) -> None:
    told = " ".join(re.findall(r"^(?:Executors need [^;]*;|\| the packages of .*)", (PROJECT / page).read_text("utf-8"), re.MULTILINE))
    assert {name for name in packages_of_tasks() if name not in told} == set()


def test_files_of_the_code_that_the_pages_name_are_there() -> None:
    text = (PROJECT / "docs" / "simulated.md").read_text("utf-8")
    folders = {"store_format", "udfs", "pipeline"}
    named, missing = 0, []
    for row in (line for line in text.splitlines() if line.startswith("| ") and "`" in line):
        folder = ""
        for path in re.findall(r"`([\w/]+(?:\.py|\.sql|/))`", row):
            named += 1
            if path.partition("/")[0] in folders:
                folder = path.rpartition("/")[0]
                missing += [path] if not (PROJECT / path).exists() else []
            else:
                missing += [path] if not (PROJECT / folder / path).exists() else []
    assert missing == []
    assert named > 30


def parsed(words: tuple[str, ...], tmp_path: Path) -> None:
    """Parse the words as the command line does, without running anything; files that must exist are made."""
    name, *rest = words
    assert name in cli.commands, name
    known = cli.commands[name]
    for place, word in enumerate(rest):
        if word == "--properties":
            rest[place + 1] = str(tmp_path / "broker.conf")
    known.make_context(f"pullsim {name}", rest)


@pytest.mark.parametrize("one", [*(one for one in SHOWN if not one.is_fragment), *EXAMPLES], ids=described)
def test_every_command_that_is_shown_is_one(one: Shown, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("", "utf-8")
    if one.words[-1:] == ("--help",):
        assert one.words[0] in cli.commands
        return
    with suppress(click.exceptions.Exit):  # an option like --help prints its text and exits
        parsed(one.words, tmp_path)


@pytest.mark.parametrize("one", NAMED, ids=described)
def test_every_command_that_is_named_has_the_options_that_are(one: Shown) -> None:
    known = {option for parameter in cli.commands[one.words[0]].params for option in parameter.opts} | {"--help"}
    assert {word.partition("=")[0] for word in one.words if word.startswith("--")} <= known


@pytest.mark.parametrize(
    ("words", "place", "expected"),
    [("pullsim sim", 1, ["simulate"]), ("pullsim sql --fo", 2, ["--format"]), ("pullsim sql --format ", 3, ["table", "json", "csv"])],
)
def test_a_shell_completes_commands_options_and_their_values(
    words: str, place: int, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("_PULLSIM_COMPLETE", "bash_complete"), ("COMP_WORDS", words), ("COMP_CWORD", str(place))):
        monkeypatch.setenv(name, value)
    assert run([]) == 0
    assert capsys.readouterr().out.split() == [f"plain,{word}" for word in expected]


def test_every_command_has_an_example() -> None:
    assert {one.heading for one in EXAMPLES} == cli.commands.keys()


def test_commands_are_found_on_the_pages() -> None:
    assert len(SHOWN) > 60
    assert {one.words[0] for one in SHOWN if one.words[0].isalpha()} >= cli.commands.keys() - {"COMMAND"}
