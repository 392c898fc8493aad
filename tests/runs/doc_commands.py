"""The commands that README.md and the pages under docs/ show, as a shell would read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pipeline.main  # noqa: F401 (it brings all commands)
from pipeline.commands.cli import cli
from tests.truth.places import PROJECT

# docs/commands.md is generated from --help: its examples are those that the commands themselves have
PAGES = (PROJECT / "README.md", *sorted(path for path in (PROJECT / "docs").glob("*.md") if path.name != "commands.md"))
_INDENTED = re.compile(r"(?:^ {4}.*\n|^\n)+", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```\n", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(pullsim [^`]+)`")


class Shown(NamedTuple):
    """A command on a page: its words after `pullsim`, and its heading."""

    page: str
    heading: str
    words: tuple[str, ...]

    @property
    def is_fragment(self) -> bool:
        """Whether the command has `...` in place of words."""
        return any("..." in word for word in self.words)


def commands(page: Path) -> Iterator[Shown]:
    """The commands in the indented blocks of a page. A command continues on the next line until its quotes are closed."""
    heading, text = "", _FENCED.sub("", page.read_text("utf-8"))
    for part in re.split(r"(?m)^(?=#+ )", text):
        heading = part.partition("\n")[0].lstrip("# ") if part.startswith("#") else ""
        for block in _INDENTED.findall(part):
            yield from (Shown(page.name, heading, words) for words in commands_in(block))


def commands_in(block: str) -> Iterator[tuple[str, ...]]:
    """The words after `pullsim` of each command in a text that a shell could read."""
    for line in _lines(block):
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            if words[0] == "pullsim":
                yield tuple(words[1:end])
            words = words[end + 1 :]


def programs(page: Path) -> set[str]:
    """The programs that the indented blocks of a page call. Lines of JSON and drawings are skipped."""
    blocks = _INDENTED.findall(_FENCED.sub("", page.read_text("utf-8")))
    lines = (shlex.split(line, comments=True) for block in blocks for line in _lines(block))
    return {words[0] for words in lines if words and "->" not in words and not words[0].startswith("{")}


def inline_commands(page: Path) -> Iterator[Shown]:
    """The commands that the running text of a page names, with options or without."""
    for text in _INLINE.findall(page.read_text("utf-8")):
        if text.count('"') % 2 == 0:
            yield Shown(page.name, "", tuple(shlex.split(text)[1:]))


def placed(words: Sequence[str], *folders: Path) -> list[str]:
    """The words of a command; a word that names a file or folder becomes a whole path, in the first of the folders that has it.

    The paths must be whole, because Spark's processes stay where they were started. A path with a leading slash lies below the
    first folder.
    """

    def place(word: str) -> str:
        below = word.removeprefix("/")
        there = [folder / below for folder in folders if len(word) < 100 and (folder / below).exists()]
        return str(there[0] if there else folders[0] / below if word.startswith("/") else word)

    return list(map(place, words))


def _lines(block: str) -> Iterator[str]:
    """Whole commands: a line that ends with a backslash or within quotes is joined with the next."""
    waiting = ""
    for line in block.splitlines():
        waiting += line.removesuffix("\\") if line.endswith("\\") else line + "\n"
        if line.endswith("\\"):
            continue
        try:
            shlex.split(waiting, comments=True)
        except ValueError:
            continue
        yield waiting.strip()
        waiting = ""
    assert not waiting.strip(), f"quotes are not closed: {waiting}"


SHOWN = [one for page in PAGES for one in commands(page)]


EXAMPLES = [
    Shown("--help", name, words)
    for name, command in cli.commands.items()
    for words in commands_in("\n".join(line.strip() for line in (command.epilog or "").splitlines()[2:]))
]


def described(one: Shown) -> str:
    return f"{one.page}: {' '.join(one.words)}"[:70]
