"""The text of the broker's config files, as the broker's fastjson writes it with prettyFormat.

Broker source: ConfigManager.persist, RemotingSerializable.toJson(obj, true): JSON.toJSONString(obj, true) of fastjson 1.2.76 (4.9.3), and
JSON.toJSONString(obj, PrettyFormat) of fastjson2 2.0.59 (5.5.0).
Rule: a member with a string key starts a line, indented by one tab for each level; members that are null are left out; the fields of a
class are in the order of their names.
Surprise: 4.9.3 keeps the members of a map with integer keys on one line, keys without quotes; only the closing brace starts a line. 5.5.0
starts a line for each, and for each item of a list that is no list of integers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from store_format.broker_version import BrokerVersion, Rule, Variant
from store_format.config.fastjson_scanner import NumberText

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextForm:
    """How a release of fastjson writes.

    Attributes:
        escaped: matches a character that is written as an escape.
        escape: format of the escape for a character that has no short escape.
        is_pretty: whether members with string keys start a line.
        on_lines: whether each member of a map with integer keys, and each item of a list of other values than integers, starts a line.
    """

    escaped: re.Pattern[str] = field(repr=False)
    escape: str
    on_lines: bool
    is_pretty: bool = True


FASTJSON: Final = TextForm(escaped=re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]'), escape="\\u{:04X}", on_lines=False)
FASTJSON2: Final = TextForm(escaped=re.compile('["\\\\\x00-\x1f]'), escape="\\u{:04x}", on_lines=True)
COMPACT: Final = replace(FASTJSON2, on_lines=False, is_pretty=False)
TO_JSON: Final = Rule(
    term="toJson",
    variants=(
        Variant(BrokerVersion.V4_9_3, FASTJSON, "config files are written by fastjson", "RemotingSerializable.toJson"),
        Variant(
            BrokerVersion.V5_5_0,
            FASTJSON2,
            "config files are written by fastjson2: offsets of queues stand on lines of their own",
            "RemotingSerializable.toJson",
        ),
    ),
)


def encode_json(value: object, form: TextForm = FASTJSON) -> bytes:
    """The UTF-8 text of nested dicts (string or integer keys, in their order), sequences, str, int, bool and None.

    Raises:
        UnicodeEncodeError: a string has half a surrogate pair, for which the broker writes a question mark.
        TypeError: a value has another type.
    """
    out: list[str] = []
    _write(value, "\n", out, form)
    return "".join(out).encode()


def encode_compact_json(value: object) -> bytes:
    """The UTF-8 text of the same values on one line, as fastjson2 writes it without prettyFormat; members that are null are left out."""
    return encode_json(value, COMPACT)


def quoted(text: str, form: TextForm = FASTJSON) -> str:
    r"""A text in double quotes, with short escapes, and escapes like `\u000b` for other controls."""
    return '"' + form.escaped.sub(lambda found: _SHORT.get(found[0]) or form.escape.format(ord(found[0])), text) + '"'


def _write(value: object, line: str, out: list[str], form: TextForm) -> None:
    if value is None or isinstance(value, bool):
        out.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, int | NumberText):
        out.append(str(value))
    elif isinstance(value, str):
        out.append(quoted(value, form))
    elif isinstance(value, Mapping):
        _write_map({key: item for key, item in value.items() if item is not None}, line, out, form)
    elif isinstance(value, Sequence):
        _write_list(value, line, out, form)
    else:
        raise TypeError(f"a config file cannot hold a {type(value).__name__}")


def _write_list(items: Sequence[object], line: str, out: list[str], form: TextForm) -> None:
    on_lines = form.on_lines and not all(isinstance(item, int) for item in items)
    out.append("[")
    for index, item in enumerate(items):
        out.append("," if index else "")
        out.append(line + "\t" if on_lines else "")
        _write(item, line + "\t" if on_lines else line, out, form)
    out.append(line + "]" if on_lines else "]")


def _write_map(members: Mapping[object, object], line: str, out: list[str], form: TextForm) -> None:
    inner = line + "\t"
    out.append("{")
    for index, (key, item) in enumerate(members.items()):
        out.append("," if index else "")
        out.append(inner if form.on_lines or (form.is_pretty and isinstance(key, str)) else "")
        out.append(quoted(key, form) if isinstance(key, str) else str(key))
        out.append(":")
        _write(item, inner, out, form)
    out.append(line + "}" if members and form.is_pretty else "}")
