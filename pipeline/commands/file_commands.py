"""The commands that work on files alone, such as a store directory.

They start no Spark. They accept the options for Spark, as all commands do, without effect.
"""

from __future__ import annotations

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import unused_engine_options
from pipeline.commands.given_settings import GivenSettings, rules_option, settings_options
from pipeline.settings.quantities import counted
from pipeline.terminal import progress_to_stderr, say


@cli.command("recover", cls=ExampleCommand, example="pullsim recover /data/rocketmq/store --out recovered.json")
@click.argument("store")
@click.option("--out", required=True, metavar="FILE.json", help="File for the states and the files.")
@settings_options
@rules_option
@unused_engine_options
def recover_command(store: str, out: str, settings: GivenSettings) -> None:
    """Write the state of STORE after the broker's load, after its start and after a clean shutdown, and the files at the end.

    STORE is only read. This needs no Spark.
    """
    from pipeline.files.given_files import require_output
    from pipeline.store.recover import run_recover, summary, write_recovery

    require_output("--out", out, read=store)
    broker_settings = settings.of_store(store)
    told = run_recover(store, settings=broker_settings)
    write_recovery(told, out)
    say(summary(told, store))
    say(broker_settings.told_version)


@cli.command("lookup", cls=ExampleCommand, example="pullsim lookup /data/rocketmq/store --requests lookups.jsonl --out found.jsonl")
@click.argument("store")
@click.option("--requests", required=True, metavar="FILE", help="Look-ups, a JSON object a line.")
@click.option("--out", required=True, metavar="FILE", help="File for the answers: the same lines in the same order.")
@settings_options
@rules_option
@unused_engine_options
def lookup_command(store: str, requests: str, out: str, settings: GivenSettings) -> None:
    """Look up offsets by time, messages by offset or key, and times of messages in a broker's STORE directory.

    A line of FILE is an object with op and its arguments: getOffsetInQueueByTime (topic, queueId, timestamp), getMessageStoreTimeStamp
    (topic, queueId, consumeQueueOffset), getEarliestMessageTime (topic, queueId), getEarliestMessageTimeOfStore, queryMessage (topic, key,
    maxNum, begin, end), lookMessageByOffset (commitLogOffset).

    STORE is only read. Settings and the times of queue files come from FILE's header line if it has one, else from the files.
    --set and --properties override the header.
    """
    from pipeline.files.given_files import require_output
    from pipeline.requests.request_file import header_config
    from pipeline.store.lookup import run_lookup

    require_output("--out", out, read=store)
    done = run_lookup(
        store,
        requests,
        out,
        settings_of=lambda header: settings.of_store(store, header=header_config(header), header_where=f"{requests}, line 1"),
        progress=progress_to_stderr,
    )
    for error, count in sorted(done.unanswered.items()):
        progress_to_stderr(f"{count} of {done.requests} look-ups could not be answered: {error}")
    progress_to_stderr(f"{done.requests} answers written to {out}")


@cli.command("generate", cls=ExampleCommand, example="pullsim generate made-store --messages 100000 --workload workload.toml")
@click.argument("store")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Seed, instead of the workload's; the same seed gives the same bytes.")
@click.option("--messages", type=click.IntRange(0), help="Number of messages, instead of the workload's.")
@click.option("--workload", metavar="FILE", help="Workload in TOML or JSON (docs/workload.md); a small mixed one by default.")
@settings_options
@unused_engine_options
def generate_command(
    store: str,
    seed: int | None,
    messages: int | None,
    workload: str | None,
    settings: GivenSettings,
) -> None:
    """Write a store that a broker loads without changes: generated messages, stored as the broker does, and a clean shutdown.

    STORE is created; a folder that exists must be empty. This needs no Spark.
    """
    from pipeline.generate.generate import run_generate
    from pipeline.generate.workload import DEFAULT_WORKLOAD, read_workload, workload_of

    where = workload or "the default workload"
    done = run_generate(
        store,
        read_workload(workload) if workload else workload_of(DEFAULT_WORKLOAD, where),
        seed=seed,
        messages=messages,
        settings=settings.over(),
        where=where,
        progress=progress_to_stderr,
    )
    say(f"generated {done.store}: {counted(done.messages, 'message')} in {counted(done.queues, 'queue')}, commit log 0 to {done.log_end}")


@cli.command("frames", cls=ExampleCommand, example="pullsim frames frames.jsonl --out decoded.jsonl")
@click.argument("file")
@click.option("--out", required=True, metavar="FILE", help="File for the decoded frames.")
@unused_engine_options
def frames_command(file: str, out: str) -> None:
    """Decode the RemotingCommand frames of FILE, a JSON object with frameHex a line, as the broker does.

    A frame that the broker refuses gets the broker's exception, and the position of the byte. This needs no Spark.
    """
    from pipeline.requests.frames import run_frames

    done = run_frames(file, out)
    say(f"{done.frames} frames, {done.refused} of them refused")
