"""The text of the broker's config files, as the broker's fastjson 1.2.76 writes it with prettyFormat.

Broker source (4.9.3): ConfigManager.persist, RemotingSerializable.toJson(obj, true): JSON.toJSONString(obj, true).
Rule: a member with a string key starts a line, indented by one tab for each level; members that are null are left out; the fields of a
class are in the order of their names.
Surprise: the members of a map with integer keys stay on one line, keys without quotes; only the closing brace starts a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from store_format.config.fastjson_scanner import NumberText

_ESCAPED = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def encode_json(value: object) -> bytes:
    """The UTF-8 text of nested dicts (string or integer keys, in their order), sequences, str, int, bool and None.

    A sequence is written on one line, as fastjson writes an int[]: the broker's files have no other sequences.

    Raises:
        UnicodeEncodeError: a string has half a surrogate pair, for which the broker writes a question mark.
        TypeError: a value has another type.
    """
    out: list[str] = []
    _write(value, "\n", out)
    return "".join(out).encode()


def quoted(text: str) -> str:
    r"""A text in double quotes: short escapes, and escapes like `\u007F` in capitals for other controls, U+2028 and U+2029."""
    return '"' + _ESCAPED.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}", text) + '"'


def _write(value: object, line: str, out: list[str]) -> None:
    if value is None or isinstance(value, bool):
        out.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, int | NumberText):
        out.append(str(value))
    elif isinstance(value, str):
        out.append(quoted(value))
    elif isinstance(value, Mapping):
        _write_map({key: item for key, item in value.items() if item is not None}, line, out)
    elif isinstance(value, Sequence):
        out.append("[")
        for index, item in enumerate(value):
            out.append("," if index else "")
            _write(item, line, out)
        out.append("]")
    else:
        raise TypeError(f"a config file cannot hold a {type(value).__name__}")


def _write_map(members: Mapping[object, object], line: str, out: list[str]) -> None:
    inner = line + "\t"
    out.append("{")
    for index, (key, item) in enumerate(members.items()):
        out.append("," if index else "")
        out.append(inner + quoted(key) if isinstance(key, str) else str(key))
        out.append(":")
        _write(item, inner, out)
    out.append(line + "}" if members else "}")
