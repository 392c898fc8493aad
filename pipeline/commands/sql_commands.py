"""The command sql."""

from __future__ import annotations

from dataclasses import replace

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, engine_option, engine_options
from pipeline.commands.options import format_option, lake_option
from pipeline.terminal import say


def _tell_init_file(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked:
        from pipeline.lake.init_file import init_file

        say(str(init_file()))
        context.exit()


@cli.command(
    "sql",
    cls=ExampleCommand,
    example='pullsim sql --lake lake "SELECT * FROM consume_lag ORDER BY lag DESC" --format csv',
)
@click.argument("query", required=False)
@lake_option
@click.option(
    "--init-file",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_init_file,
    help="Print the path of the init file of spark-sql.",
)
@click.option("--file", metavar="FILE", help="A file of statements, with a semicolon after each.")
@click.option("--allow-files", is_flag=True, help="Run any SQL of Spark: other files and tables are read and written, Java code is called.")
@format_option
@engine_option
@engine_options
def sql_command(query: str | None, lake: str, file: str | None, allow_files: bool, form: str, engine: Engine) -> None:
    """Run SQL over the lake's tables, views and functions.

    Without a query, statements come from --file or standard input; on a terminal there is a prompt. A statement reads the lake and nothing
    else: a query, SHOW, DESCRIBE or EXPLAIN. Anything else is refused, unless --allow-files is given.

    `DESCRIBE NAME` explains the columns of a table or view. This gives spark-sql the same tables and views:
    spark-sql -i $(pullsim sql --init-file) --hivevar lake=/data/lake
    """
    from pipeline.commands.sql_statements import Answers, prompting, run_prompt, text_of

    if query is not None and file is not None:
        raise click.UsageError("--file cannot be combined with a query: give one of them")
    if allow_files and engine.choice == "duckdb":
        raise click.UsageError("--allow-files cannot be combined with --engine duckdb: only Spark reads and writes other files")
    text = text_of(file) if query is None else query
    with Answers(
        replace(engine, choice="spark", chosen_by="--allow-files") if allow_files else engine, lake, form, allow_files=allow_files
    ) as answers:
        if text is None:
            run_prompt(answers, prompting())
        else:
            answers.show_all(text)
