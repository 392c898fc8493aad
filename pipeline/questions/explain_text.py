"""The explanation of a pull as text, and as JSON.

Broker source (4.9.3): the order of the checks is that of DefaultMessageStore.getMessage.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

from pipeline.questions.broker_checks import ExplainedPull
from pipeline.questions.explain import Explanation, ScannedEntry, entries_of, wanted_tags
from pipeline.replay.answer_lines import ANSWER_FIELDS
from pipeline.settings.quantities import counted, duration_text
from pipeline.settings.settings import PullSettings, camel_case
from pipeline.terminal import say, show_table
from store_format.broker_version import DEFAULT_VERSION
from udfs.filters.tags import tags_code
from udfs.pull import get_message as gm
from udfs.pull.batch_caps import scan_window_entries
from udfs.pull.codes import BrokerRole, GetMessageStatus, ResponseCode
from udfs.pull.offset_correction import OFFSET_CHECKS, slave_keeps_offset
from udfs.pull.pull_trace import End, Fate

_ERRORS: Final = {
    "SUBSCRIPTION_PARSE_FAILED": "the filter's expression does not parse; the store is not asked",
    "FILTER_DATA_NOT_EXIST": "the group has registered no filter for the topic; the store is not asked",
}
# code of the answer to a pull that was held -> what ended the hold
_HOLD_ENDED: Final[dict[int, str]] = {
    ResponseCode.SUCCESS: "a message came",
    ResponseCode.PULL_NOT_FOUND: "none came in that time",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "it was woken, and its filter let nothing pass",
    ResponseCode.PULL_OFFSET_MOVED: "it was woken, and its offset was corrected",
}
# more consecutive entries with the same outcome are folded into one row
_SHOWN_RUN: Final = 3
_COLUMNS: Final = ("queueOffset", "physicOffset", "size", "tagsCode", "tags", "where", "what")


def as_json(explanation: Explanation) -> dict[str, Any]:
    """The explanation as a JSON object, with every entry, under the broker's names."""
    pull, traced = explanation.pull, explanation.traced
    entries, tags = entries_of(explanation), wanted_tags(pull)
    scan = None
    if traced.trace is not None:
        scan = {
            "end": traced.trace.end.name,
            "reason": traced.trace.end.value,
            "fromOffset": pull.offset,
            "windowEnd": traced.trace.window_end,
            "logEnd": int(traced.request[gm.LOG_END]),
            "memory": int(explanation.caps[gm.MEMORY]),
        }
    return {
        "broker": explanation.broker,
        "request": _request(pull),
        "settings": {camel_case(name): value for name, value in asdict(explanation.settings).items()},
        "held": pull.header is not None and bool(pull.header["held"]),
        "notes": list(explanation.notes),
        "minOffset": int(traced.request[gm.MIN_OFFSET]),
        "maxOffset": int(traced.request[gm.MAX_OFFSET]),
        "wantedTags": None if tags is None else {tag: tags_code(tag) for tag in sorted(tags)},
        "scan": scan,
        "entries": [_entry(entry) for entry in entries],
        "outcomes": {fate.name: count for fate, count in Counter(entry.fate for entry in entries).items()},
        "droppedByClient": [entry.queue_offset for entry in entries if entry.client_drops],
        "answer": _answer(explanation),
        "brokerAnswer": {"code": int(explanation.code), "name": explanation.code.name, "asksStore": explanation.refused is None}
        | ({} if explanation.remark is None else {"remark": explanation.remark}),
        "recordedAnswer": _recorded(pull),
    }


def _request(pull: ExplainedPull) -> dict[str, Any]:
    pull_filter = None
    if pull.filter_type is not None:
        pull_filter = {"type": pull.filter_type, "expression": pull.expression} | ({"registered": True} if pull.registered else {})
    fields = {"group": pull.group, "topic": pull.topic, "queueId": pull.queue_id, "offset": pull.offset, "maxMsgNums": pull.max_msg_nums}
    return fields | {"filter": pull_filter} | ({} if pull.at is None else {"timestamp": pull.at})


def _entry(entry: ScannedEntry) -> dict[str, Any]:
    message: dict[str, Any] | None = None
    if entry.message is not None:
        message = {"tags": entry.message.tags, "keys": entry.message.keys, "msgId": entry.message.msg_id}
        message |= {"properties": dict(entry.message.properties)} if entry.message.properties else {}
    return {
        "queueOffset": entry.queue_offset,
        "physicOffset": entry.physic_offset,
        "size": entry.size,
        "tagsCode": entry.tags_code,
        "inDisk": entry.in_disk,
        "outcome": entry.fate.name,
        "message": message,
        "clientDrops": entry.client_drops or None,
    }


def _answer(explanation: Explanation) -> dict[str, Any] | None:
    answer = explanation.traced.answer
    for name in ("error", "exception"):
        if answer[name] is not None:
            return {name: answer[name]}
    return None if answer["status"] is None else {name: answer[name] for name in ANSWER_FIELDS}


def deleted_since(recorded: Mapping[str, Any], code: int, answer: Mapping[str, Any], offset: int) -> str | None:
    """Return a line if a captured pull of `offset` had another answer than today's because files were deleted later; else None."""
    least, now = recorded["minOffset"], answer["minOffset"]
    if None in {least, now} or least >= now or (recorded["code"], recorded["nextBeginOffset"]) == (code, answer["nextBeginOffset"]):
        return None
    gone = f"the file of offset {offset} was" if least <= offset < now else "files were"
    return f"they differ: minOffset was {least} then, and {gone} deleted later; the answer is today's"


def _recorded(pull: ExplainedPull) -> dict[str, Any] | None:
    """The broker's answer to a captured pull; None for other pulls, and if the capture has no answer."""
    if pull.header is None or pull.header["recordedCode"] is None:
        return None
    return {
        "code": pull.header["recordedCode"],
        "nextBeginOffset": pull.header["recordedNextBeginOffset"],
        "minOffset": pull.header["recordedMinOffset"],
        "maxOffset": pull.header["recordedMaxOffset"],
    }


# text ---------------------------------------------------------------------------------------------------------------------------------


def show(explanation: Explanation, *, every_entry: bool) -> None:
    """Print the explanation; consecutive entries with the same outcome are folded, unless `every_entry`."""
    entries = entries_of(explanation)
    for line in _head(explanation):
        say(line)
    if _needs_no_store(explanation) and not every_entry:
        answer = _answer(explanation)
        say("" if answer is None or "status" not in answer else f"\nthe store, which is not asked, would answer {_answer_text(answer)}")
        for line in _broker_answer(explanation):
            say(line)
        return
    trace = explanation.traced.trace
    runs = [[entry] for entry in entries] if every_entry else list(_runs(entries))
    if trace is not None:
        for line in _checks(explanation):
            say(line)
        if entries:
            say("")
            show_table(_COLUMNS, [_row(run) for run in runs])
        if trace.end is not End.NO_SCAN:
            say(f"\nended: {_end(explanation, entries)}")
    for line in _tail(explanation, entries, is_folded=len(runs) < len(entries)):
        say(line)


def _needs_no_store(explanation: Explanation) -> bool:
    """Whether the store's answer does not matter, because the broker refuses the pull.

    It matters if topics.json lacks the topic, but the queue has messages: the file may be missing from the store.
    """
    has_queue = explanation.traced.answer["status"] != GetMessageStatus.NO_MESSAGE_IN_QUEUE.name
    return explanation.refused is not None and not (explanation.refused is ResponseCode.TOPIC_NOT_EXIST and has_queue)


def _head(explanation: Explanation) -> Iterator[str]:
    pull = explanation.pull
    filter_text = "no filter"
    if pull.filter_type is not None:
        filter_text = f"filter {pull.filter_type} {pull.expression!r}" + (", the one that the group registered" if pull.registered else "")
    yield f"pull of group {pull.group!r}: topic {pull.topic!r}, queue {pull.queue_id}, offset {pull.offset}, {filter_text}"
    seen = "all of the store" if pull.at is None else f"the store as of {_time(pull.at)} ({pull.at})"
    yield f"broker {explanation.broker!r}, which sees {seen}"
    if explanation.settings.rules_version != DEFAULT_VERSION.value:
        yield f"rules of broker {explanation.settings.rules_version}"
    if (held := _held(pull)) is not None:
        yield held
    for note in explanation.notes:
        yield f"note: {note}"


def _held(pull: ExplainedPull) -> str | None:
    """Return what the capture says of the hold of a captured pull; None if the broker did not hold it."""
    if pull.header is None or not pull.header["held"]:
        return None
    answered, code = pull.header["answerMicros"], pull.header["recordedCode"]
    if code is None or answered is None:
        return "the broker held it (long polling), and the capture has no answer: the client left, or the capture ended"
    ended = _HOLD_ENDED.get(code, "it was refused when it was woken")
    return f"the broker held it (long polling) for {duration_text((answered - pull.header['arrivalMicros']) // 1000)}: {ended}"


def _time(stamp: int) -> str:
    try:
        return (dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=stamp)).isoformat(" ", "milliseconds") + " UTC"  # noqa: DTZ001
    except OverflowError:
        return "a time beyond the year 9999"


def _checks(explanation: Explanation) -> Iterator[str]:
    traced, pull = explanation.traced, explanation.pull
    assert traced.trace is not None
    yield f"\nchecks: minOffset {int(traced.request[gm.MIN_OFFSET])}, maxOffset {int(traced.request[gm.MAX_OFFSET])}"
    status = traced.answer["status"] if traced.trace.end is End.NO_SCAN else None
    for check in OFFSET_CHECKS:
        holds = check.status.name == status
        yield f"  {check.condition:<22} {'yes' if holds else 'no'}"
        if holds:
            to_max = explanation.settings.rules.overflow_badly_goes_to_max and check.status is GetMessageStatus.OFFSET_OVERFLOW_BADLY
            sent_to = "maxOffset" if to_max else check.corrected
            below = check.status is GetMessageStatus.OFFSET_TOO_SMALL and pull.offset < 0
            meaning = "no message ever had an offset below 0" if below else check.meaning
            yield f"  {status}: {meaning}; next offset: {_corrected(explanation.settings, sent_to)}"
            return
    if traced.trace.end is End.NOT_STARTED:
        yield f"  maxMsgNums {pull.max_msg_nums}: the list of messages cannot be made"
    elif traced.trace.end is End.NO_FILE:
        yield f"  OFFSET_FOUND_NULL: no file of the queue has the offset; next offset: {_corrected(explanation.settings, 'the next file')}"
    elif traced.trace.end is End.NO_FILES:
        yield f"  {End.NO_FILES.value}"
    else:
        yield from _window(explanation)


def _corrected(settings: PullSettings, sent_to: str) -> str:
    if slave_keeps_offset(BrokerRole[settings.broker_role], settings.offset_check_in_slave):
        return "as asked for (a slave with offsetCheckInSlave=false corrects none)"
    return sent_to


def _window(explanation: Explanation) -> Iterator[str]:
    traced, pull, caps = explanation.traced, explanation.pull, explanation.caps
    assert traced.trace is not None
    log_end, memory, entries = int(traced.request[gm.LOG_END]), int(caps[gm.MEMORY]), int(caps[gm.ENTRIES_A_FILE])
    end, window = traced.trace.window_end, int(scan_window_entries(pull.max_msg_nums, int(caps[gm.WINDOW_BYTES])))
    file_end = pull.offset - pull.offset % entries + entries
    yield f"\nwindow: entries {pull.offset} to {end - 1}, {end - pull.offset:,} of them at most"
    yield f"  the queue ends at      {int(traced.request[gm.MAX_OFFSET])}, its file at {file_end} at the latest"
    yield f"  the window ends at     {pull.offset + window}: {window:,} entries, as maxMsgNums is {pull.max_msg_nums}"
    if (tags := wanted_tags(pull)) is not None:
        yield f"  tagsCode wanted        {', '.join(f'{tag!r} = {tags_code(tag)}' for tag in sorted(tags)) or 'none'}"
    yield f"  batch in memory        {caps[gm.COUNT_MEMORY]} messages, {caps[gm.BYTES_MEMORY]:,} bytes at most"
    yield f"  batch on disk          {caps[gm.COUNT_DISK]} messages, {caps[gm.BYTES_DISK]:,} bytes at most"
    beyond = f"what starts before {log_end - memory}" if log_end > memory else "nothing"
    yield f"  lies on disk           {beyond}: memory is {counted(memory, 'byte')} back from the log's end {log_end}"


def _runs(entries: Sequence[ScannedEntry]) -> Iterator[list[ScannedEntry]]:
    """Group consecutive entries with the same outcome; entries of a short run are groups of their own."""
    for _, group in groupby(entries, key=lambda entry: (entry.fate, entry.in_disk, entry.client_drops)):
        run = list(group)
        if len(run) <= _SHOWN_RUN:
            yield from ([entry] for entry in run)
        else:
            yield run


def _row(run: Sequence[ScannedEntry]) -> list[str | int]:
    first, last = run[0], run[-1]
    tags = {entry.message.tags if entry.message else None for entry in run}
    codes = {entry.tags_code for entry in run}
    where = "" if first.in_disk is None else "disk" if first.in_disk else "memory"
    what = f"{len(run)} x {first.fate.value}" if len(run) > 1 else first.fate.value
    drops = f"; the client drops it: {first.client_drops}" if first.client_drops else ""
    shown_tags = [tag or "" for tag in tags]
    return [
        str(first.queue_offset) if len(run) == 1 else f"{first.queue_offset}..{last.queue_offset}",
        str(first.physic_offset) if len(run) == 1 else f"{first.physic_offset}..{last.physic_offset}",
        sum(entry.size for entry in run),
        str(first.tags_code) if len(codes) == 1 else f"{len(codes)} different",
        shown_tags[0] if len(tags) == 1 else f"{len(tags)} different",
        where,
        what + drops + (_looked_at(first) if len(run) == 1 else ""),
    ]


def _looked_at(entry: ScannedEntry) -> str:
    """Return the properties because of which a SQL92 filter left out the message of an entry; "" for other entries."""
    if entry.fate is not Fate.NOT_BY_COMMIT_LOG or entry.message is None:
        return ""
    known = [f"no {name}" if value is None else f"{name}={value!r}" for name, value in entry.message.properties.items()]
    return f" ({', '.join(known)})" if known else ""


def _end(explanation: Explanation, entries: Sequence[ScannedEntry]) -> str:
    trace, answer = explanation.traced.trace, explanation.traced.answer
    assert trace is not None
    if trace.end is End.BATCH_FULL:
        last = entries[-1]
        counts = "" if explanation.settings.rules.fullness_test_comes_first else "; it counts for the disk figures only"
        return f"{last.fate.value}, before entry {last.queue_offset} was matched{counts}"
    if trace.end in {End.THROWN, End.NOT_STARTED}:
        return f"{trace.end.value}: {answer['exception']}"
    if trace.end is End.NO_FILE:
        return str(trace.end.value)
    return f"{trace.end.value}, at {trace.window_end}"


def _tail(explanation: Explanation, entries: Sequence[ScannedEntry], *, is_folded: bool) -> Iterator[str]:
    fates = Counter(entry.fate for entry in entries)
    passed = {fate: count for fate, count in fates.items() if fate.value.startswith(("not", "removed", "passed"))}
    if passed:
        each = "; --all shows each entry" if is_folded else ""
        yield "passed over: " + "; ".join(f"{count:,} {fate.value}" for fate, count in passed.items()) + each
    if dropped := [entry for entry in entries if entry.client_drops]:
        yield f"dropped by the client: {len(dropped):,} of {counted(fates[Fate.TAKEN], 'message')} given"
    yield ""
    answer = _answer(explanation)
    yield f"answer: {_answer_text(answer)}"
    if answer is not None and "status" in answer:
        yield f"  {counted(answer['messageCount'], 'message')}, {counted(answer['bufferTotalSize'], 'byte')}"
        behind = "not recorded" if answer["diskFallBehind"] is None else counted(answer["diskFallBehind"], "byte")
        yield f"  suggestPullingFromSlave {str(answer['suggestPullingFromSlave']).lower()}, diskFallBehind {behind}"
    yield from _broker_answer(explanation)


def _answer_text(answer: dict[str, Any] | None) -> str:
    """The answer of the store, in words."""
    if answer is None:
        return "null; the store is not readable, or past its limit of light queues"
    if "error" in answer:
        return f"{answer['error']}, as {_ERRORS[answer['error']]}"
    if "exception" in answer:
        return f"the store throws {answer['exception']}"
    return f"{GetMessageStatus[answer['status']].name}, next offset {answer['nextBeginOffset']}"


def _broker_answer(explanation: Explanation) -> Iterator[str]:
    """Yield the last lines of the explanation: the broker's answer to the client."""
    code, answer = explanation.code, explanation.traced.answer
    said = f"the broker answers {int(code)} {code.name}"
    if explanation.refused is not None:
        remark = "" if explanation.remark is None else f": {explanation.remark!r}"
        yield f"{said}, and does not ask the store{remark}"
    elif code is ResponseCode.PULL_NOT_FOUND:
        yield f"{said}, at once or when it has held the pull in vain; next offset {answer['nextBeginOffset']}"
    else:
        yield said if answer["nextBeginOffset"] is None else f"{said}, next offset {answer['nextBeginOffset']}"
    recorded = _recorded(explanation.pull)
    if recorded is not None:
        known = ResponseCode(recorded["code"]).name if recorded["code"] in set(ResponseCode) else ""
        next_offset = "" if recorded["nextBeginOffset"] is None else f", next offset {recorded['nextBeginOffset']}"
        yield f"captured: {recorded['code']} {known}{next_offset}"
        if told := deleted_since(recorded, code, answer, explanation.pull.offset):
            yield told
