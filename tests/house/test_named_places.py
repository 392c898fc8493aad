"""Files, folders and modules that pages, docstrings and comments name are there, and the page on the house describes every room."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.truth.places import PROJECT, tracked

PACKAGES = ("store_format", "udfs", "pipeline", "pullsim")
FOLDERS = (*PACKAGES, "tests", "docs", "conf", "benchmarks", "notebooks")
# a path from the root of the project, as `pipeline/lake/lake.py` or `tests/long`
_PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w/.-]*\w")
# a file by its name alone, as `lake.py` or `consume_lag.sql`
_FILE = re.compile(r"(?<![\w/.*{{-])\w+\.(?:py|sql|ipynb)\b(?![/\w(]|\.\w)")
# a module, or what is in one, as `pipeline.lake.lake` or `udfs.pull.batch_caps.batch_cut`
_DOTTED = re.compile(rf"(?<![\w/.-])(?!pullsim\.zip)(?:{'|'.join(PACKAGES)})(?:\.\w+)+(?![\w(]*/)")
HOUSE_PAGE = PROJECT / "docs" / "how-it-works.md"
# a wheel has these, a fresh checkout has not
IN_WHEELS = {"pipeline/conf", "pipeline/sql/init.sql"}


@cache
def file_names() -> frozenset[str]:
    return frozenset(path.name for path in tracked())


def docstrings_and_comments(source: str) -> str:
    """The docstrings and the comments of a module, as one text."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    comments = (token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.COMMENT)
    return "\n".join([*(ast.get_docstring(node) or "" for node in nodes), *comments])


def texts() -> Iterator[tuple[str, str]]:
    """What people read, by the place of the file: pages, notebooks' text, docstrings and comments."""
    for path in tracked():
        name = path.relative_to(PROJECT).as_posix()
        if path.suffix == ".md" or name in {"run", "pyproject.toml"} or path.suffix == ".sql":
            yield name, path.read_text("utf-8")
        elif path.suffix == ".ipynb":
            cells = json.loads(path.read_text("utf-8"))["cells"]
            yield name, "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        elif path.suffix == ".py":
            yield name, docstrings_and_comments(path.read_text("utf-8"))


def names_of(module: Path) -> set[str]:
    """The names that a module defines or imports at its top."""
    found = set[str]()
    for node in ast.parse(module.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        else:
            found |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
    return found


def is_there(dotted: str) -> bool:
    """Whether a dotted name is a package or module of the project, or what such a module defines."""
    place = PROJECT
    for part in dotted.split("."):
        if (place / part).is_dir():
            place /= part
        elif (place / f"{part}.py").is_file():
            place = place / f"{part}.py"
        elif place.is_file():
            return part in names_of(place)
        else:
            return (place / "__init__.py").is_file() and part in names_of(place / "__init__.py")
    return True


def missing(text: str) -> list[str]:
    """The paths, file names and modules that a text names and the project does not have."""
    generated = {path.rpartition("/")[2] for path in IN_WHEELS}
    paths = [path for path in _PATH.findall(text) if path not in IN_WHEELS and not (PROJECT / path).exists()]
    files = [name for name in _FILE.findall(text) if name not in file_names() and name not in generated]
    modules = [name for name in _DOTTED.findall(text) if not is_there(name)]
    return sorted({*paths, *files, *modules})


def test_what_pages_docstrings_and_comments_name_is_there() -> None:
    found = {place: names for place, text in texts() if (names := missing(text))}
    assert found == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`pipeline/lake/lake.py`, tests/house/ and docs/lag.md.", []),
        ("pipeline/nowhere.py and `tests/nowhere`", ["pipeline/nowhere.py", "tests/nowhere"]),
        ("see `nowhere.sql`, not /tmp/any.py or lake.py", ["nowhere.sql"]),
        ("`pipeline.lake.lake.Lake` calls pipeline.lake.nowhere", ["pipeline.lake.nowhere"]),
        ("`udfs.pull.batch_caps.nothing`", ["udfs.pull.batch_caps.nothing"]),
    ],
)
def test_what_is_missing_is_found(text: str, names: list[str]) -> None:
    assert missing(text) == names


def rooms(package: str) -> set[str]:
    """The folders and modules right below a package."""
    found = (path.relative_to(PROJECT / package).parts[0] for path in tracked() if path.is_relative_to(PROJECT / package))
    return {name.removesuffix(".py") for name in found} - {"__init__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_on_the_house_describes_the_rooms_that_there_are(package: str) -> None:
    _, _, section = HOUSE_PAGE.read_text("utf-8").partition(f"\n### Rooms of {package}\n")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| [A-Z`].*\. \|$", section.partition("\n#")[0], re.MULTILINE)
    described = re.findall(r"\w+", " ".join(rows))
    assert sorted(described) == sorted(rooms(package))
