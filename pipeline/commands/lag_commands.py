"""`pullsim lag`: shows the consumer lag of groups, and records it over time."""

from __future__ import annotations

import click

from pipeline.commands.cli import Engine, ExampleCommand, cli, engine_options, format_option, lake_option, moment, now, run_id
from pipeline.settings.quantities import milliseconds
from pipeline.terminal import say, show_rows, show_table, start_page


@cli.command(
    "lag",
    cls=ExampleCommand,
    example="pullsim lag --lake lake --group orders-consumer --watch\n  pullsim lag --lake lake --record --keep 30",
)
@lake_option
@click.option("--group", metavar="NAME", help="Only this consumer group.")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option("--now", "until_now", is_flag=True, help="Count waiting time until now instead of the store's last message.")
@click.option("--watch", is_flag=True, help="Show the lag again whenever the lake has changed, until Ctrl-C or SIGTERM.")
@click.option(
    "--record", is_flag=True, help="Append the lag of all groups of a broker to lag_history, if it is new, instead of showing it."
)
@click.option(
    "--observed-at", callback=moment, metavar="TIME", help="With --record: the time of the store; ms, or a time in UTC. Now by default."
)
@click.option(
    "--keep", type=click.IntRange(1, 36_500), metavar="DAYS", help="With --record: drop older observations, and compact the others."
)
@click.option("--broker", metavar="NAME", help="Only this broker, all by default; with --record needed if the lake holds more than one.")
@format_option
@engine_options
def lag_command(
    lake: str,
    group: str | None,
    topic: str | None,
    until_now: bool,
    watch: bool,
    record: bool,
    observed_at: int | None,
    keep: int | None,
    broker: str | None,
    form: str,
    engine: Engine,
) -> None:
    """Show the lag of each group: the columns of mqadmin consumerProgress, and how long the next message has waited.

    An unknown value is NULL, and #Reason has the reason: `pullsim sql --lake DIR "DESCRIBE consume_lag"` explains each. #LastTime is in
    UTC. As json and csv the rows are those of consume_lag, with its column names.

    --record, for example after each import, appends an observation of the broker to lag_history, which group_status and retention_risk
    need. Nothing is appended if the broker's tables have not changed since the last observation.
    """
    if record:
        if group or topic or until_now or watch or form != "table":
            raise click.UsageError(
                "--record takes all groups and topics of a broker as they are: leave --group, --topic, --now, --watch and --format out"
            )
        _record(engine, lake, broker, observed_at, keep)
    elif observed_at is not None or keep is not None:
        raise click.UsageError("--observed-at and --keep say how to record: give --record too")
    else:
        _show(engine, lake, group=group, topic=topic, broker=broker, until_now=until_now, watch=watch, form=form)


def _record(engine: Engine, lake: str, broker: str | None, observed_at: int | None, keep: int | None) -> None:
    from pipeline.lag.lag_history import record
    from pipeline.lake.opened_broker import OpenedBroker

    committed_at = now()
    at = milliseconds(committed_at) if observed_at is None else observed_at
    with engine.session(reads=lake) as spark:
        opened = OpenedBroker.of(spark, lake, broker)
        recorded = record(opened, observed_at=at, keep_days=keep, run_id=run_id(), committed_at=committed_at)
    if recorded is None:
        say(f"nothing new of broker {opened.name}: the lake has not changed since its last observation, or has one of {at} ms")
    else:
        say(f"recorded {recorded.queues:,} queues of broker {opened.name} at {at} ms, lake version {recorded.lake_version}")


def _show(
    engine: Engine, lake: str, *, group: str | None, topic: str | None, broker: str | None, until_now: bool, watch: bool, form: str
) -> None:
    from pipeline.files.stopping import told_to_stop
    from pipeline.lag.lag import LAG_READS, diff_total, lag_rows, queue_lags
    from pipeline.lake.lake import Lake, changes
    from pipeline.lake.views import create_views

    with engine.session(reads=lake) as spark:
        opened = Lake(spark, lake).require()
        name = None if broker is None else opened.broker(broker)

        def show() -> None:
            create_views(opened, LAG_READS)
            until = now() if until_now else None
            if form != "table":
                show_rows(queue_lags(spark, broker=name, group=group, topic=topic, until=until), form)
                return
            frame = lag_rows(spark, broker=name, group=group, topic=topic, until=until)
            names, rows = frame.columns, frame.collect()
            show_table([f"#{column}" for column in names], rows)
            say(f"\n{diff_total([row['Diff'] for row in rows])}")

        show()
        if watch:
            with told_to_stop() as stop:
                for version in changes(opened, stop):
                    if form == "table":
                        start_page(f"lake version {version.version}, {now():%Y-%m-%d %H:%M:%S} UTC\n")
                    show()
