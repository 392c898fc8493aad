"""fastjson's dialect: texts that are read, that are refused, that only fastjson reads; and the text that it writes.

The expected values come from fastjson 1.2.76 itself, run through the broker's own classes of 4.9.3 (as consumerOffset.json if the
text is a whole file).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.config import config_files
from store_format.config.fastjson import DEPTH_MAX, parse_json, plain
from store_format.config.fastjson_scanner import NumberText, UnsupportedConfigError
from store_format.config.fastjson_writer import FASTJSON2, encode_json
from store_format.errors import ConfigFileError


def offsets(text: str | bytes) -> dict[str, dict[int, int]]:
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    table = config_files.decode_consumer_offsets(raw, "consumerOffset.json").offsetTable
    return {key: dict(queues) for key, queues in table.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\n\t ", {}),
        ("null", {}),
        ("{}", {}),
        ("\ufeff{}", {}),
        ("{}\0\0\0", {}),
        ("/*c*/{}", {}),
        ("//c\n{}//c", {}),
        ('{"offsetTable":{}}', {}),
        ('{"offsetTable":{"t@g":{}}}', {"t@g": {}}),
        ('{offsetTable:{"t@g":{0:1}}}', {"t@g": {0: 1}}),
        ("{'offsetTable':{'t@g':{'0':'1'}}}", {"t@g": {0: 1}}),
        ('{"offsetTable":{$t_1:{0:1},new:{0:1}}}', {"$t_1": {0: 1}, "new": {0: 1}}),
        ('{"offsetTable":{"t@g":{"0":"-1"}}}', {"t@g": {0: -1}}),
        ('{"offsetTable":{"t@g":{ 0 : 1 ,\n}, } , }', {"t@g": {0: 1}}),
        ('{"offsetTable":{"t@g":{00:01}}}', {"t@g": {0: 1}}),
        ('{"offsetTable":{"t@g":{0:-0}}}', {"t@g": {0: 0}}),
        ('{"offsetTable":{"t@g":{-1:2,0:1,0:2,"0":3}}}', {"t@g": {-1: 2, 0: 3}}),
        ('{"offsetTable":{"t@g":{0:1},"t@g":{1:2}}}', {"t@g": {1: 2}}),
        (
            '{"offsetTable":{"t@g":{2147483647:9223372036854775807,-2147483648:-9223372036854775808}}}',
            {"t@g": {2147483647: 9223372036854775807, -2147483648: -9223372036854775808}},
        ),
        ('{"x":{"y":[1.5e3,{z:null},"}"],"1":true},"offsetTable":{"t@g":{0:1}},"w":-2.0}', {"t@g": {0: 1}}),
        ('{"offsetTable":/*d*/{/*e*/"t@g":/*g*/{/*h*/0:/*j*/1}/*l*/}/*m*/}', {"t@g": {0: 1}}),
        ('{"offsetTable":{"$ref":{0:1}}}', {"$ref": {0: 1}}),
        ('{"offsetTable":{"{0:":{0:1},"//":{0:1},"/*":{},",}":{}}}', {"{0:": {0: 1}, "//": {0: 1}, "/*": {}, ",}": {}}),
    ],
)
def test_what_fastjson_reads_is_read_with_the_same_meaning(text: str, expected: dict[str, dict[int, int]]) -> None:
    assert offsets(text) == expected


@pytest.mark.parametrize(
    ("quoted", "name"),
    [
        (r'"\"\\\/\b\f\n\r\t"', '"\\/\b\f\n\r\t'),
        (r'"\v\F\0\1\2\3\4\5\6\7"', "\v\f\0\1\2\3\4\5\6\7"),
        (r"'\'a\"'", "'a\""),
        ("'a\"'", 'a"'),
        ('"a\'"', "a'"),
        (r'"\x41\u0041\u00e9"', "AAé"),
        (r'"\ud83d\ude00"', "😀"),
        ('"é😀"', "é😀"),
        ('"a\nb\tc\0d\x7f"', "a\nb\tc\0d\x7f"),
        ('""', ""),
    ],
)
def test_strings_have_the_escapes_of_fastjson(quoted: str, name: str) -> None:
    assert offsets(f'{{"offsetTable":{{{quoted}:{{0:1}}}}}}') == {name: {0: 1}}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("1", 0),
        ('"x"', 0),
        ("[1]", 0),
        ("\0\0\0", 0),
        ("{} x", 3),
        ("{}{}", 2),
        ("{},", 2),
        ("{}/", 2),
        ("nullx", 0),
        ('{"offsetTable":{_t$:{0:1}}}', 18),
        ('{"offsetTable":[]}', 15),
        ('{"offsetTable":1}', 15),
        ('{"offsetTable":{"t@g":null}}', 22),
        ('{"offsetTable":{"t@g":""}}', 22),
        ('{"offsetTable":{1:{0:1}}}', 16),
        ('{"offsetTable":{t@g:{0:1}}}', 17),
        ('{"offsetTable" {"t@g":{0:1}}}', 15),
        ('{"offsetTable":{"t@g":{0:null}}}', 25),
        ('{"offsetTable":{"t@g":{0:[]}}}', 25),
        ('{"offsetTable":{"t@g":{0:{}}}}', 25),
        ('{"offsetTable":{"t@g":{0:9223372036854775808}}}', 25),
        ('{"offsetTable":{"t@g":{0:99999999999999999999999999999}}}', 25),
        ('{"offsetTable":{"t@g":{0:"-9223372036854775809"}}}', 25),
        ('{"offsetTable":{"t@g":{2147483648:1}}}', 23),
        ('{"offsetTable":{"t@g":{"-2147483649":1}}}', 23),
        ('{"offsetTable":{"t@g":{0:-}}}', 25),
        ('{"offsetTable":{"t@g":{0 1}}}', 25),
        ('{"offsetTable":{"t@g":{0}}}', 24),
        ('{"offsetTable":{"t@g":{:1}}}', 23),
        (r'{"offsetTable":{"\q":{0:1}}}', 17),
        (r'{"offsetTable":{"\8":{0:1}}}', 17),
        (r'{"offsetTable":{"\u004g":{0:1}}}', 17),
        ('{"offsetTable":{"é" "b":{0:1}}}', 21),
    ],
)
def test_what_fastjson_refuses_is_refused_with_its_position(text: str, position: int) -> None:
    with pytest.raises(ConfigFileError) as caught:
        offsets(text)
    assert type(caught.value) is ConfigFileError
    assert (caught.value.path, caught.value.position) == ("consumerOffset.json", position)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("}", 0),  # fastjson: {}
        ('{"offsetTable":{"t@g":{0:1/*c*/}}}', 26),  # read here, not behind every number
        ("[]", 0),  # null
        ('""', 0),  # null
        ("''", 0),
        ("Null", 0),
        ("NULL", 0),
        ("{}\x1a", 2),  # {}
        ("{}\x1a garbage", 2),
        ("\x1a", 0),  # null
        (" \x1a{]", 1),
        ('{"offsetTable":{"t@g":{0:1}}null', 28),  # null
        ('{"offsettable":{"t@g":{0:1}}}', 1),  # offsetTable
        ('{"offset_table":{"t@g":{0:1}}}', 1),
        ('{"offsetTable":null}', 1),  # null; the broker runs into it later
        ('{"offsetTable":{},"offsetTable":{}}', 18),  # the last; other files merge
        ('{"offsetTable":{,"t@g":{0:1}}}', 16),  # read without the comma
        ('{"offsetTable":{"t@g":{0:1},,"u@g":{0:2}}}', 28),
        ('{"offsetTable":{"t@g":{0:1 1:2}}}', 27),  # {0: 1, 1: 2}
        ('{"offsetTable":{"t@g":{0:1};"u@g":{}}}', 27),  # the token is dropped
        ('{"offsetTable":{"t@g":{0:1L}}}', 25),  # 1, as are the next ones
        ('{"offsetTable":{"t@g":{0:+1}}}', 25),
        ('{"offsetTable":{"t@g":{0:1.9}}}', 25),
        ('{"offsetTable":{"t@g":{0:1e0}}}', 25),
        ('{"offsetTable":{"t@g":{0:true}}}', 25),
        ('{"offsetTable":{"t@g":{1.5:1}}}', 23),
        ('{"offsetTable":{"t@g":{0:"1,000"}}}', 25),  # 1000
        ('{"x":NaN,"offsetTable":{}}', 5),
        ('{"x":new Date(5),"offsetTable":{}}', 5),
        ('{"x":Set[1],"offsetTable":{}}', 5),
        ('{"x":{"@type":"java.util.HashMap"},"offsetTable":{}}', 6),
        ('{"offsetTable":{"t@g":{"$ref":"$"}}}', 23),  # the manager itself
        ('{"offsetTable":{"t@g":\0{0:1}}}', 22),  # a blank there
        (r'{"offsetTable":{"\ud83d":{0:1}}}', 16),  # half a pair, which no table can hold
        (r'{"offsetTable":{"\u+041":{0:1}}}', 17),  # A
        (b'{"offsetTable":{"\xff":{0:1}}}', 17),  # U+FFFD
        ('{"x":' + "[" * DEPTH_MAX + "]" * DEPTH_MAX + "}", 4 + DEPTH_MAX),
    ],
)
def test_what_only_fastjson_reads_is_no_reason_to_take_the_bak(text: str | bytes, position: int) -> None:
    raw = text.encode() if isinstance(text, str) else text
    with pytest.raises(UnsupportedConfigError) as caught:
        config_files.load(raw, b"{}", "consumerOffset.json", config_files.decode_consumer_offsets)
    assert caught.value.position == position


def test_a_later_failure_counts_for_more_than_a_form_only_fastjson_reads() -> None:
    with pytest.raises(ConfigFileError) as caught:
        offsets('{"offsetTable":{"t@g":{0:1L,1:')
    assert type(caught.value) is ConfigFileError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ({"a": {}}, '{\n\t"a":{}\n}'),
        ({"a": {0: 1, 1: 2}}, '{\n\t"a":{0:1,1:2\n\t}\n}'),
        ({"a": {1: {2: "q"}, 3: {}, "s": 4, 5: 6}}, '{\n\t"a":{1:{2:"q"\n\t\t},3:{},\n\t\t"s":4,5:6\n\t}\n}'),
        ({"a": [54, 78], "b": [], "c": True}, '{\n\t"a":[54,78],\n\t"b":[],\n\t"c":true\n}'),
        ({"a": None, "b": NumberText("1.50")}, '{\n\t"b":1.50\n}'),
    ],
)
def test_text_is_laid_out_as_fastjson_does(value: object, text: str) -> None:
    assert encode_json(value).decode() == text


def escape_of_fastjson(code: int) -> str:
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 0x22: '\\"', 0x5C: "\\\\"}
    escaped = code < 0x20 or 0x7F <= code < 0xA0 or code in (0x2028, 0x2029)
    return short.get(code, f"\\u{code:04X}" if escaped else chr(code))


def test_every_character_is_escaped_as_fastjson_does() -> None:
    for code in [*range(0xD800), *range(0xE000, 0x10000), 0x1F600]:
        assert encode_json({chr(code): chr(code)}).decode() == f'{{\n\t"{escape_of_fastjson(code)}":"{escape_of_fastjson(code)}"\n}}'


# written by RemotingSerializable.toJson(value, true) of 5.5.0
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": {}, "b": [], "c": None}, '{\n\t"a":{},\n\t"b":[]\n}'),
        ({"a": {0: 1, 5: -7}}, '{\n\t"a":{\n\t\t0:1,\n\t\t5:-7\n\t}\n}'),
        ({"a": [1, 2, 3]}, '{\n\t"a":[1,2,3]\n}'),
        ({"a": ["x", "y"]}, '{\n\t"a":[\n\t\t"x",\n\t\t"y"\n\t]\n}'),
        ({"a": [{"b": 1}, {"c": 2}]}, '{\n\t"a":[\n\t\t{\n\t\t\t"b":1\n\t\t},\n\t\t{\n\t\t\t"c":2\n\t\t}\n\t]\n}'),
        ({"\x01/é": "\x07\b\t\n\x0b\f\r\x1f\x7f\x9f\u2028"}, '{\n\t"\\u0001/é":"\\u0007\\b\\t\\n\\u000b\\f\\r\\u001f\x7f\x9f\u2028"\n}'),
    ],
)
def test_text_is_laid_out_as_fastjson2_does(value: object, text: str) -> None:
    assert encode_json(value, FASTJSON2).decode() == text


def test_what_no_config_file_holds_is_not_written() -> None:
    with pytest.raises(TypeError):
        encode_json({"a": 1.5})
    with pytest.raises(UnicodeEncodeError):
        encode_json({"\ud83d": 1})


names = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda name: name not in {"@type", "$ref"})
keys = names | st.integers(-(10**20), 10**20)
values = st.recursive(
    st.booleans() | st.integers(-(10**20), 10**20) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@given(values)
def test_any_text_written_is_read_again(value: object) -> None:
    assert plain(parse_json(encode_json(value), "x")) == value


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 300_000,
        b'{"a":' * 60_000,
        b'"' * 300_000,
        b"/*" * 150_000,
        b"[" + b"1 " * 100_000,
        b"[" + b"," * 300_000,
        b'{"a":' + b"9" * 300_000 + b"}",
        b'"' + b"\\u0041" * 50_000,
        b"{a:" + b"\xff" * 300_000,
        b" " * 300_000 + b"x",
    ],
    ids=lambda text: repr(text[:8]),
)
def test_hostile_text_costs_one_pass(text: bytes) -> None:
    try:
        parse_json(text, "x")
    except ConfigFileError as error:
        assert error.position is not None  # noqa: PT017
        assert len(str(error)) < 300  # noqa: PT017
