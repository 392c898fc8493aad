"""A scenario file of a group, to edit, with the figures of a lake: rate, backlog, tags, clients and pace of commits. No Spark here.

Rule: a figure that the lake does not have is a guess, and its comment says so. Rates and shares are those of the messages that the
store still has; clients and paces are those of the captured traffic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipeline.delta.delta_sql import literal
from pipeline.lake.asking import Ask, Row, ask_each
from pipeline.lake.lake_errors import LakeError
from pipeline.settings.quantities import counted
from store_format.errors import printable

# greatest number of tags in a scenario if the group wants fewer; all other tags together become one, _OTHERS
_TAGS_MAX: Final = 20
_OTHERS: Final = "other-tags"
_NO_TAG: Final = "no-tag"
_CONSUMED = "NOT startswith(topic, '%RETRY%') AND NOT startswith(topic, '%DLQ%')"
_TOPIC = """
SELECT topic, waiting FROM consume_lag_by_group
WHERE {mine} AND {consumed}{chosen}
ORDER BY waiting DESC NULLS LAST, queues DESC, topic
"""
_SIZE = "SELECT queues, messages, messagesPerSecond FROM topic_size WHERE brokerName = {broker} AND topic = {topic}"
# begin and end of the captured traffic, and of the messages that the store has, ms
_CAPTURED = """
SELECT
  (SELECT min(arrivalMicros) DIV 1000 FROM pull_request WHERE brokerName = {broker}) AS first,
  (SELECT max(arrivalMicros) DIV 1000 FROM pull_request WHERE brokerName = {broker}) AS last,
  (SELECT min(minStoreTimestamp) FROM commit_log_segment WHERE brokerName = {broker} AND minStoreTimestamp > 0) AS oldest,
  (SELECT max(maxStoreTimestamp) FROM broker WHERE brokerName = {broker}) AS newest
"""
_ARRIVED = """
SELECT count(*) AS messages FROM consume_queue
WHERE brokerName = {broker} AND topic = {topic} AND storeTimestamp > {since} AND storeTimestamp <= {until}
"""
_BACKLOG = "SELECT coalesce(sum(CASE WHEN lag > 0 THEN lag END), 0L) AS backlog FROM consume_lag WHERE {mine} AND topic = {topic}"
_TAGS = """
SELECT tags, count(*) AS messages, sum(storeSize - 91 - octet_length(propertiesRaw)) AS bytes
FROM commit_log WHERE brokerName = {broker} AND topic = {topic}
GROUP BY tags ORDER BY messages DESC, tags
"""
_CLIENTS = """
SELECT
  count(DISTINCT coalesce(clientId, address)) AS seen,
  count(DISTINCT CASE WHEN state IN ('CONNECTED', 'SEEN') THEN coalesce(clientId, address) END) AS there,
  max(messageModel) AS model
FROM client WHERE {mine}
"""
_FILTER = "SELECT expressionType, expression FROM group_filter WHERE {mine} AND topic = {topic}"
_BATCH = """
SELECT maxMsgNums, count(*) AS pulls FROM pull_request
WHERE {mine} AND topic = {topic} AND maxMsgNums > 0 GROUP BY maxMsgNums ORDER BY pulls DESC, maxMsgNums LIMIT 1
"""
# offsets that went forward, and the time between the first and the last captured commit of the group on the topic
_PACE = """
SELECT sum(CASE WHEN how = 'FORWARD' THEN moved END) AS consumed, (max(micros) - min(micros)) / 1000000 AS seconds
FROM offset_move WHERE {mine} AND topic = {topic}
"""
# messages that the store still has: those that the group consumed, and those that the group sent back
_TRIED = """
SELECT
  (
    SELECT sum(greatest(least(consumerOffset, brokerOffset) - minOffset, 0L)) FROM consume_lag WHERE {mine} AND topic = {topic}
  ) AS consumed,
  (
    SELECT count(*) FROM commit_log WHERE brokerName = {broker} AND topic = {retry} AND properties['RETRY_TOPIC'] = {topic}
  ) AS retried
"""
# least s of captured traffic from which a rate is calculated
_SEEN_SECONDS = 10
_OF_TIME = {True: "that came while traffic was captured", False: "of the store over their time"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """The figures of a group on a topic in a lake; None for a figure that the lake does not have.

    Attributes:
        broker: the broker.
        group: the group.
        topic: the topic.
        others: other topics that the group consumes.
        queues: queues of the topic.
        messages: messages of the topic that the store has.
        rate: messages a second that came to the topic, over all queues.
        rate_is_captured: whether `rate` is from the time of the captured traffic; else it is from the time of all messages of the store.
        backlog: messages that wait for the group.
        tags: tag -> messages, the commonest first; no tag is None.
        body: bytes of a body on the average.
        clients: clients of the group that have not left; if all have left, all clients that were seen.
        model: CLUSTERING or BROADCASTING.
        filter: type and expression of the group's filter.
        batch: the most common maxMsgNums of the group's pulls.
        pace: messages a second by which the group's committed offsets moved.
        fails: share of the group's tries after which it sent the message back, among the messages that the store has.
    """

    broker: str
    group: str
    topic: str
    others: Sequence[str]
    queues: int
    messages: int
    rate: float | None
    rate_is_captured: bool
    backlog: int
    tags: Mapping[str | None, int]
    body: int | None
    clients: int | None
    model: str | None
    filter: tuple[str, str] | None
    batch: int | None
    pace: float | None
    fails: float | None


def group_figures(ask: Ask, broker: str | None, group: str, topic: str | None) -> GroupFigures:
    """Return the figures of a group on a topic in a lake.

    Args:
        ask: gives the rows of a query.
        broker: the broker; None for the only one of the lake.
        group: the group, which the lake knows.
        topic: the topic; None for the one with the greatest lag.

    Raises:
        LakeError: no broker is named and the lake does not have exactly one, or the lake has no offset of the group on the topic.
    """
    brokers = sorted(row["brokerName"] for row in _rows(ask, "SELECT brokerName FROM broker"))
    if broker is None and len(brokers) != 1:
        raise LakeError(f"expected --broker, as the lake has {len(brokers)}: {', '.join(brokers)}")
    name = brokers[0] if broker is None else broker
    mine = f"brokerName = {literal(name)} AND consumerGroup = {literal(group)}"
    chosen = "" if topic is None else f" AND topic = {literal(topic)}"
    topics = [row["topic"] for row in _rows(ask, _TOPIC.format(mine=mine, consumed=_CONSUMED, chosen=chosen))]
    if not topics:
        where = "any topic" if topic is None else f"topic {topic!r}"
        raise LakeError(f"expected an offset of group {group!r} on {where}, found none; give another --from-group or --topic")
    values = {"mine": mine, "broker": literal(name), "topic": literal(topics[0]), "retry": literal(f"%RETRY%{group}")}
    size, captured_rate = _first(ask, _SIZE, values), _captured_rate(ask, values)
    tags = _rows(ask, _TAGS.format(**values))
    clients, pace = _first(ask, _CLIENTS, values), _first(ask, _PACE, values)
    told = _first(ask, _FILTER, values)
    batch = _first(ask, _BATCH, values)
    messages = sum(row["messages"] for row in tags)
    body = sum(row["bytes"] for row in tags) / messages - len(topics[0].encode()) if messages else None
    consumed = int(pace.get("consumed") or 0)
    return GroupFigures(
        broker=name,
        group=group,
        topic=topics[0],
        others=topics[1:],
        queues=size.get("queues") or 1,
        messages=messages,
        rate=size.get("messagesPerSecond") if captured_rate is None else captured_rate,
        rate_is_captured=captured_rate is not None,
        backlog=int(_first(ask, _BACKLOG, values)["backlog"]),
        tags={row["tags"]: row["messages"] for row in tags},
        body=None if body is None else max(round(body), 0),
        clients=clients["there"] or clients["seen"] or None,
        model=clients["model"],
        filter=(told["expressionType"], told["expression"]) if told else None,
        batch=batch.get("maxMsgNums"),
        pace=consumed / pace["seconds"] if consumed and pace["seconds"] else None,
        fails=_fails(_first(ask, _TRIED, values), {row["tags"]: row["messages"] for row in tags}, told),
    )


def _captured_rate(ask: Ask, values: Mapping[str, str]) -> float | None:
    """Return the messages a second that came while traffic was captured; None if the store has less than _SEEN_SECONDS of that time.

    Messages from before the capture say nothing about the rate.
    """
    times = _first(ask, _CAPTURED, values)
    if None in times.values():
        return None
    since, until = max(times["first"], times["oldest"]), min(times["last"], times["newest"])
    if until - since < _SEEN_SECONDS * 1000:
        return None
    arrived = _first(ask, _ARRIVED, {**values, "since": f"{since}L", "until": f"{until}L"})
    return float(arrived["messages"] * 1000 / (until - since))


def _fails(tried: Mapping[str, Any], tags: Mapping[str | None, int], told: Mapping[str, Any]) -> float | None:
    """Return the share of tries that failed: a message counts once for its first try, and once for each time it was sent back.

    The group consumes messages that its tags leave out without a try. How many messages a filter of another type leaves out is not known.
    """
    consumed, retried = tried["consumed"] or 0, tried["retried"]
    wanted = _wanted((told["expressionType"], told["expression"]) if told else None)
    if wanted and tags:
        consumed *= sum(tags.get(tag, 0) for tag in wanted) / sum(tags.values())
    return float(retried / (consumed + retried)) if consumed else None


def _wanted(filter_of: tuple[str, str] | None) -> list[str]:
    """Return the tags that a filter names; none if the filter lets all messages pass, or is no TAG filter."""
    if filter_of is None or filter_of[0] != "TAG" or filter_of[1] == "*":
        return []
    return [one.strip() for one in filter_of[1].split("||") if one.strip()]


def _rows(ask: Ask, query: str) -> Sequence[Row]:
    return next(ask_each(ask)([query]))


def _first(ask: Ask, query: str, values: Mapping[str, str]) -> Row:
    rows = _rows(ask, query.format(**values))
    return rows[0] if rows else {}


def scenario_of(found: GroupFigures) -> str:
    """Return the text of a scenario file with these figures, each with a comment that says where it comes from."""
    wanted = _wanted(found.filter)
    tags = _tags(found, wanted)
    subscription = " || ".join(tag for tag in wanted if tag in tags) or "*"
    lines = [
        _comment(f"Group {found.group} on broker {found.broker}, as the lake has it. Edit, and run:"),
        "#   pullsim simulate --lake LAKE --scenario THIS-FILE",
        *([_comment(f"It consumes {', '.join(found.others)} too: --topic takes another.")] if found.others else []),
        f"group = {_text(found.group)}",
        f"topic = {_text(found.topic)}",
        'until = "30m"',
        *_subscription(found, subscription),
        "",
        "[messages]",
        _line("rate", _number(found.rate, 0.0), f"a second: the messages {_OF_TIME[found.rate_is_captured]}", found.rate is not None),
        _line("queues", str(found.queues), "of the topic"),
        _line("backlog", str(found.backlog), "messages that wait for the group now"),
        *([_line("tags", _table(tags), f"of {counted(found.messages, 'message')}")] if wanted else []),
        _line("body", str(200 if found.body is None else found.body), "bytes of a body on the average", found.body is not None),
        "",
        "[listener]",
        *_listener(found),
        "",
        "[[clients]]",
        _line("count", str(found.clients or 1), "clients in the captured traffic", found.clients is not None),
        *_consumer(found),
    ]
    return "\n".join(lines) + "\n"


def _line(name: str, value: str, comment: str, is_known: bool = True) -> str:
    return f"{name} = {value}  {_comment(comment if is_known else f'a guess: the lake does not tell it ({comment})')}"


def _comment(text: str) -> str:
    """Return a comment of TOML; a name from outside cannot end its line."""
    return f"# {printable(text)}"


def _subscription(found: GroupFigures, subscription: str) -> list[str]:
    if found.filter is None:
        return [_line("subscription", '"*"', "tags that the group wants", is_known=False)]
    if found.filter[0] != "TAG":
        return [_line("subscription", '"*"', f"the group filters by {found.filter[0]}, which is not simulated: it gets all messages")]
    return [_line("subscription", _text(subscription), "tags that the group wants")]


def _listener(found: GroupFigures) -> list[str]:
    """Return the lines of the listener; with its time for a message, 20 threads of each client reach the captured pace."""
    if found.pace is None:
        takes = _line("takes", '"20ms"', "time for a message", is_known=False)
    else:
        millis = max(min(1000 * 20 * (found.clients or 1) / found.pace, 15 * 60_000), 0.001)
        keeps_up = found.backlog == 0 or (found.rate is not None and found.pace >= found.rate)
        why = "at most, as the group kept up: set what your listener takes" if keeps_up else "with 20 threads a client"
        takes = _line("takes", f'"{_rounded(millis)}ms"', f"commits went on by {_rounded(found.pace)} messages a second: {why}")
    fails = "0.0" if found.fails is None else _rounded(found.fails)
    return [takes, _line("fails", fails, "share of tries that were sent back", found.fails is not None)]


def _consumer(found: GroupFigures) -> list[str]:
    lines = []
    if found.batch is not None:
        lines.append(_line("pullBatchSize", str(min(found.batch, 1024)), "messages that most captured pulls ask for"))
    if found.model == "BROADCASTING":
        lines.append(_line("messageModel", '"BROADCASTING"', "by the group's heartbeats"))
    return ["", "[consumer]", *lines] if lines else []


def _tags(found: GroupFigures, wanted: Sequence[str]) -> dict[str, int]:
    """Return the messages of each wanted tag, of the most common other tags, and of all other tags under one name.

    A scenario must have messages of each tag of its subscription. If the store has none of any wanted tag, the first one gets 1 message.
    """
    names = [tag for tag in wanted if tag in found.tags] or list(wanted[:1])
    names += [tag for tag in found.tags if tag is not None and tag not in names][: max(_TAGS_MAX - len(names), 0)]
    named = {tag: found.tags.get(tag, 1) for tag in names}
    others = {_NO_TAG: found.tags.get(None, 0), _OTHERS: sum(count for tag, count in found.tags.items() if tag and tag not in named)}
    return named | {name: count for name, count in others.items() if count}


def _table(shares: Mapping[str, int]) -> str:
    return f"{{ {', '.join(f'{_text(name)} = {count}' for name, count in shares.items())} }}"


def _text(value: str) -> str:
    """Return a text as a string of TOML: as in JSON, but DEL is escaped, which JSON leaves as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _number(value: float | None, otherwise: float) -> str:
    return _rounded(otherwise if value is None else value)


def _rounded(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    if value == 0:
        return "0.0"
    text = f"{float(f'{value:.3g}'):.12f}".rstrip("0")
    return f"{text}0" if text.endswith(".") else text
