"""The operator's commands: each lists one view, short and sorted, with a verdict below it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine
from pipeline.commands.listed import Names, answer, list_options, show_first
from pipeline.commands.options import check_needed, lake_option, span_options
from pipeline.delta.delta_sql import literal
from pipeline.lag.lag_sql import OF_USERS
from pipeline.lake.asking import Ask
from pipeline.listings.listing import AskedListing, Listing, equal
from pipeline.listings.operator_lists import (
    BACK_LIST,
    CLIENT_LIST,
    CLIENT_QUEUE_LIST,
    DELAY_LIST,
    DELAYED_MESSAGE_LIST,
    DLQ_LIST,
    GROUP_LIST,
    IS_REFUSED,
    MESSAGE_LIST,
    OFFSET_LIST,
    POP_LIST,
    PULL_LIST,
    STATUS_LIST,
    TIMER_LIST,
    TIMER_MESSAGE_LIST,
    TOPIC_LIST,
    TRANSACTION_LIST,
)
from pipeline.report.scope import require_span
from pipeline.settings.settings import nearest
from pipeline.terminal import say
from udfs.pull.codes import GetMessageStatus, ResponseCode

# outcome of a pull whose answer was not captured
NO_ANSWER: Final = "NO_ANSWER"
# outcome of a pull that was refused, whatever the code
REFUSED: Final = "REFUSED"
# an offset message id: address and port in hex (IPv4 or IPv6), and the offset in the commit log
_OFFSET_ID = re.compile(r"(?:[0-9A-F]{16}|[0-9A-F]{40})(?P<offset>[0-7][0-9A-F]{15})")
_GROUP = click.option("--group", metavar="NAME", help="Only this consumer group.")
_TOPIC = click.option("--topic", metavar="NAME", help="Only this topic.")
_QUEUE = click.option("--queue", "queue_id", type=click.IntRange(min=0), metavar="ID", help="Only this queue of the topic; needs --topic.")
_BROKER = click.option("--broker", metavar="NAME", help="Only this broker; all by default.")


def _outcome(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return the condition on pull_outcome for the value of --outcome: a status of the store, or a response code by its name or number."""
    if value is None:
        return None
    name = value.upper()
    if name == REFUSED:
        return IS_REFUSED
    if name in ResponseCode.__members__:
        return f"code = {int(ResponseCode[name])}"
    if name.isdecimal() and name.isascii() and len(name) <= 9:
        return f"code = {int(name)}"
    known = [*GetMessageStatus.__members__, NO_ANSWER, REFUSED, *ResponseCode.__members__]
    if name in known:
        return f"outcome = {literal(name)}"
    raise click.BadParameter(
        f"expected a status of the store, {NO_ANSWER}, {REFUSED}, or a response code by its name or number, found {value!r}; the nearest: "
        f"{', '.join(nearest(name, known))}"
    )


def _show(
    engine: Engine,
    lake: str,
    listing: Listing,
    *,
    form: str,
    sort: str | None,
    limit: int | None,
    broker: str | None = None,
    group: str | None = None,
    topic: str | None = None,
    more: tuple[str, ...] = (),
) -> None:
    conditions = [*equal("brokerName", broker), *equal("consumerGroup", group), *equal("topic", topic), *more]
    asked = AskedListing(listing=listing, conditions=conditions, sort=sort, limit=limit, form=form)
    answer(engine, lake, Names(group=group, topic=topic, broker=broker), lambda ask: show_first(ask, [asked]))


@cli.command(
    "groups",
    cls=ExampleCommand,
    example="pullsim groups --lake lake --sort waited --limit 10\n  pullsim groups --lake lake --queues --group orders-consumer",
)
@lake_option
@_GROUP
@click.option("--queues", is_flag=True, help="A row for each queue of a group instead: its status and why it has it, the worst first.")
@click.option("--all", "also_own", is_flag=True, help="Groups that the broker itself makes and nobody uses, too.")
@_BROKER
@list_options
def groups_command(
    lake: str,
    group: str | None,
    queues: bool,
    also_own: bool,
    broker: str | None,
    sort: str | None,
    limit: int | None,
    form: str,
    engine: Engine,
) -> None:
    """Show every consumer group: its status, what waits, its dead letters and its clients.

    Has a group stopped, or is it only slow? STOP: it has stopped. STALL: a queue stands still, others move. WARN: it is slow, its lag does
    not become less. REWIND: its offset went back. OK: it keeps up or gains. With --group NAME, the line below the table says which; with
    --queues, each queue has the reason. `pullsim retention` tells when the next message is lost.

    The status is that of the view group_status; UNKNOWN where neither a capture nor `pullsim lag --record` shows the group over time.
    Waited is how long the next message of a queue has waited, at most. Retry lag counts the retry topic: what a group sent back waits in a
    delay level first (`pullsim delays`). A dash is a value that is not known. Json and csv have the
    columns of the view group_overview, with --queues those of group_status.

    Why a queue has its status: NO_COMMITS (STOP), no queue of the topic moves; OFFSET_STANDS (STALL), this queue alone does not move;
    OFFSET_WENT_BACK (REWIND); LAG_NOT_DECREASING (WARN), it moves and gains nothing; MESSAGES_DELETED (WARN), the lag fell only because
    messages were deleted before the group consumed them; NO_OFFSET, NOT_OBSERVED and INCOMPLETE_WINDOW (UNKNOWN), no offset is stored, or
    too little was seen; NO_LAG, HAD_NO_LAG and LAG_DECREASED (OK), nothing waits, nothing waited for a while, or the group consumed more
    than came. A queue that never had a message, such as an empty retry queue, is OK. Seen committing is the last look that showed the
    group committing: the commit itself came up to one look earlier.
    """
    if queues and also_own:
        raise click.UsageError("--all cannot be combined with --queues: a group that nobody uses has no queue")
    used = () if queues or also_own or group is not None else (f"topics > 0 OR clients IS NOT NULL OR ({OF_USERS})",)
    listing = STATUS_LIST if queues else GROUP_LIST
    _show(engine, lake, listing, form=form, sort=sort, limit=limit, broker=broker, group=group, more=used)


@cli.command("topics", cls=ExampleCommand, example="pullsim topics --lake lake --sort rate")
@lake_option
@_TOPIC
@_BROKER
@list_options
def topics_command(
    lake: str, topic: str | None, broker: str | None, sort: str | None, limit: int | None, form: str, engine: Engine
) -> None:
    """Show every topic: its messages, size and rate, and the groups that consume it.

    Rate is the messages a second from the first message in the store to the last; a dash where less than a second lies between these
    two. A topic of topics.json without a message has no queue in the store. Lag adds up all groups. Json and csv have the columns of the
    view topic_overview.
    """
    _show(engine, lake, TOPIC_LIST, form=form, sort=sort, limit=limit, broker=broker, topic=topic)


@cli.command(
    "clients",
    cls=ExampleCommand,
    example="pullsim clients --lake lake --group orders-consumer\n  pullsim clients --lake lake --queues --topic orders",
)
@lake_option
@_GROUP
@click.option("--queues", is_flag=True, help="A row for each queue that a client pulled from instead.")
@click.option("--topic", metavar="NAME", help="Only queues of this topic; needs --queues.")
@_BROKER
@list_options
def clients_command(
    lake: str,
    group: str | None,
    queues: bool,
    topic: str | None,
    broker: str | None,
    sort: str | None,
    limit: int | None,
    form: str,
    engine: Engine,
) -> None:
    """Show the clients that consumed while traffic was captured: group, address, last sign of life.

    With --queues, the rows say who pulled from which queue, and what waits there for the group; where clients took a queue over from each
    other, the first one pulled last. `pullsim clients --queues --group NAME --sort lag` shows the slowest client first.

    A store knows no clients: they come from `pullsim capture`. A client that only pulls, without a captured heartbeat, is SEEN.
    Json and csv have the columns of the view client, with --queues those of client_queue.
    """
    if not queues:
        check_needed("--queues", {"--topic": topic}, "a client is no client of one topic")
    _show(
        engine,
        lake,
        CLIENT_QUEUE_LIST if queues else CLIENT_LIST,
        form=form,
        sort=sort,
        limit=limit,
        broker=broker,
        group=group,
        topic=topic,
    )


@cli.command(
    "pulls",
    cls=ExampleCommand,
    example="pullsim pulls --lake lake --group orders-consumer --outcome PULL_OFFSET_MOVED --from 2024-05-01T12:03",
)
@lake_option
@_GROUP
@_TOPIC
@_QUEUE
@click.option(
    "--outcome",
    callback=_outcome,
    metavar="NAME|CODE",
    help="Only pulls that ended so: a status such as OFFSET_TOO_SMALL, a response code such as PULL_OFFSET_MOVED or 21, or REFUSED.",
)
@span_options("pulls")
@_BROKER
@list_options
def pulls_command(
    lake: str,
    group: str | None,
    topic: str | None,
    queue_id: int | None,
    outcome: str | None,
    since: int | None,
    until: int | None,
    broker: str | None,
    sort: str | None,
    limit: int | None,
    form: str,
    engine: Engine,
) -> None:
    """Show the captured pulls: when, from which offset, how they ended, and the next offset; one pull alone is shown whole.

    Held: the broker held the pull (long polling), and this ended it: MESSAGE, one for the group came; TIMEOUT, none came in time;
    NOT_FOR_IT, the filter let nothing pass; NO_ANSWER, the client left or the capture ended; REFUSED. A dash: it was not held.

    The newest comes first. `pullsim explain --request` takes what the column Request has, the end of the requestId. Pulls come from
    `pullsim capture`. Json and csv have the columns of the view pull_outcome.
    """
    _check_queue(topic, queue_id)
    require_span(since, until, named=("--from", "--to"))
    more = [
        "source = 'CAPTURED'",
        *equal("queueId", queue_id),
        *([] if outcome is None else [outcome]),
        *([] if since is None else [f"arrivalMicros >= {since}000"]),
        *([] if until is None else [f"arrivalMicros < {until}000"]),
    ]
    given = {"consumerGroup": group, "topic": topic}
    columns = [column for column in PULL_LIST.columns if given.get(column.name) is None]
    listing = replace(PULL_LIST, columns=columns)
    _show(engine, lake, listing, form=form, sort=sort, limit=limit, broker=broker, group=group, topic=topic, more=tuple(more))


@cli.command("offsets", cls=ExampleCommand, example="pullsim offsets --lake lake --group orders-consumer --back")
@lake_option
@_GROUP
@_TOPIC
@_BROKER
@click.option("--back", is_flag=True, help="Only moves back, and offsets that a query found moved.")
@list_options
def offsets_command(
    lake: str,
    group: str | None,
    topic: str | None,
    broker: str | None,
    back: bool,
    sort: str | None,
    limit: int | None,
    form: str,
    engine: Engine,
) -> None:
    """Show how the offsets of groups moved while traffic was captured, and which client moved them.

    The newest move comes first. SEEN: a query found the offset moved, the move itself was not captured, and the client is the one that
    asked. `pullsim lag` shows the stored offsets. Json and csv have the columns of the view offset_move.
    """
    more = ("how IN ('BACK', 'SEEN')",) if back else ()
    listing = BACK_LIST if back else OFFSET_LIST
    _show(
        engine,
        lake,
        listing if group is None else replace(listing, columns=[column for column in listing.columns if column.name != "consumerGroup"]),
        form=form,
        sort=sort,
        limit=limit,
        broker=broker,
        group=group,
        topic=topic,
        more=more,
    )


@cli.command("message", cls=ExampleCommand, example="pullsim message --lake lake --key main2-335 --topic orders")
@lake_option
@click.option("--key", metavar="KEY", help="Messages with this key, or this unique key.")
@click.option("--id", "message_id", metavar="ID", help="The message with this offset message id or unique key.")
@click.option("--tag", metavar="TAG", help="Messages with this tag.")
@click.option("--text", metavar="TEXT", help="Messages whose body has this text; compressed bodies are searched too.")
@_TOPIC
@_QUEUE
@click.option("--offset", type=click.IntRange(0, 2**63 - 1), metavar="N", help="The message with this offset in the queue; needs --queue.")
@_BROKER
@list_options
def message_command(
    lake: str,
    key: str | None,
    message_id: str | None,
    tag: str | None,
    text: str | None,
    topic: str | None,
    queue_id: int | None,
    offset: int | None,
    broker: str | None,
    sort: str | None,
    limit: int | None,
    form: str,
    engine: Engine,
) -> None:
    """Find messages by key, id, tag, text or place, the newest first; one message alone is shown whole: --limit 1 shows the newest so.

    Several options find the messages that fulfil all of them. Bodies are shown where they are text, compressed ones as consumers get them.
    `pullsim lag --topic NAME` shows which groups are past a message: those of its queue from the #Consumer Offset on wait. A group that is
    past it has consumed it, unless its filter dropped it or the group began after it.
    Json and csv have the columns of the view message, without the bytes of the body.
    """
    if all(one is None for one in (key, message_id, tag, text, topic)):
        raise click.UsageError("expected one of --key, --id, --tag, --text and --topic, found none of them")
    _check_queue(topic, queue_id)
    if queue_id is None:
        check_needed("--queue", {"--offset": offset}, "each queue has a message of this offset")
    of_queue = [*equal("brokerName", broker), *equal("topic", topic), *equal("queueId", queue_id)]
    conditions = [*of_queue, *equal("queueOffset", offset), *equal("tags", tag)]
    if key is not None:
        conditions.append(f"array_contains(keyList, {literal(key)}) OR uniqKey = {literal(key)}")
    if text is not None:
        whole = f"contains(CAST(uncompress_body(body, sysFlag) AS STRING), {literal(text)})"
        conditions.append(f"CASE WHEN sysFlag & 1 = 1 THEN {whole} ELSE contains(bodyText, {literal(text)}) END")
    asked = [
        AskedListing(listing=MESSAGE_LIST, conditions=[*conditions, *ids], sort=sort, limit=limit, form=form) for ids in _ids(message_id)
    ]

    def show(ask: Ask) -> None:
        found = show_first(ask, asked)
        if not found["rows"] and topic is not None and queue_id is not None and form == "table":
            say(_why_no_message(ask, queue_id, of_queue))

    answer(engine, lake, Names(topic=topic, broker=broker), show)


def _why_no_message(ask: Ask, queue_id: int, of_queue: Sequence[str]) -> str:
    """Return what the store has of a queue in which no message was found; the conditions `of_queue` choose the queue."""
    _, rows = ask(f"SELECT brokerName, minOffset, maxOffset FROM queue WHERE {' AND '.join(of_queue)} ORDER BY brokerName")  # noqa: S608
    told = [
        f"on broker {name} it has the offsets {least} to {end - 1}" if least < end else f"on broker {name} it is empty"
        for name, least, end in rows
    ]
    return f"queue {queue_id}: {'; '.join(told) or 'the store has no such queue'}"


def _check_queue(topic: str | None, queue_id: int | None) -> None:
    if topic is None:
        check_needed("--topic", {"--queue": queue_id}, "each topic has a queue of this number")


def _ids(message_id: str | None) -> list[list[str]]:
    """Return the conditions to try one after the other: the message's place in the log, which reads little, then its unique key."""
    if message_id is None:
        return [[]]
    by_key = equal("uniqKey", message_id)
    found = _OFFSET_ID.fullmatch(message_id.upper())
    if found is None:
        return [by_key]
    return [[f"physicOffset = {int(found['offset'], 16)}L", *equal("msgId", message_id.upper())], by_key]


@cli.command("dlq", cls=ExampleCommand, example="pullsim dlq --lake lake")
@lake_option
@_GROUP
@_BROKER
@list_options
def dlq_command(lake: str, group: str | None, broker: str | None, sort: str | None, limit: int | None, form: str, engine: Engine) -> None:
    """Show what lies in the dead letter topics: of which group, from which topic, how old.

    `pullsim message --topic %DLQ%GROUP` lists the messages. Json and csv have the columns of the view dead_letters.
    """
    _show(engine, lake, DLQ_LIST, form=form, sort=sort, limit=limit, broker=broker, group=group)


@cli.command("transactions", cls=ExampleCommand, example="pullsim transactions --lake lake")
@lake_option
@_TOPIC
@_BROKER
@list_options
def transactions_command(
    lake: str, topic: str | None, broker: str | None, sort: str | None, limit: int | None, form: str, engine: Engine
) -> None:
    """Show the transactions that are neither committed nor rolled back, and how often the broker has asked their producers.

    A PENDING one is asked about again, until transactionCheckMax; a DISCARDED one lies in TRANS_CHECK_MAX_TIME_TOPIC. --topic is the topic
    that the message is for. Json and csv have the columns of the view open_transaction.
    """
    _show(engine, lake, TRANSACTION_LIST, form=form, sort=sort, limit=limit, broker=broker, topic=topic)


@cli.command("delays", cls=ExampleCommand, example="pullsim delays --lake lake --messages")
@lake_option
@click.option("--topic", metavar="NAME", help="Only messages for this topic, a row each.")
@click.option("--messages", is_flag=True, help="The messages that wait, a row each, instead of levels.")
@_BROKER
@list_options
def delays_command(
    lake: str, topic: str | None, messages: bool, broker: str | None, sort: str | None, limit: int | None, form: str, engine: Engine
) -> None:
    """Show the messages of delay levels that are not delivered: how many wait in each level, and until when.

    What is due next comes first: levels with an overdue message, then by the time of the next one. Messages that a group sent back wait
    here for their retry: --topic %RETRY%GROUP.

    With --messages, the state of a message: OVERDUE, due more than 20 s before the last write to the store: its level is stuck; DUE, at
    most 20 s before; PENDING, not due; then NO_LEVEL, never delivered, as messageDelayLevel lacks the level; NO_MESSAGE, the commit log
    does not have it; UNKNOWN, due earlier, and the level has no stored offset: it may have been delivered; DELIVERED, its topic has it,
    though delayOffset.json, which the broker writes each 10 s, does not say so: a start from this store delivers it again.

    Timer messages of brokers 5.x have a list of their own: `pullsim timers`. Json and csv have the columns of the
    view delay_level, and with --messages or --topic those of delayed_message.
    """
    listing = DELAYED_MESSAGE_LIST if messages or topic is not None else DELAY_LIST
    _show(engine, lake, listing, form=form, sort=sort, limit=limit, broker=broker, topic=topic)


@cli.command("timers", cls=ExampleCommand, example="pullsim timers --lake lake --messages")
@lake_option
@_TOPIC
@click.option("--messages", is_flag=True, help="The messages that wait, a row each, instead of topics.")
@click.option("--all", "also_past", is_flag=True, help="With --messages: those that were delivered or stored again, too.")
@_BROKER
@list_options
def timers_command(
    lake: str,
    topic: str | None,
    messages: bool,
    also_past: bool,
    broker: str | None,
    sort: str | None,
    limit: int | None,
    form: str,
    engine: Engine,
) -> None:
    """Show what waits in the timer of a broker 5.x: for which topics, until when, and whether the broker counts the same.

    POP's check points and acknowledgements are timer messages for rmq_sys_REVIVE_LOG_*. An OVERDUE message was due more than 10 s before
    the last write to the store. --topic is the topic that a message is for. Json and csv have the columns of the view timer_topic, and with
    --messages those of timer_message. The view timer_check tells where timerwheel, timerlog and the commit log disagree.
    """
    if also_past and not messages:
        raise click.UsageError("--all cannot be used without --messages: topics have no rows for what is past")
    waiting = (
        ()
        if not messages or also_past
        else ("state IS NULL OR state IN ('PENDING', 'OVERDUE', 'QUEUED', 'CANCEL', 'CANCELLED', 'NO_UNIT')",)
    )
    listing = TIMER_MESSAGE_LIST if messages else TIMER_LIST
    _show(engine, lake, listing, form=form, sort=sort, limit=limit, broker=broker, topic=topic, more=waiting)


@cli.command("pop", cls=ExampleCommand, example="pullsim pop --lake lake --group orders-consumer")
@lake_option
@_GROUP
@_TOPIC
@click.option("--all", "also_past", is_flag=True, help="Messages that were acknowledged, held on or given up to the retry topic, too.")
@_BROKER
@list_options
def pop_command(
    lake: str,
    group: str | None,
    topic: str | None,
    also_past: bool,
    broker: str | None,
    sort: str | None,
    limit: int | None,
    form: str,
    engine: Engine,
) -> None:
    """Show which messages consumers hold by POP, until when, and how often they came back.

    A message is HELD until it is acknowledged or its time is over. An EXPIRED one is not in the retry topic yet. Json and csv have the
    columns of the view pop_message.
    """
    open_ones = () if also_past else ("state IN ('HELD', 'EXPIRED')",)
    _show(engine, lake, POP_LIST, form=form, sort=sort, limit=limit, broker=broker, group=group, topic=topic, more=open_ones)
