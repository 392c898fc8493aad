"""The commands that tend a lake as a whole."""

from __future__ import annotations

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import unused_engine_options
from pipeline.commands.new_run import now
from pipeline.commands.options import format_option, lake_option
from pipeline.settings.quantities import counted, size_text
from pipeline.terminal import progress_to_stderr, show_values

# hours for which Delta remembers which files a commit removed, once there is a checkpoint
_MOST_HOURS = 168
_COLUMNS = ("table", "files", "logFiles", "bytes", "note")


@cli.command("vacuum", cls=ExampleCommand, example="pullsim vacuum --lake lake --keep 24 --dry-run")
@lake_option
@click.option(
    "--keep",
    "hours",
    type=click.IntRange(1, _MOST_HOURS),
    default=_MOST_HOURS,
    show_default=True,
    metavar="HOURS",
    help="Keep what the lake's versions of the last hours need; no run may take longer than that.",
)
@click.option("--dry-run", is_flag=True, help="Only tell what would be deleted.")
@format_option
@unused_engine_options
def vacuum_command(lake: str, hours: int, dry_run: bool, form: str) -> None:
    """Delete the files that no version of the lake needs any more: replaced and joined files, those of runs that died, old entries of logs.

    Other runs may read and write the lake meanwhile. This needs no Spark.
    """
    from pipeline.lake.vacuum import vacuum

    done = list(vacuum(lake, hours, now=now(), dry_run=dry_run))
    shown = [one for one in done if one.files or one.log_files or one.note]
    if shown or form != "table":
        show_values(_COLUMNS, [(one.table, one.files, one.log_files, one.size, one.note) for one in shown], form)
    count, size = sum(one.files + one.log_files for one in done), sum(one.size for one in done)
    progress_to_stderr(f"{counted(count, 'file')} of {size_text(size)} {'can be' if dry_run else 'were'} deleted")
