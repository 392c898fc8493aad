"""The commands that export a store and that verify one."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, engine_options
from pipeline.commands.given_settings import GivenSettings, settings_options
from pipeline.commands.listed import Names, require_before_spark
from pipeline.commands.new_run import run_id
from pipeline.commands.options import broker_option, lake_option, named
from pipeline.settings.quantities import counted, milliseconds
from pipeline.terminal import progress_to_stderr, safe_text, say, say_json
from store_format.errors import printable, without_credentials

if TYPE_CHECKING:
    from pipeline.export.export_store import Exported
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.settings.settings import BrokerSettings
    from pipeline.tasks.work import Tasks, Work


# changes of the broker's start that are shown one by one
_NOTES = 10


def _bound(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, bool] | None:
    """Return the value of an option as a number, and whether it is a time in ms; None without a value."""
    if value is None:
        return None
    if re.fullmatch(r"@?[0-9]{1,18}", value, re.ASCII):
        return int(value.removeprefix("@")), value.startswith("@")
    try:
        time = dt.datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"expected a queue's offset, @ms since 1970, or a time as 2024-05-01T12:00:00Z, found {value!r}") from None
    return milliseconds(time), True


def _local(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return a local path; a URI is refused, before any bucket is opened."""
    from pipeline.files.store_files import is_uri

    if is_uri(value):
        shown = without_credentials(value)
        raise click.BadParameter(f"{shown}: expected a local directory, found a URI; a store is written to a local or a shared file system")
    return value


@cli.command("export", cls=ExampleCommand, example="pullsim export --lake lake /data/exported/store --topic orders --from 2024-05-01")
@click.argument("store", callback=_local)
@lake_option
@broker_option
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic; repeatable.")
@click.option("--from", "first", callback=_bound, metavar="OFFSET|TIME", help="Only messages from this offset or time on.")
@click.option("--to", "after", callback=_bound, metavar="OFFSET|TIME", help="Only messages before this offset or time.")
@engine_options
def export_command(
    store: str,
    lake: str,
    broker: str | None,
    topics: tuple[str, ...],
    first: tuple[int, bool] | None,
    after: tuple[int, bool] | None,
    engine: Engine,
) -> None:
    """Write the tables of a broker as a STORE directory, with every byte and the files' times.

    The result is the imported store, or its state after the broker's start. STORE is a local directory that does not exist yet or is empty;
    it appears only when it is complete. Spark is not needed for a small store of a lake that is local or on S3; --master and --conf ask
    for Spark.

    With --topic, --from or --to the result is a smaller store that a broker loads: messages keep their queue offsets and get new offsets in
    the commit log, and so new message ids. A time is ISO 8601, in UTC unless it names a zone, or @ms since 1970.
    """
    from pipeline.export.small_export import export_small_store

    require_before_spark(lake, *(Names(topic=topic, broker=broker) for topic in topics))
    done: Exported | None = None
    if engine.may_work_here and not (topics or first or after):
        done = export_small_store(lake, broker, store, run_id=run_id(), progress=progress_to_stderr, tell=engine.tell)
    done = done or _export_with_spark(engine, lake, broker, store, topics, first, after)
    say(
        f"{done.store}: {counted(done.files, 'file')} of broker {done.broker!r}, with {counted(done.messages, 'message')}; "
        f"{counted(done.bytes, 'byte')} written"
    )


def _export_with_spark(
    engine: Engine,
    lake: str,
    broker: str | None,
    store: str,
    topics: tuple[str, ...],
    first: tuple[int, bool] | None,
    after: tuple[int, bool] | None,
) -> Exported:
    from pipeline.export.export_part import export_part
    from pipeline.export.export_store import export_store
    from pipeline.export.part_plan import Bound, Part
    from pipeline.files.store_files import is_local_or_s3
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.lake.session import INTERPRETED_PLANS

    part = Part(topics=topics, first=first and Bound(*first), after=after and Bound(*after))
    is_whole = part == Part()
    # tasks read the rows; Spark itself reads only where the rows are, and the rows that tasks cannot read
    plans = INTERPRETED_PLANS if is_whole and is_local_or_s3(lake) else {}
    with replace(engine, conf=plans | engine.conf).session(
        "short" if is_whole else "long", reads=lake, broker=broker, workers=True
    ) as spark:
        opened = OpenedBroker.of(spark, lake, broker)
        write = export_store if is_whole else partial(export_part, part=part)
        return write(opened, store, run_id=run_id(), progress=progress_to_stderr)


@cli.command("verify", cls=ExampleCommand, example="pullsim verify /data/rocketmq/store --lake lake")
@click.argument("store")
@click.option("--lake", callback=named, metavar="DIR", help="Also compare the store with the tables of a lake into which it was imported.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Lines, or JSON objects.")
@broker_option
@settings_options
@engine_options
def verify_command(
    store: str,
    lake: str | None,
    form: str,
    broker: str | None,
    settings: GivenSettings,
    engine: Engine,
) -> None:
    """Read every file of a STORE directory, write it again, compare the bytes, and compare the files with each other.

    The output has a line for each file: path, kind, bytes and result, separated by tabs. Then it has a line for each finding: its code, the
    path, and the error. The exit code is 1 if there is a finding. STORE is only read. Spark is not needed for a small store without --lake;
    --master and --conf ask for Spark.

    Below the findings stand their causes, the worst first: what follows from each, what to do, and what the broker's start would do to
    the store. docs/findings.md explains each code. As json, each line is an object, whose row is file, finding, cause, start or summary.
    """
    broker_settings = settings.of_store(store)
    with _checking(engine, store, lake, broker) as (tasks, cores, opened):
        from pipeline.verify.verify_store import verify_store

        verified = verify_store(tasks, store, broker_settings, progress_to_stderr, cores=cores)
        files = 0
        for row in verified.files.each():
            files += 1
            if form == "json":
                _say_row("file", _result(row))
            else:
                say("\t".join(printable(str(value)) for value in row.values()))
        found = [verified.findings]
        if opened is not None:
            from pipeline.verify.verify_lake import verify_lake

            found.append(verify_lake(opened, store, settings.over(opened.properties()), progress_to_stderr))
        findings = _tell_findings(tasks, found, form)
        if findings:
            _tell_causes(tasks, found, form, store, broker_settings)
    if form == "json":
        _say_row("summary", {"files": files, "findings": findings})
    else:
        say(f"{counted(files, 'file')}, {counted(findings, 'finding')}")
    if findings:
        raise SystemExit(1)


@contextmanager
def _checking(engine: Engine, store: str, lake: str | None, broker: str | None) -> Iterator[tuple[Tasks, int, OpenedBroker | None]]:
    """Yield what runs the checks, how many tasks run at once, and the broker of the lake, if there is one.

    This process checks a small store without a lake.
    """
    if lake is None and engine.may_work_here:
        from pipeline.files.given_files import require_store
        from pipeline.tasks.small_work import is_small_store
        from pipeline.tasks.work import DriverTasks

        require_store(store)
        if is_small_store(store):
            yield DriverTasks(), 1, None
            return
    with engine.session("short" if lake is None else "long", reads=lake, broker=broker, store=store, workers=True) as spark:
        from pipeline.lake.opened_broker import OpenedBroker
        from pipeline.lake.session import tasks_at_once
        from pipeline.tasks.work import SparkTasks

        yield SparkTasks(spark), tasks_at_once(spark), None if lake is None else OpenedBroker.of(spark, lake, broker)


def _result(row: dict[str, Any]) -> dict[str, Any]:
    return {"path": row["path"], "kind": row["kind"], "length": row["length"], "result": row["text"]}


def _say_row(row: str, values: dict[str, Any]) -> None:
    say_json({"row": row, **values})


def _tell_findings(tasks: Tasks, found: Sequence[Work], form: str) -> int:
    """Print each finding; return the number of findings."""
    from pipeline.verify.causes import in_json, with_causes
    from pipeline.verify.verify_store import BY_PLACE

    findings = 0
    shown = found if form == "table" else [with_causes(_all_of(found)).ordered(tasks.parallelism, BY_PLACE)]
    for row in (row for work in shown for row in work.each()):
        findings += 1
        if form == "json":
            _say_row("finding", in_json(row))
        else:
            say(printable(f"{row['code']} {row['path']}: {row['text']}"))
    return findings


def _all_of(found: Sequence[Work]) -> Work:
    return reduce(lambda work, other: work.joined(other), found)


def _tell_causes(tasks: Tasks, found: Sequence[Work], form: str, store: str, settings: BrokerSettings) -> None:
    """Print the causes of the findings, and what the broker's start would do."""
    from pipeline.verify.causes import causes_of, what_start_does, with_causes
    from pipeline.verify.finding_codes import SEVERITIES, Severity

    causes = causes_of(with_causes(_all_of(found)))
    progress_to_stderr("finding out what the broker's start would do")
    start = what_start_does(tasks, store, settings)
    if form == "json":
        for cause in causes:
            _say_row("cause", cause.in_json())
        _say_row("start", {"does": list(start.notes), "lost": start.lost})
        return
    say("\ncauses, the worst first (docs/findings.md):")
    for cause in causes:
        for line in cause.lines():
            say(printable(line))
    say("\nwhat the broker's start would do:")
    for note in start.notes[:_NOTES] or ("nothing: it leaves the files as they are",):
        say(f"  {safe_text(note)}")
    if len(start.notes) > _NOTES:
        say(f"  and {len(start.notes) - _NOTES:,} changes more; --format json has all")
    worst = causes[0].known.severity
    if start.lost and SEVERITIES.index(worst) > SEVERITIES.index(Severity.LOST):
        say(f"\nthe worst of it: {Severity.LOST.value}: the start would cut {counted(start.lost, 'message')} off the log")
    else:
        say(f"\nthe worst cause: {worst.value}")
