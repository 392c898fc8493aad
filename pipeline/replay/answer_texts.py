"""Answers of the driver as JSON, byte for byte equal to the JSON that Spark makes with `answer_lines` and `message_texts`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.answer_lines import ANSWER_FIELDS, ERROR_TEXTS
from pipeline.replay.entry_colocation import Row
from pipeline.replay.message_texts import MESSAGE_FIELDS, LostMessageError, delivered_at
from pipeline.tasks.work import NoSessionError
from udfs.pull.pull_rules import PullRules

# few at once: as objects of Python, entries take ten times the memory
_ANSWERS_AT_ONCE = 1000
# messages whose texts the driver keeps: about 600 bytes each
_MOST_MESSAGES = 500_000
# (physicOffset, size) of an entry
Entry = tuple[int, int]
# the escapes of Jackson, which writes Spark's JSON
_ESCAPES: Final = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord(character): text for character, text in zip('"\\\b\t\n\f\r', ('\\"', "\\\\", "\\b", "\\t", "\\n", "\\f", "\\r"), strict=True)
}


def json_object(fields: Mapping[str, Any]) -> str:
    """The JSON of an object whose values are texts, numbers, booleans, lists of numbers, objects of this kind, and None."""
    return "{" + ",".join(f'"{name}":{_json(value)}' for name, value in fields.items()) + "}"


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return json_object(value)
    return f'"{value.translate(_ESCAPES)}"' if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def answer_text(answer: Row, messages: Iterable[str] | None, rules: PullRules) -> str:
    """As `answer_lines.response_json`.

    Args:
        answer: a row of ANSWER_SCHEMA.
        messages: the JSON of the answer's messages; None leaves them out.
        rules: of the broker that answered.
    """
    if answer["error"] is not None:
        text = ERROR_TEXTS.get(answer["error"])
        return json_object({"error": answer["error"]} | ({} if text is None else {"message": text}))
    if answer["exception"] is not None:
        return json_object({"exception": answer["exception"]})
    if answer["status"] is None:
        return "null"
    fields = {name: answer[name] for name in ANSWER_FIELDS}
    if rules.lists_queue_offsets:
        offsets = [entry["queueOffset"] for entry in answer["entries"] or ()]
        fields |= ({} if messages is None else {"messageQueueOffset": offsets}) | {
            "filterMessageCount": answer["filterMessageCount"],
            "coldDataSum": 0,
        }
    text = json_object(fields)
    return text if messages is None else f'{text[:-1]},"messages":[{",".join(messages)}]}}'


def texts_without_messages(answers: pa.Table, rules: PullRules) -> pa.Array:
    """The JSON of each answer without its messages, as `answer_text` gives it.

    Args:
        answers: rows of ANSWER_SCHEMA.
        rules: of the broker that answered.
    """
    fields: dict[str, Any] = {name: _texts_of(answers[name].combine_chunks()) for name in ANSWER_FIELDS}
    if rules.lists_queue_offsets:
        fields |= {"filterMessageCount": _texts_of(answers["filterMessageCount"].combine_chunks()), "coldDataSum": "0"}
    parts = (part for place, (name, texts) in enumerate(fields.items()) for part in (f'{"," if place else "{"}"{name}":', texts))
    made = pc.binary_join_element_wise(*parts, "}", "", null_handling="replace", null_replacement="null")
    odd = pc.or_(pc.or_(pc.is_valid(answers["error"]), pc.is_valid(answers["exception"])), pc.is_null(answers["status"])).combine_chunks()
    others = [answer_text(row, None, rules) for row in answers.filter(odd).to_pylist()]
    return pc.replace_with_mask(made, odd, pa.array(others, pa.string()))


def _texts_of(values: pa.Array) -> pa.Array:
    """Numbers, booleans or names as JSON; NULL stays NULL."""
    if pa.types.is_string(values.type):
        return pc.binary_join_element_wise('"', values, '"', "")
    return pc.cast(values, pa.string())


def answer_texts(
    broker: OpenedBroker, answers: pa.Table, rules: PullRules, *, with_messages: bool
) -> Iterator[tuple[int, bytes, str | None]]:
    """seq, JSON and error code of each answer, in the order of `seq`.

    Args:
        broker: the broker whose store answered.
        answers: rows of ANSWER_SCHEMA.
        rules: of the broker.
        with_messages: whether the answers have their messages.

    Raises:
        LostMessageError: an entry of an answer points to bytes of the log that no table has.
        NoSessionError: only Spark can read the tables, or the answers have too many different messages; raised before the first answer.
    """
    return _texts(broker, answers, rules, _texts_of_entries(broker, answers["entries"]) if with_messages else None)


def _texts(
    broker: OpenedBroker, answers: pa.Table, rules: PullRules, texts: Mapping[Entry, str] | None
) -> Iterator[tuple[int, bytes, str | None]]:
    order = pc.sort_indices(answers["seq"])
    few = (answers.take(order.slice(start, _ANSWERS_AT_ONCE)) for start in range(0, len(answers), _ANSWERS_AT_ONCE))
    for row in (row for some in few for row in some.to_pylist()):
        messages = None if texts is None else [_text_of(broker, texts, entry) for entry in row["entries"] or ()]
        yield row["seq"], answer_text(row, messages, rules).encode(), row["error"]


def _texts_of_entries(broker: OpenedBroker, entries: pa.ChunkedArray) -> dict[Entry, str]:
    offsets = entries.combine_chunks().flatten().field("physicOffset").unique().to_pylist()
    if len(offsets) > _MOST_MESSAGES:
        raise NoSessionError(f"the answers have more than {_MOST_MESSAGES:,} different messages")
    rows = delivered_at(broker, offsets) if offsets else []
    return {
        (row["physicOffset"], row["size"]): json_object({field: row[column] for field, column in MESSAGE_FIELDS.items()}) for row in rows
    }


def _text_of(broker: OpenedBroker, texts: Mapping[Entry, str], entry: Row) -> str:
    found = texts.get((entry["physicOffset"], entry["size"]))
    if found is None:
        raise LostMessageError.of(broker.lake.root, entry["physicOffset"], entry["size"])
    return found
