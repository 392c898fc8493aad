"""The readers of config files and of JSON headers are two forms of fastjson: both over the same texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.config.fastjson import parse_json, plain
from store_format.config.fastjson_writer import encode_json
from store_format.errors import ConfigFileError
from store_format.remoting.errors import FrameError
from store_format.remoting.header_json import decode_json_header

TEXTS = [
    ('{"extFields":{"a":"b"}}', {"a": "b"}),
    ("{'extFields':{'a':'b\\''}}", {"a": "b'"}),
    ('{extFields:{a:"b",$c_1:"d"}}', {"a": "b", "$c_1": "d"}),
    ('/*c*/{ "extFields" : /*d*/ { "a" : "b" , } , }//e', {"a": "b"}),
    ('{"extFields":{"a":"\\b\\f\\n\\r\\t\\v\\F\\/\\\\\\"\\\'"}}', {"a": "\b\f\n\r\t\v\f/\\\"'"}),
    ('{"extFields":{"a":"\\0\\1\\7\\x41\\u00e4"}}', {"a": "\0\1\7A\xe4"}),
    ('{"extFields":{"a":"\\ud83d\\ude00"}}', {"a": "\U0001f600"}),
    ('\ufeff{"extFields":{"a":"\x01\t"}}', {"a": "\x01\t"}),
    ('{"extFields":{"a":null}}', {"a": None}),
]
BROKEN = [
    '{"extFields":{"a":"b"',
    '{"extFields":{"a" "b"}}',
    '{"extFields":{"a":"\\q"}}',
    '{"extFields":{"a":"b}}',
    '{"extFields":{"a":"\\u12"}}',
]


def by_both(text: str) -> tuple[Any, Any]:
    """extFields by the reader of config files, and by the reader of headers."""
    tree: Any = plain(parse_json(text.encode(), "header"))
    return tree["extFields"], decode_json_header(text.encode()).ext_fields


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_both_read_a_text_with_the_same_meaning(text: str, expected: dict[str, str | None]) -> None:
    assert by_both(text) == (expected, expected)


@pytest.mark.parametrize("text", BROKEN)
def test_both_refuse_a_broken_text(text: str) -> None:
    with pytest.raises(ConfigFileError):
        parse_json(text.encode(), "header")
    with pytest.raises(FrameError):
        decode_json_header(text.encode())


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5).filter(lambda key: key not in {"@type", "$ref"}), st.text(max_size=8))
)
def test_both_read_what_the_broker_writes(fields: dict[str, str]) -> None:
    plain_fields = {key: value for key, value in fields.items() if "\x1a" not in key + value}
    assert by_both(encode_json({"extFields": plain_fields}).decode()) == (plain_fields, plain_fields)
