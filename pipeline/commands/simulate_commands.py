"""The command that simulates consumer groups."""

from __future__ import annotations

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, engine_options
from pipeline.commands.given_settings import GivenSettings, settings_options
from pipeline.commands.listed import Names, answer
from pipeline.commands.new_run import now, run_id
from pipeline.commands.options import FORMATS, check_alone, check_needed, lake_option
from pipeline.lake.asking import Ask
from pipeline.terminal import progress_to_stderr, say


@cli.command(
    "simulate",
    cls=ExampleCommand,
    example="pullsim simulate --lake lake --from-group orders-consumer\n"
    "  pullsim simulate --lake lake --scenario slow.toml --vary clients.count=3,4,6 --seeds 5 --out lag.svg",
)
@lake_option
@click.option("--scenario", metavar="FILE", help="Scenario in TOML: docs/simulate.md.")
@click.option("--from-group", metavar="NAME", help="Print a scenario with the figures of this group in the lake; simulate nothing.")
@click.option("--topic", metavar="NAME", help="With --from-group: the topic; the one with the greatest lag by default.")
@click.option(
    "--seeds", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Runs of each variant, each with a seed of its own."
)
@click.option(
    "--vary", "varied", multiple=True, metavar="NAME=A,B,...", help="Values of a field of the scenario; repeatable: all combinations."
)
@click.option("--out", metavar="FILE.svg", help="File for a picture of lag over time.")
@click.option("--write-store", metavar="DIR", help="Folder for a store with the messages that the run appended; one variant and one seed.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="Form of the rows.")
@click.option("--broker", metavar="NAME", help="Broker whose messages are recorded; needed where the lake holds more than one.")
@settings_options
@engine_options
def simulate_command(
    lake: str,
    scenario: str | None,
    from_group: str | None,
    topic: str | None,
    seeds: int,
    varied: tuple[str, ...],
    out: str | None,
    write_store: str | None,
    form: str,
    broker: str | None,
    settings: GivenSettings,
    engine: Engine,
) -> None:
    """Simulate a consumer group: its clients, listeners, retries and offsets, in virtual time.

    The output has a row for each variant: when the group had caught up, its lag, and the messages that were delivered twice or given up.
    The events of each run go to the tables simulation_run, simulated_lag, rebalance_event and, if the scenario needs them, consumption,
    dead_letter and simulated_transactions. With --write-store the broker's store is written too, with the file sizes and other settings of
    --properties and --set.

    --from-group prints a scenario file to edit: rate, backlog, tags and size of messages come from the store; clients, batch size and pace
    of commits from captured traffic. What the lake does not tell stands as a guess, and its comment says so.
    """
    if from_group is not None:
        others = {"--scenario": scenario, "--vary": varied, "--out": out, "--write-store": write_store}
        check_alone("--from-group", others, "it prints a scenario, and simulates nothing")
        _print_scenario(engine, lake, broker, from_group, topic)
        return
    if scenario is None:
        raise click.UsageError("expected --scenario FILE, or --from-group NAME to print one, found neither")
    check_needed("--from-group", {"--topic": topic}, "a scenario file names its topic itself")
    _simulate(engine, lake, scenario, seeds, varied, out, write_store, form, broker, settings)


def _print_scenario(engine: Engine, lake: str, broker: str | None, group: str, topic: str | None) -> None:
    from pipeline.simulation.from_group import group_figures, scenario_of

    def show(ask: Ask) -> None:
        say(scenario_of(group_figures(ask, broker, group, topic)).rstrip("\n"))

    answer(engine, lake, Names(group=group, topic=topic, broker=broker), show)


def _simulate(
    engine: Engine,
    lake: str,
    scenario: str,
    seeds: int,
    varied: tuple[str, ...],
    out: str | None,
    write_store: str | None,
    form: str,
    broker: str | None,
    settings: GivenSettings,
) -> None:
    from pipeline.lake.lake import Lake
    from pipeline.simulation.scenario import located, read_scenario, scenario_text
    from pipeline.simulation.simulate_job import run_simulate
    from pipeline.simulation.summary import check_picture, show_summary, write_picture
    from pipeline.simulation.written_run import check_writable, write_run

    text = scenario_text(scenario)
    variants = read_scenario(text, scenario, varied)
    if out:
        check_picture(out)
    store_settings = settings.over()
    if not write_store and store_settings.given:
        raise click.UsageError(
            "--set and --properties cannot be used without --write-store: the settings that are simulated stand in the scenario, under "
            "[broker]; write them there, or give --write-store too"
        )
    if write_store:
        if len(variants) * seeds > 1:
            raise click.UsageError(
                f"--write-store: expected one variant and one seed, found {len(variants)} and {seeds}; leave --vary and --seeds out"
            )
        with located(scenario, text):
            check_writable(variants[0].scenario, write_store, scenario, store_settings)
    with engine.session("long", workers=True) as spark:
        done = run_simulate(
            Lake(spark, lake),
            text,
            scenario,
            varied,
            seeds=seeds,
            broker=broker,
            run_id=run_id(),
            now=now,
            progress=progress_to_stderr,
        )
    show_summary(variants, done, form)
    if out:
        write_picture(out, variants, done)
        progress_to_stderr(f"lag over time is in {out}")
    if write_store:
        written = write_run(write_store, variants[0].scenario, scenario, store_settings)
        progress_to_stderr(f"{written.messages:,} messages are in the store {written.store}, whose log ends at {written.log_end:,}")
