"""The lists of the operator's commands: groups, topics, clients, pulls, moves of offsets, messages, dead letters, transactions,
delays, timers, POP, lag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote
from typing import Final

from pipeline.lag.lag_sql import IN_TROUBLE, WORST_FIRST
from pipeline.listings.listing import Kind, Listing, Shown, Totals, Verdict
from pipeline.settings.quantities import counted, duration_text, moment_text, size_text

_BODY: Final = "CASE WHEN sysFlag & 1 = 1 THEN try_validate_utf8(CAST(uncompress_body(body, sysFlag) AS STRING)) ELSE bodyText END"

# condition on pull_outcome for a refusal: an answer that is neither messages, nor nothing found, nor another offset
IS_REFUSED: Final = "code NOT IN (0, 19, 20, 21)"


def _age(millis: int | None) -> str:
    return "of unknown age" if millis is None else f"{duration_text(millis)} old"


def _past_the_end(queues: int) -> str | None:
    return f"{counted(queues, 'queue')} with an offset past the end {'counts' if queues == 1 else 'count'} as 0" if queues else None


def _deleted(messages: int) -> str | None:
    told = (
        f"{messages:,} of them {'is' if messages == 1 else 'are'} deleted already, and Waited leaves their queues out (pullsim retention)"
    )
    return told if messages else None


def _left(total: Totals) -> str | None:
    """Return a note if groups have no client any more, because no status shows that."""
    if not total["clientless"]:
        return None
    whose = "it" if total["groups"] == 1 else counted(total["clientless"], "group")
    return f"no client of {whose} was left at the end of the capture (pullsim clients)"


def _skipped(total: Totals) -> str | None:
    """Return a note on deleted messages that groups were sent past; no lag counts them, because they are before the groups' offsets."""
    if not total["skippers"]:
        return None
    who = "it was" if total["groups"] == 1 else "1 group was" if total["skippers"] == 1 else f"{total['skippers']:,} groups were"
    group = f" --group {quote(total['topSkipper'])}" if total["skippers"] == 1 else ""
    most = f", {total['topSkipper']} the most" if total["skippers"] > 1 else ""
    return f"{who} sent past {total['skipped']:,} deleted messages{most} (pullsim pulls{group} --outcome 21 tells when)"


def _waits(total: Totals) -> str:
    if total["unknown"] == total["groups"]:
        return "what waits is not known: no offset is stored"
    if not total["waiting"]:
        return "no message waits"
    return f"{counted(total['waiting'], 'message waits', 'messages wait')} in {counted(total['behind'], 'group')}"


def _of_groups(total: Totals) -> Verdict:
    return Verdict.of(
        counted(total["groups"], "group"),
        _waits(total),
        _deleted(total["deleted"]),
        _skipped(total),
        *(_progress_of_one if total["groups"] == 1 else _progress_of_all)(total),
        _left(total),
        f"the lag of {counted(total['unknown'], 'group')} is not known" if 0 < total["unknown"] < total["groups"] else None,
        f"the lag of {counted(total['unknownQueues'], 'more queue')} is in no sum: it is not known" if total["unknownQueues"] else None,
        _past_the_end(total["negative"]),
        f"{counted(total['dead'], 'dead letter')} (pullsim dlq)" if total["dead"] else None,
        "pullsim retention tells when the next message is lost" if total["waiting"] else None,
    )


# how bad a status is, as in WORST_FIRST -> what it means for a group
_PROGRESS: Final = {
    0: "its offset went back in a queue",
    1: "it stands still in a queue, and moves others",
    2: "it has stopped on a topic",
    3: "it is slow: it commits, and its lag does not become less",
}
# queue_status needs ten observations by default; in captured traffic they are five seconds apart
_MORE_SEEN: Final = "that takes 50 s of captured traffic of a group, or pullsim lag --record after each of ten imports"


def _progress_of_one(total: Totals) -> Iterator[str]:
    """Yield a note on whether the only group of a list has stopped or is slow, and the command that shows why."""
    why = f"pullsim groups --queues --group {quote(total['first'])} tells why"
    if total["worst"] in _PROGRESS:
        bad, judged = total["queuesInTrouble"], total["queuesJudged"]
        of_queues = f"; {bad:,} of {judged:,} queues stopped, stalled or went back" if 0 < bad < judged else ""
        yield f"{_PROGRESS[total['worst']]}{of_queues} ({why})"
    elif total["offsetless"]:
        yield "whether it has stopped or is slow is not known: the broker stores no offset of it, as of groups that broadcast"
    elif total["unjudged"]:
        yield f"whether it has stopped or is slow is not known: {_MORE_SEEN} ({why})"
    elif total["clientless"]:
        yield "it kept up, or its lag became less, until its last client left"
    else:
        yield "it has not stopped: it keeps up, or its lag becomes less"


def _progress_of_all(total: Totals) -> Iterator[str]:
    """Yield notes on how many groups stopped or are slow, and the command that shows why."""
    one = f" --group {quote(total['inTrouble'])}" if total["trouble"] == 1 else ""
    if total["trouble"]:
        bad, judged = total["queuesInTrouble"], total["queuesJudged"]
        in_queues = f", in {bad:,} of {judged:,} queues" if bad < judged else ""
        yield f"{total['trouble']:,} stopped, stalled or went back{in_queues} (pullsim groups --queues{one} tells why)"
    if total["slow"]:
        yield f"{total['slow']:,} slow: the lag does not become less"
    if total["unjudged"]:
        yield f"of {total['unjudged']:,} it is not known whether they stopped or are slow: {_MORE_SEEN}"


def _named(condition: str, name: str = "consumerGroup") -> str:
    """Return SQL for the number of different names in the rows that fulfil a condition: a name on several brokers counts once."""
    return f"count(DISTINCT CASE WHEN {condition} THEN {name} END)"


def _waiting(lag: str, retry_lag: str) -> str:
    """Return SQL for the messages that wait, with those that wait for a retry."""
    return f"coalesce(sum(coalesce({lag}, 0L) + coalesce({retry_lag}, 0L)), 0L)"


GROUP_LIST: Final = Listing(
    view="group_overview",
    sums=True,
    columns=(
        Shown("consumerGroup", "Group"),
        Shown("status", "Status"),
        Shown("lag", "Lag", Kind.COUNT),
        Shown("retryLag", "Retry lag", Kind.COUNT),
        Shown("dlqMessages", "Dead", Kind.COUNT),
        Shown("lagMillisMax", "Waited", Kind.DURATION),
        Shown("topics", "Topics", Kind.COUNT),
        Shown("clients", "Clients", Kind.COUNT),
        Shown("lastCommitMicros", "Last commit (UTC)", Kind.MICROS),
    ),
    order="lag DESC NULLS LAST, consumerGroup, brokerName",
    totals={
        "groups": "count(DISTINCT consumerGroup)",
        "behind": _named("lag > 0 OR retryLag > 0"),
        "waiting": _waiting("lag", "retryLag"),
        "deleted": "coalesce(sum(lagDeleted), 0L)",
        "clientless": _named("clients = 0"),
        "skipped": "coalesce(try_sum(offsetsSkipped), 0L)",
        "skippers": _named("offsetsSkipped > 0"),
        "topSkipper": "max_by(consumerGroup, CASE WHEN offsetsSkipped > 0 THEN offsetsSkipped END)",
        "negative": "coalesce(sum(queuesNegative), 0L)",
        "trouble": _named(IN_TROUBLE),
        "inTrouble": f"min(CASE WHEN {IN_TROUBLE} THEN consumerGroup END)",
        "slow": _named("status = 'WARN'"),
        "worst": f"min({WORST_FIRST})",
        "first": "min(consumerGroup)",
        "unjudged": _named("status = 'UNKNOWN'"),
        "unknown": _named("lag IS NULL"),
        "offsetless": _named("topics = 0"),
        "dead": "coalesce(sum(dlqMessages), 0L)",
        "unknownQueues": "coalesce(sum(CASE WHEN lag IS NOT NULL THEN queuesUnknown END), 0L)",
        "queuesInTrouble": f"coalesce(sum(CASE WHEN {IN_TROUBLE} THEN queuesInTrouble END), 0L)",
        "queuesJudged": f"coalesce(sum(CASE WHEN {IN_TROUBLE} THEN queuesJudged END), 0L)",
    },
    verdict=_of_groups,
)


def _of_queues(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("no stored offset matches; pullsim groups lists the groups")
    return Verdict.of(
        f"{counted(total['rows'], 'queue')} of {counted(total['groups'], 'group')}",
        f"{total['trouble']:,} stopped, stalled or went back" if total["trouble"] else None,
        f"the lag of {total['warned']:,} does not become less" if total["warned"] else None,
        f"{total['fine']:,} OK" if total["fine"] else None,
        f"{total['unjudged']:,} not known: {_MORE_SEEN}" if total["unjudged"] else None,
        "the lag is that of the last look at the queue; pullsim lag has the store's",
        "pullsim groups --help explains the rules",
    )


STATUS_LIST: Final = Listing(
    view="group_status",
    sums=True,
    columns=(
        Shown("consumerGroup", "Group"),
        Shown("topic", "Topic"),
        Shown("queueId", "QID", Kind.COUNT),
        Shown("status", "Status"),
        Shown("why", "Why", Kind.ID),
        Shown("lag", "Lag", Kind.COUNT),
        Shown("committedAt", "Seen committing (UTC)", Kind.MILLIS),
        Shown("seenIn", "Seen in"),
    ),
    order=f"{WORST_FIRST}, status = 'OK', lag DESC NULLS LAST, consumerGroup, topic, queueId, brokerName",
    totals={
        "groups": "count(DISTINCT consumerGroup)",
        "trouble": f"count_if({IN_TROUBLE})",
        "warned": "count_if(status = 'WARN')",
        "fine": "count_if(status = 'OK')",
        "unjudged": "count_if(status = 'UNKNOWN')",
    },
    verdict=_of_queues,
)


def _of_topics(total: Totals) -> Verdict:
    return Verdict.of(
        counted(total["topics"], "topic"),
        f"{counted(total['messages'], 'message')}, {size_text(total['bytes'])}",
        f"{total['unread']:,} with messages and no group" if total["unread"] else None,
        f"{total['empty']:,} without a message" if total["empty"] else None,
        _past_the_end(total["negative"]),
    )


TOPIC_LIST: Final = Listing(
    view="topic_overview",
    sums=True,
    columns=(
        Shown("topic", "Topic"),
        Shown("kind", "Kind"),
        Shown("queues", "Queues", Kind.COUNT),
        Shown("messages", "Messages", Kind.COUNT),
        Shown("bytes", "Size", Kind.SIZE),
        Shown("messagesPerSecond", "Rate", Kind.RATE),
        Shown("lastStoreTimestamp", "Last message (UTC)", Kind.MILLIS),
        Shown("consumerGroups", "Groups", Kind.COUNT),
        Shown("lag", "Lag", Kind.COUNT),
    ),
    order="bytes DESC NULLS LAST, topic, brokerName",
    totals={
        "messages": "coalesce(sum(messages), 0L)",
        "bytes": "coalesce(sum(bytes), 0L)",
        "topics": "count(DISTINCT topic)",
        "unread": _named("messages > 0 AND consumerGroups = 0", "topic"),
        "empty": _named("messages = 0", "topic"),
        "negative": "coalesce(sum(queuesNegative), 0L)",
    },
    verdict=_of_topics,
)


def _of_clients(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("no client is known: a store has none, captured traffic has them (pullsim capture)")
    return Verdict.of(
        f"{counted(total['clients'], 'client')} of {counted(total['groups'], 'group')} in the captured traffic",
        f"at its end {total['connected']:,} {'was' if total['connected'] == 1 else 'were'} connected",
        f"{total['gone']:,} had left" if total["gone"] else None,
        f"of {total['seen']:,} it is not known, for {'it' if total['seen'] == 1 else 'they'} pulled and sent no heartbeat"
        if total["seen"]
        else None,
    )


# a client of several groups or brokers counts once; without a heartbeat, only its address identifies it
_CLIENT: Final = "coalesce(clientId, address)"
_HAS_LEFT: Final = "coalesce(state IN ('UNREGISTERED', 'CLOSED'), false)"
# number of clients without a connection
_GONE: Final = f"count(DISTINCT {_CLIENT}) - {_named(f'NOT {_HAS_LEFT}', _CLIENT)}"
CLIENT_LIST: Final = Listing(
    view="client",
    columns=(
        Shown("consumerGroup", "Group"),
        Shown("clientId", "Client"),
        Shown("address", "Address"),
        Shown("state", "State"),
        Shown("topics", "Topics", Kind.COUNT),
        Shown("pulls", "Pulls", Kind.COUNT),
        Shown("lastMicros", "Last seen (UTC)", Kind.MICROS),
    ),
    order="consumerGroup, clientId NULLS LAST, connection, brokerName",
    totals={
        "clients": f"count(DISTINCT {_CLIENT})",
        "groups": "count(DISTINCT consumerGroup)",
        "connected": _named("state = 'CONNECTED'", _CLIENT),
        "seen": _named("state = 'SEEN'", _CLIENT),
        "gone": _GONE,
    },
    verdict=_of_clients,
)


def _waits_for(total: Totals) -> str:
    if not total["waiting"]:
        return "no message waits for them"
    waiting = counted(total["waiting"], "message waits", "messages wait")
    return f"{waiting} for {counted(total['behind'], 'client')} (--sort lag shows the most first)"


def _of_client_queues(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("no captured pull matches, or none was captured (pullsim capture reads traffic)")
    return Verdict.of(
        f"{counted(total['queues'], 'queue')} pulled by {counted(total['clients'], 'client')} of {counted(total['groups'], 'group')}",
        _waits_for(total),
        f"{total['gone']:,} of the clients had left when the capture ended" if total["gone"] else None,
        "of a queue and group, the first row is the client that has it, or had it last: Lag is what waits for it",
    )


CLIENT_QUEUE_LIST: Final = Listing(
    view="client_queue",
    columns=(
        Shown("topic", "Topic"),
        Shown("queueId", "QID", Kind.COUNT),
        Shown("consumerGroup", "Group"),
        Shown("client", "Client"),
        Shown("state", "State"),
        Shown("pulls", "Pulls", Kind.COUNT),
        Shown("lastMicros", "Last pull (UTC)", Kind.MICROS),
        Shown("lag", "Lag", Kind.COUNT),
        Shown("lagMillis", "Waited", Kind.DURATION),
    ),
    order=f"topic, consumerGroup, queueId, {_HAS_LEFT}, clientId IS NULL, lastMicros DESC, connection, brokerName",
    totals={
        "queues": "count(DISTINCT struct(brokerName, topic, queueId))",
        "clients": f"count(DISTINCT {_CLIENT})",
        "groups": "count(DISTINCT consumerGroup)",
        "waiting": "coalesce(sum(CASE WHEN lag > 0 THEN lag END), 0L)",
        "behind": _named("lag > 0", _CLIENT),
        "gone": _GONE,
    },
    verdict=_of_client_queues,
    more={"client": _CLIENT},
)


def _of_pulls(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("no captured pull matches, or none was captured (pullsim capture reads traffic)")
    return Verdict.of(
        f"{counted(total['rows'], 'pull')} of {counted(total['groups'], 'group')}",
        f"{total['found']:,} found messages" if total["found"] else None,
        f"{total['nothing']:,} found none" if total["nothing"] else None,
        _moved(total),
        f"{total['refused']:,} refused" if total["refused"] else None,
        f"{total['unanswered']:,} without a captured answer" if total["unanswered"] else None,
        _held(total),
        "pullsim explain --request REQUEST explains one",
    )


def _moved(total: Totals) -> str | None:
    """Return how many pulls were sent to another offset, and how many of them asked for offset 0 or less; None if there were none."""
    if not total["moved"]:
        return None
    first = f", {total['movedFirst']:,} of them from offset 0 or less" if total["movedFirst"] else ""
    return f"{total['moved']:,} sent to another offset (PULL_OFFSET_MOVED){first}"


def _held(total: Totals) -> str | None:
    """Return how many pulls the broker held, and how their holds ended; None if there were none."""
    if not total["held"]:
        return None
    ends = {
        "ended by a message": total["woken"],
        "by its time": total["waited"],
        "without a captured answer": total["open"],
        "otherwise (NOT_FOR_IT or REFUSED)": total["held"] - total["woken"] - total["waited"] - total["open"],
    }
    return f"the broker held {total['held']:,} (long polling): " + ", ".join(f"{count:,} {how}" for how, count in ends.items() if count)


PULL_LIST: Final = Listing(
    view="pull_outcome",
    columns=(
        Shown("arrivalMicros", "Time (UTC)", Kind.MICROS),
        Shown("consumerGroup", "Group"),
        Shown("topic", "Topic"),
        Shown("queueId", "QID", Kind.COUNT),
        Shown("queueOffset", "Offset", Kind.COUNT),
        Shown("outcome", "Outcome"),
        Shown("nextBeginOffset", "Next", Kind.COUNT),
        Shown("holdEnding", "Held"),
        Shown("request", "Request", Kind.ID),
    ),
    details=(
        Shown("arrivalMicros", "Time (UTC)", Kind.MICROS),
        Shown("brokerName", "Broker"),
        Shown("client", "Client"),
        Shown("consumerGroup", "Group"),
        Shown("topic", "Topic"),
        Shown("queueId", "QID", Kind.COUNT),
        Shown("queueOffset", "Offset", Kind.COUNT),
        Shown("maxMsgNums", "Messages asked for", Kind.COUNT),
        Shown("outcome", "Outcome"),
        Shown("code", "Code", Kind.COUNT),
        Shown("remark", "Remark", Kind.PROSE),
        Shown("nextBeginOffset", "Next offset", Kind.COUNT),
        Shown("minOffset", "Min offset", Kind.COUNT),
        Shown("maxOffset", "Max offset", Kind.COUNT),
        Shown("bodyBytes", "Bytes given", Kind.SIZE),
        Shown("heldMillis", "Held for", Kind.DURATION),
        Shown("holdEnding", "Hold ended by"),
        Shown("request", "Request", Kind.ID),
        Shown("requestId", "Request in full", Kind.ID),
    ),
    about="pullsim explain --request {request} explains it",
    order="arrivalMicros DESC NULLS LAST, requestId, brokerName",
    totals={
        "groups": "count(DISTINCT consumerGroup)",
        "found": "count_if(code = 0)",
        "nothing": "count_if(code IN (19, 20))",
        "moved": "count_if(code = 21)",
        "movedFirst": "count_if(code = 21 AND queueOffset <= 0)",
        "refused": f"count_if({IS_REFUSED})",
        "unanswered": "count_if(code IS NULL)",
        "held": "count(holdEnding)",
        "woken": "count_if(holdEnding = 'MESSAGE')",
        "waited": "count_if(holdEnding = 'TIMEOUT')",
        "open": "count_if(holdEnding = 'NO_ANSWER')",
    },
    verdict=_of_pulls,
    more={"request": "regexp_extract(requestId, '[^:]*$', 0)"},
)


# if an administrator also reset the offset, the reset is the cause
_IS_CORRECTION: Final = "correctionMicros IS NOT NULL AND resetMicros IS NULL"


def _resets(total: Totals) -> str | None:
    if not total["resets"]:
        return None
    when = f"the broker told the clients, last at {moment_text(total['lastReset'] // 1000)} UTC, who only carried it out"
    return f"{total['resets']:,} by an administrator, such as with mqadmin resetOffsetByTime: {when}"


def _corrections(total: Totals) -> str | None:
    if not total["corrections"]:
        return None
    return f"{total['corrections']:,} by the broker, which had answered PULL_OFFSET_MOVED (pullsim pulls --outcome 21 tells when)"


def _again(total: Totals) -> str | None:
    if total["again"]:
        return f"{counted(total['again'], 'message')} to consume again, with those that filters drop"
    return "these moves bring no message again" if total["back"] else None


def _of_moves(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("no move of an offset was captured; pullsim lag shows the stored offsets")
    return Verdict.of(
        f"{counted(total['rows'], 'move')} in {counted(total['queues'], 'queue')} by {counted(total['clients'], 'client')}"
        f"{'' if total['groups'] == 1 else ' of ' + counted(total['groups'], 'group')}",
        f"{total['back']:,} went back" if total["back"] else "none went back",
        _resets(total),
        _corrections(total),
        f"{counted(total['unseen'], 'move')} that the capture does not have, such as a reset by mqadmin" if total["unseen"] else None,
        _again(total),
    )


def _of_moves_back(total: Totals) -> Verdict:
    return _of_moves(total) if total["rows"] else Verdict("no move back was captured; without --back all moves are shown")


OFFSET_LIST: Final = Listing(
    view="offset_move",
    columns=(
        Shown("micros", "Time (UTC)", Kind.MICROS),
        Shown("consumerGroup", "Group"),
        Shown("topic", "Topic"),
        Shown("queueId", "QID", Kind.COUNT),
        Shown("fromOffset", "From", Kind.COUNT),
        Shown("toOffset", "To", Kind.COUNT),
        Shown("how", "How"),
        Shown("asked", "Cause"),
        Shown("client", "Client"),
    ),
    order="micros DESC, consumerGroup, topic, queueId, brokerName",
    totals={
        "groups": "count(DISTINCT consumerGroup)",
        "queues": "count(DISTINCT brokerName, topic, queueId)",
        "clients": f"count(DISTINCT {_CLIENT})",
        "back": "count_if(how = 'BACK')",
        "again": "coalesce(sum(readAgain), 0L)",
        "unseen": "count_if(how = 'SEEN')",
        "resets": "count(resetMicros)",
        "lastReset": "max(resetMicros)",
        "corrections": f"count_if({_IS_CORRECTION})",
    },
    verdict=_of_moves,
    more={
        "client": _CLIENT,
        "asked": "CASE WHEN resetMicros IS NOT NULL THEN 'RESET_CONSUMER_CLIENT_OFFSET' "
        f"WHEN {_IS_CORRECTION} THEN 'PULL_OFFSET_MOVED' ELSE origin END",
    },
)
BACK_LIST: Final = replace(OFFSET_LIST, verdict=_of_moves_back)


def _of_messages(total: Totals) -> Verdict:
    return Verdict(counted(total["rows"], "message") if total["rows"] else "no message of the store matches")


MESSAGE_LIST: Final = Listing(
    view="message",
    columns=(
        Shown("storeTimestamp", "Stored (UTC)", Kind.MILLIS),
        Shown("topic", "Topic"),
        Shown("queueId", "QID", Kind.COUNT),
        Shown("queueOffset", "Offset", Kind.COUNT),
        Shown("tags", "Tags"),
        Shown("keys", "Keys"),
        Shown("bodyText", "Body", Kind.PROSE),
    ),
    details=(
        Shown("brokerName", "Broker"),
        Shown("topic", "Topic"),
        Shown("queueId", "QID", Kind.COUNT),
        Shown("queueOffset", "Offset", Kind.COUNT),
        Shown("msgId", "Offset message id"),
        Shown("uniqKey", "Unique key"),
        Shown("tags", "Tags"),
        Shown("keys", "Keys"),
        Shown("storeTimestamp", "Stored (UTC)", Kind.MILLIS),
        Shown("bornTimestamp", "Born (UTC)", Kind.MILLIS),
        Shown("bornHost", "Born host"),
        Shown("storeHost", "Store host"),
        Shown("reconsumeTimes", "Sent back", Kind.COUNT),
        Shown("transaction", "Transaction"),
        Shown("originTopic", "Origin topic"),
        Shown("originMsgId", "Origin id"),
        Shown("properties", "Properties"),
        Shown("bodySize", "Body size", Kind.SIZE),
        Shown("bodyReason", "Body is"),
        Shown("bodyText", "Body", Kind.PROSE),
    ),
    about="pullsim lag --topic {topic} --queue {queueId} shows which groups are past offset {queueOffset}: they consumed it, unless "
    "their filter dropped it or they began after it; groups that broadcast store no offset",
    order="storeTimestamp DESC, physicOffset DESC, brokerName",
    totals={},
    verdict=_of_messages,
    left_out=("body", "keyList", "storeTime"),
    more={"bodyText": _BODY},
)


def _of_dead_letters(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("no dead letter lies in the store")
    return Verdict.of(
        f"{counted(total['messages'], 'dead letter')} of {counted(total['groups'], 'group')}, the oldest {_age(total['oldest'])}",
        f"nobody consumes those of {counted(total['unread'], 'group')}" if total["unread"] else None,
        "pullsim message --topic %DLQ%GROUP lists them",
    )


DLQ_LIST: Final = Listing(
    view="dead_letters",
    columns=(
        Shown("consumerGroup", "Group"),
        Shown("originTopic", "From topic"),
        Shown("messages", "Messages", Kind.COUNT),
        Shown("bytes", "Size", Kind.SIZE),
        Shown("oldestStoreTimestamp", "Oldest (UTC)", Kind.MILLIS),
        Shown("oldestMillis", "Age", Kind.DURATION),
        Shown("newestStoreTimestamp", "Newest (UTC)", Kind.MILLIS),
    ),
    order="messages DESC, consumerGroup, originTopic NULLS LAST, brokerName",
    totals={
        "messages": "coalesce(sum(messages), 0L)",
        "groups": "count(DISTINCT consumerGroup)",
        "oldest": "max(oldestMillis)",
        "unread": "count(DISTINCT CASE WHEN readers = 0 THEN consumerGroup END)",
    },
    verdict=_of_dead_letters,
)


def _of_transactions(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("no transaction is open")
    return Verdict.of(
        counted(total["rows"], "open transaction"),
        f"{total['pending']:,} pending, the oldest {_age(total['oldest'])}" if total["pending"] else None,
        f"the broker gave up {total['discarded']:,}: its producers never answered" if total["discarded"] else None,
    )


TRANSACTION_LIST: Final = Listing(
    view="open_transaction",
    columns=(
        Shown("state", "State"),
        Shown("topic", "Topic"),
        Shown("producerGroup", "Producers"),
        Shown("bornTimestamp", "Born (UTC)", Kind.MILLIS),
        Shown("ageMillis", "Age", Kind.DURATION),
        Shown("checks", "Checks", Kind.COUNT),
        Shown("checksMax", "of", Kind.COUNT),
        Shown("uniqKey", "Unique key"),
    ),
    order="ageMillis DESC NULLS LAST, queueOffset, brokerName",
    totals={
        "pending": "count_if(state = 'PENDING')",
        "discarded": "count_if(state = 'DISCARDED')",
        "oldest": "max(CASE WHEN state = 'PENDING' THEN ageMillis END)",
    },
    verdict=_of_transactions,
)


def _of_delay_levels(total: Totals) -> Verdict:
    delivered = _delivered(total["delivered"])
    if not total["waiting"] and not total["unknown"]:
        return Verdict.of("no delayed message waits", delivered)
    return Verdict.of(
        f"{counted(total['waiting'], 'delayed message waits', 'delayed messages wait')} in {counted(total['levels'], 'level')}",
        f"{total['overdue']:,} overdue: the level is stuck, or delayOffset.json is old" if total["overdue"] else None,
        f"{total['due']:,} due" if total["due"] else None,
        _retries(total["retries"]),
        delivered,
        _no_level(total["lacking"]),
        _unstored(total["unknown"], "more "),
    )


def _retries(messages: int) -> str | None:
    if not messages:
        return None
    return f"{messages:,} sent back by groups: no retry lag counts them yet (pullsim delays --messages tells their retry topics)"


def _delivered(messages: int) -> str | None:
    return f"{messages:,} delivered since delayOffset.json was written: a start from this store delivers them again" if messages else None


def _unstored(messages: int, more: str = "") -> str | None:
    return f"{messages:,} {more}without a stored offset may have been delivered: a start delivers them again" if messages else None


def _no_level(messages: int) -> str | None:
    return f"{messages:,} of levels that messageDelayLevel lacks are never delivered" if messages else None


DELAY_LIST: Final = Listing(
    view="delay_level",
    columns=(
        Shown("delayLevel", "Level", Kind.COUNT),
        Shown("delay", "Delay"),
        Shown("waiting", "Waiting", Kind.COUNT),
        Shown("overdue", "Overdue", Kind.COUNT),
        Shown("unknown", "Unknown", Kind.COUNT),
        Shown("delivered", "Delivered", Kind.COUNT),
        Shown("nextDueMs", "Next (UTC)", Kind.MILLIS),
        Shown("lastDueMs", "Last (UTC)", Kind.MILLIS),
    ),
    order="overdue = 0, nextDueMs NULLS LAST, unknown DESC, delayLevel, brokerName",
    totals={
        "waiting": "coalesce(sum(waiting), 0L)",
        "levels": "count(DISTINCT CASE WHEN waiting > 0 THEN delayLevel END)",
        "overdue": "coalesce(sum(overdue), 0L)",
        "due": "coalesce(sum(due), 0L)",
        "lacking": "coalesce(sum(CASE WHEN delay IS NULL THEN waiting END), 0L)",
        "unknown": "coalesce(sum(unknown), 0L)",
        "delivered": "coalesce(sum(delivered), 0L)",
        "retries": "coalesce(sum(retries), 0L)",
    },
    verdict=_of_delay_levels,
)


def _of_delayed_messages(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("no delayed message of this kind waits")
    return Verdict.of(
        counted(total["rows"], "delayed message"),
        f"{total['overdue']:,} overdue, the oldest for {duration_text(total['oldest'])}" if total["overdue"] else None,
        _delivered(total["delivered"]),
        _no_level(total["lacking"]),
        _unstored(total["unknown"]),
        f"{total['without']:,} not in the commit log: the broker passes over them" if total["without"] else None,
    )


# order: what is due next, what is never delivered, what may have been delivered, what was delivered
_SOONEST_FIRST: Final = (
    "CASE state WHEN 'UNKNOWN' THEN 2 WHEN 'DELIVERED' THEN 3 WHEN 'NO_LEVEL' THEN 1 WHEN 'NO_MESSAGE' THEN 1 ELSE 0 END"
)
DELAYED_MESSAGE_LIST: Final = Listing(
    view="delayed_message",
    columns=(
        Shown("state", "State"),
        Shown("topic", "Topic"),
        Shown("delayLevel", "Level", Kind.COUNT),
        Shown("dueMs", "Due (UTC)", Kind.MILLIS),
        Shown("reconsumeTimes", "Retries", Kind.COUNT),
        Shown("queueOffset", "Offset", Kind.COUNT),
        Shown("uniqKey", "Unique key"),
    ),
    order=f"{_SOONEST_FIRST}, dueMs NULLS LAST, delayLevel, queueOffset, brokerName",
    totals={
        "overdue": "count_if(state = 'OVERDUE')",
        "oldest": "max(overdueMillis)",
        "lacking": "count_if(state = 'NO_LEVEL')",
        "unknown": "count_if(state = 'UNKNOWN')",
        "delivered": "count_if(state = 'DELIVERED')",
        "without": "count_if(state = 'NO_MESSAGE')",
    },
    verdict=_of_delayed_messages,
)


def _without_unit(messages: int) -> str | None:
    return f"{counted(messages, 'message')} not due yet without a unit in timerlog: was it imported?" if messages else None


def _of_timers(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("no timer message waits; brokers before 5.0 have none")
    if total["unread"] == total["rows"]:
        return Verdict("what waits is not known: config/timercheck was not imported")
    return Verdict.of(
        f"{counted(total['pending'], 'timer message waits', 'timer messages wait')} for {counted(total['rows'], 'topic')}",
        f"{total['overdue']:,} overdue: the timer is stuck" if total["overdue"] else None,
        f"the timer has not come to {total['queued']:,} more" if total["queued"] else None,
        f"{total['cancelled']:,} will be dropped" if total["cancelled"] else None,
        _without_unit(total["without"]),
        f"the broker counts otherwise in {counted(total['miscounted'], 'topic')}" if total["miscounted"] else None,
    )


TIMER_LIST: Final = Listing(
    view="timer_topic",
    columns=(
        Shown("topic", "Topic"),
        Shown("pending", "Waiting", Kind.COUNT),
        Shown("counted", "Counted", Kind.COUNT),
        Shown("overdue", "Overdue", Kind.COUNT),
        Shown("queued", "Queued", Kind.COUNT),
        Shown("nextOutMs", "Next (UTC)", Kind.MILLIS),
        Shown("lastOutMs", "Last (UTC)", Kind.MILLIS),
    ),
    order="pending DESC NULLS LAST, topic, brokerName",
    totals={
        "pending": "coalesce(sum(pending), 0L)",
        "overdue": "coalesce(sum(overdue), 0L)",
        "queued": "coalesce(sum(queued), 0L)",
        "cancelled": "coalesce(sum(cancelled), 0L)",
        "without": "coalesce(sum(withoutUnit), 0L)",
        "miscounted": "count_if(pending <> counted)",
        "unread": "count_if(readTimeMs IS NULL)",
    },
    verdict=_of_timers,
)


def _of_timer_messages(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("no timer message of this kind; pullsim timers lists topics")
    return Verdict.of(
        counted(total["rows"], "timer message"),
        f"{total['overdue']:,} overdue, the oldest for {duration_text(total['oldest'])}" if total["overdue"] else None,
        f"{total['cancelled']:,} will be dropped" if total["cancelled"] else None,
        _without_unit(total["without"]),
    )


TIMER_MESSAGE_LIST: Final = Listing(
    view="timer_message",
    columns=(
        Shown("state", "State"),
        Shown("topic", "Topic"),
        Shown("outMs", "Due (UTC)", Kind.MILLIS),
        Shown("slotTimeMs", "Slot (UTC)", Kind.MILLIS),
        Shown("rollTimes", "Rolled", Kind.COUNT),
        Shown("queueOffset", "Offset", Kind.COUNT),
        Shown("uniqKey", "Unique key"),
    ),
    order="outMs NULLS LAST, queueOffset, brokerName",
    totals={
        "overdue": "count_if(state = 'OVERDUE')",
        "oldest": "max(overdueMillis)",
        "cancelled": "count_if(state = 'CANCELLED')",
        "without": "count_if(state = 'NO_UNIT')",
    },
    verdict=_of_timer_messages,
)


def _of_pops(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("no message is held by POP")
    return Verdict.of(
        f"{counted(total['rows'], 'message')} of {counted(total['groups'], 'group')}",
        f"{total['held']:,} held",
        f"the time of {total['expired']:,} is over: they come again" if total["expired"] else None,
        f"{total['again']:,} came back before" if total["again"] else None,
    )


POP_LIST: Final = Listing(
    view="pop_message",
    columns=(
        Shown("state", "State"),
        Shown("consumerGroup", "Group"),
        Shown("topic", "Topic"),
        Shown("queueId", "QID", Kind.COUNT),
        Shown("queueOffset", "Offset", Kind.COUNT),
        Shown("popTime", "Given (UTC)", Kind.MILLIS),
        Shown("heldUntil", "Until (UTC)", Kind.MILLIS),
        Shown("reconsumeTimes", "Retries", Kind.COUNT),
    ),
    order="heldUntil NULLS LAST, consumerGroup, topic, queueId, queueOffset, popTime, brokerName",
    totals={
        "groups": "count(DISTINCT consumerGroup)",
        "held": "count_if(state = 'HELD')",
        "expired": "count_if(state = 'EXPIRED')",
        "again": "count_if(reconsumeTimes > 0)",
    },
    verdict=_of_pops,
)


def _of_lag(total: Totals) -> Verdict:
    if not total["rows"]:
        return Verdict("nothing has this lag; queues without a stored offset are not counted (pullsim lag)")
    return Verdict.of(
        f"{counted(total['waiting'], 'message waits', 'messages wait')} in {counted(total['behind'], 'group')}",
        _deleted(total["deleted"]),
        _past_the_end(total["negative"]),
        f"the lag of {counted(total['unknown'], 'queue')} is not known" if total["unknown"] else None,
        "pullsim groups tells which groups have stopped",
    )


def _lag_list(view: str, retry_lag: str, key: str, *columns: Shown) -> Listing:
    """Return the list of a view of lag; `retry_lag` is SQL for the lag on a retry topic, `key` has the columns that name a row."""
    return Listing(
        view=view,
        sums=True,
        columns=(
            Shown("consumerGroup", "Group"),
            *columns,
            Shown("queues", "Queues", Kind.COUNT),
            Shown("queuesUnknown", "Unknown", Kind.COUNT),
            Shown("lagBytes", "Bytes", Kind.SIZE),
            Shown("lagMillisMax", "Waited", Kind.DURATION),
        ),
        order=f"waiting DESC NULLS LAST, {key}, brokerName",
        totals={
            "waiting": _waiting("waiting", retry_lag),
            "deleted": "coalesce(sum(waitingDeleted), 0L)",
            "behind": _named(f"waiting > 0 OR {retry_lag} > 0"),
            "negative": "coalesce(sum(queuesNegative), 0L)",
            "unknown": "coalesce(sum(queuesUnknown), 0L)",
        },
        verdict=_of_lag,
    )


LAG_BY_GROUP: Final = _lag_list(
    "group_lag",
    "retryWaiting",
    "consumerGroup",
    Shown("waiting", "Lag", Kind.COUNT),
    Shown("retryWaiting", "Retry lag", Kind.COUNT),
    Shown("dlqMessages", "Dead", Kind.COUNT),
    Shown("topics", "Topics", Kind.COUNT),
)
LAG_BY_TOPIC: Final = _lag_list(
    "consume_lag_by_group",
    "0L",
    "consumerGroup, topic",
    Shown("topic", "Topic"),
    Shown("waiting", "Lag", Kind.COUNT),
)
# pullsim lag shows queues in the form of mqadmin consumerProgress; this list only has the columns that --sort takes
LAG_BY_QUEUE: Final = Listing(
    view="consume_lag",
    columns=(
        Shown("consumerGroup", "Group"),
        Shown("topic", "Topic"),
        Shown("brokerName", "Broker Name"),
        Shown("queueId", "QID", Kind.COUNT),
        Shown("brokerOffset", "Broker Offset", Kind.COUNT),
        Shown("consumerOffset", "Consumer Offset", Kind.COUNT),
        Shown("lag", "Diff", Kind.COUNT),
        Shown("lastConsumedTimestamp", "LastTime", Kind.MILLIS),
        Shown("lagMillis", "Lag Seconds", Kind.DURATION),
        Shown("lagBytes", "Lag Bytes", Kind.SIZE),
        Shown("reason", "Reason"),
    ),
    order="brokerName, consumerGroup, topic, queueId",
    totals={},
    verdict=_of_lag,
)
