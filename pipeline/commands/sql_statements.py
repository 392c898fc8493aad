"""What `pullsim sql` does without a statement on the command line: statements of a file or of standard input, and the prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.engine import Engine
from pipeline.files.small_file import small_file
from pipeline.terminal import progress_to_stderr, say, show_rows, show_streamed
from store_format.errors import UnusableInputError

if TYPE_CHECKING:
    from prompt_toolkit.completion import WordCompleter

    from pipeline.embedded.database import EmbeddedLake

_HELP = """\
A statement ends with a semicolon. .tables lists tables and views, .schema NAME describes one, .quit or Ctrl-D ends.
Ctrl-C drops what was typed, or ends the query that runs."""


class Answers(ExitStack):
    """Shows the answers to statements, each at the lake's newest version; a Spark session is started once, when a statement needs it."""

    def __init__(self, engine: Engine, lake: str, form: str, *, allow_files: bool = False) -> None:
        """Take the options of `pullsim sql`; `form` is --format."""
        super().__init__()
        self._allow_files = allow_files
        self._engine, self._lake, self._form = engine, lake, form
        self._spark: Any = None

    def show(self, statement: str) -> None:
        """Show the answer to one statement."""
        if self._engine.without_spark(self._lake, partial(self._show_quickly, statement)):
            return
        from pipeline.lake.lake import Lake
        from pipeline.lake.read_only_sql import check_read_only
        from pipeline.lake.views import ask
        from pipeline.sql.statements import FUNCTIONS

        if not self._allow_files:
            check_read_only(statement, FUNCTIONS)
        if self._spark is None:
            self._spark = self.enter_context(self._engine.session("long", reads=self._lake))
        show_rows(ask(Lake(self._spark, self._lake).require(), statement, allow_files=self._allow_files), self._form)

    def _show_quickly(self, statement: str, lake: EmbeddedLake) -> None:
        from pipeline.embedded.questions import ask

        answer = ask(lake, statement)
        show_streamed(answer.names, answer.rows, self._form)

    def show_all(self, text: str) -> None:
        """Show the answers to the statements of a text, with an empty line between tables.

        Raises:
            click.UsageError: the text has no statement.
        """
        found = list(statements(text))
        if not found:
            raise click.UsageError('expected a query in SQL, found none; "SHOW TABLES" lists what can be asked')
        for number, statement in enumerate(found):
            if number and self._form == "table":
                say("")
            self.show(statement)


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a text, without the semicolons that end them."""
    from sqlglot import TokenType
    from sqlglot.errors import TokenError

    from pipeline.embedded.translation import AnsiSpark

    start, has_words = 0, False
    try:
        tokens = AnsiSpark().tokenize(text)
    except TokenError:  # the engine reports the error
        yield text
        return
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            has_words = True
            continue
        if has_words:
            yield text[start : token.start].strip()
        start, has_words = token.end + 1, False
    if has_words:
        yield text[start:].strip()


def text_of(file: str | None) -> str | None:
    """Return the text of a file of statements, or of standard input; None if standard input is a terminal, for the prompt.

    Raises:
        click.UsageError: the file cannot be read.
    """
    if file is None:
        return None if sys.stdin.isatty() else sys.stdin.read()
    try:
        return small_file(file).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--file {file}: expected a file of SQL in UTF-8, found {error}") from error


def run_prompt(answers: Answers, read: Callable[[str], str]) -> None:
    """Read statements and show their answers until the end of the input; errors are shown, and the next statement is read.

    Args:
        answers: what shows an answer.
        read: reads a line after a prompt; raises EOFError at the end and KeyboardInterrupt at Ctrl-C.
    """
    say(_HELP)
    typed = ""
    while True:
        try:
            line = read("    ...> " if typed else "pullsim> ")
        except KeyboardInterrupt:
            typed = ""
            continue
        except EOFError:
            return
        word, _, name = line.strip().rstrip(";").partition(" ")
        if not typed and word in {".quit", ".exit"}:
            return
        if not typed and word.startswith("."):
            typed = {".tables": "SHOW TABLES;", ".schema": f"DESCRIBE {name};" if name else ""}.get(word, "")
            if not typed:
                say(_HELP)
        else:
            typed = f"{typed}\n{line}" if typed else line
        if typed.rstrip().endswith(";"):
            _show(answers, typed)
            typed = ""


def _show(answers: Answers, text: str) -> None:
    """Show the answers to a text; Ctrl-C ends the query; an error of the query is shown."""
    try:
        answers.show_all(text)
    except KeyboardInterrupt:
        progress_to_stderr("the query was ended")
    except (UnusableInputError, click.UsageError) as error:
        progress_to_stderr(f"error: {error.message if isinstance(error, click.UsageError) else error}")
    except Exception as error:
        from pyspark.errors import PySparkException

        from pipeline.lake.session import EngineError

        if not isinstance(error, PySparkException | EngineError):
            raise
        progress_to_stderr(f"error: {str(error).partition(chr(10))[0]}")


def prompting() -> Callable[[str], str]:
    """Return a function that reads a line on the terminal, with a history in a file, and completion of names and words of SQL."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory

    folder = Path(click.get_app_dir("pullsim"))
    folder.mkdir(parents=True, exist_ok=True)
    history = FileHistory(str(folder / "sql_history"))
    session: PromptSession[str] = PromptSession(history=history, completer=completer(), complete_while_typing=False)
    return session.prompt


def completer() -> WordCompleter:
    """Completes tables, views, functions, columns and words of SQL."""
    from prompt_toolkit.completion import WordCompleter

    from pipeline.embedded.database import RELATIONS
    from pipeline.embedded.functions import MACROS
    from pipeline.schema.tables import TABLES
    from pipeline.sql.definitions import documented
    from pipeline.sql.statements import FUNCTIONS, VIEWS, view_sql

    columns = {column for table in TABLES.values() for column in table.names}
    columns |= {column.name for view in VIEWS for column in documented(view_sql(view)).columns}
    sql = (
        "SELECT DISTINCT FROM JOIN USING WHERE GROUP BY ORDER HAVING LIMIT DESC WITH UNION ALL CASE WHEN THEN ELSE END AND NOT NULL IS LIKE"
    )
    functions = [*MACROS, *FUNCTIONS, "sql92_matches", "batch_cut", "uncompress_body"]
    return WordCompleter(sorted({*RELATIONS, *functions, *columns, *sql.split(), "SHOW TABLES", "DESCRIBE"}), ignore_case=True)
