"""Files of pull requests: which lines are requests, and the error that names the first line that is none."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.requests import request_file as rf
from pipeline.requests.request_lines import RequestError, read_good_lines
from pipeline.requests.request_source import read_chunk
from pipeline.scenarios.scenario_file import read_chunk as read_scenarios
from pipeline.store.lookup_requests import open_requests

REQUEST: dict[str, Any] = {"group": "g", "topic": "T", "queueId": 0, "offset": 0, "maxMsgNums": 32, "filter": None}
PLAIN = json.dumps({"request": REQUEST}).encode()
HEADER = b'{"kind":"trace","config":{}}'


def asked(**changes: Any) -> bytes:
    """A line with some fields changed."""
    return json.dumps({"request": REQUEST | changes}).encode()


def without(field: str) -> bytes:
    return json.dumps({"request": {name: value for name, value in REQUEST.items() if name != field}}).encode()


def with_response(response: bytes) -> bytes:
    return PLAIN[:-1] + b', "response": ' + response + b"}"


def read(path: Path) -> list[dict[str, Any]]:
    """All requests of a file, as the job reads them."""
    file = rf.scan_file(str(path))
    return [row for chunk in file.chunks for batch in read_chunk(file.path, chunk) for row in batch.to_pylist()]


def read_bytes(folder: Path, content: bytes) -> list[dict[str, Any]]:
    path = folder / "requests.jsonl"
    path.write_bytes(content)
    return read(path)


BAD = {
    "no JSON": (b"pull me", "a JSON object", "pull me"),
    "half a line": (PLAIN[:-1], "a JSON object", "maxMsgNums"),
    "two objects in a line": (PLAIN + PLAIN, "a JSON object", "maxMsgNums"),
    "a list": (b"[1, 2]", "a JSON object", "[1, 2]"),
    "a comma too many": (PLAIN.replace(b"null}", b"null,}"), "a JSON object", "null,}"),
    "no number of JSON": (asked(offset=float("nan")), "a JSON object", "NaN"),
    "no number of JSON in a recorded answer": (with_response(b"-Infinity"), "a JSON object", "-Infinity"),
    "a leading zero": (PLAIN.replace(b'"offset": 0', b'"offset": 007'), "a JSON object", "007"),
    "a number of 5,000 digits": (PLAIN.replace(b'"offset": 0', b'"offset": ' + b"9" * 5000), "a JSON object", "999"),
    "deep nesting": (PLAIN[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "a JSON object", "[[["),
    "deep nesting in the request": (PLAIN[:-2] + b', "x": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_002, "a JSON object", '{"a":'),
    "a byte order mark": (b"\xef\xbb\xbf" + PLAIN, "a JSON object", "\\ufeff"),
    "UTF-16": (PLAIN.decode().encode("utf-16-le"), "a JSON object", "x00"),
    "a byte that is no UTF-8": (PLAIN.replace(b'"T"', b'"T\xff"'), "a JSON object", "\\xff"),
    "a byte that is no UTF-8 in a recorded answer": (with_response(b'"\xff"'), "a JSON object", "\\xff"),
    "a surrogate written as UTF-8": (PLAIN.replace(b'"T"', b'"\xed\xa0\x80"'), "a JSON object", "invalid continuation byte"),
    "a raw control character": (PLAIN.replace(b'"T"', b'"T\x01"'), "a JSON object", "x01"),
    "half a surrogate pair": (asked(topic="T\ud800"), "text without lone surrogates", "\\ud800"),
    "the other half": (asked(group="\udc00g"), "text without lone surrogates", "\\udc00"),
    "half a surrogate pair in an expression": (
        asked(filter={"type": "TAG", "expression": "\ud83d"}),
        "text without lone surrogates",
        "\\ud83d",
    ),
    "half a surrogate pair in the type of a filter": (
        asked(filter={"type": "T\ud83dAG", "expression": "a"}),
        "text without lone surrogates",
        "T\\ud83dAG",
    ),
    "many keys, the last one twice": (
        b'{"request": {"topic": "a", %s, "topic": "b"}}' % b", ".join(b'"k%d": 0' % number for number in range(20_000, 0, -1)),
        "a JSON object",
        "the key 'topic' is there twice",
    ),
    "no request": (b'{"response": null}', 'a field "request" that is an object', "response"),
    "a request that is a list": (b'{"request": []}', 'a field "request" that is an object', "[]"),
    "no group": (without("group"), 'a text in "group"', "None"),
    "no topic": (without("topic"), 'a text in "topic"', "None"),
    "no queueId": (without("queueId"), 'a whole number of 32 bits in "queueId"', "None"),
    "no offset": (without("offset"), 'a whole number of 64 bits in "offset"', "None"),
    "no maxMsgNums": (without("maxMsgNums"), 'a whole number of 32 bits in "maxMsgNums"', "None"),
    "no filter": (without("filter"), 'a field "filter" (null where there is none)', "maxMsgNums"),
    "no filter, but the word": (without("filter").replace(b'"g"', b'"filter"'), 'a field "filter"', '"filter"'),
    "a number as topic": (asked(topic=5), 'a text in "topic"', "5"),
    "a text as offset": (asked(offset="5"), 'a whole number of 64 bits in "offset"', "'5'"),
    "a truth as queueId": (asked(queueId=True), 'a whole number of 32 bits in "queueId"', "True"),
    "a float": (asked(offset=1.0), 'a whole number of 64 bits in "offset"', "1.0"),
    "an exponent": (PLAIN.replace(b'"offset": 0', b'"offset": 1e3'), 'a whole number of 64 bits in "offset"', "1000.0"),
    "more than a long": (asked(offset=2**63), 'a whole number of 64 bits in "offset"', str(2**63)),
    "less than a long": (asked(offset=-(2**63) - 1), 'a whole number of 64 bits in "offset"', str(-(2**63) - 1)),
    "more than an int": (asked(maxMsgNums=2**31), 'a whole number of 32 bits in "maxMsgNums"', str(2**31)),
    "a timestamp with a fraction": (asked(timestamp=1.5), 'a whole number of 64 bits in "timestamp"', "1.5"),
    "a flag that is a text": (asked(sysFlag="3"), 'a whole number of 32 bits in "sysFlag"', "'3'"),
    "a timeout past a long": (asked(suspendTimeoutMillis=2**63), 'a whole number of 64 bits in "suspendTimeoutMillis"', str(2**63)),
    "a filter that is a text": (asked(filter="TagA"), 'a filter that is null or {"type", "expression"}', "'TagA'"),
    "a filter without a type": (asked(filter={"expression": "TagA"}), 'a filter that is null or {"type", "expression"}', "expression"),
    "an expression that is a number": (asked(filter={"type": "TAG", "expression": 1}), "a text as the filter's expression", "1"),
    "a recorded maxOffset that is a text": (with_response(b'{"maxOffset": "x"}'), 'a whole number of 64 bits in "maxOffset"', "'x'"),
    "a recorded maxOffset past a long": (with_response(b'{"maxOffset": 1' + b"0" * 30 + b"}"), '"maxOffset"', "10000"),
}


@pytest.mark.parametrize("line_ends", [b"\n", b"\r\n"])
@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize(("line", "expected", "found"), BAD.values(), ids=BAD)
def test_a_bad_line_is_named(line: bytes, expected: str, found: str, before: int, line_ends: bytes, tmp_path: Path) -> None:
    with pytest.raises(RequestError) as error:
        read_bytes(tmp_path, line_ends.join([PLAIN] * before + [line, PLAIN, b"also bad"]))
    assert error.value.path == str(tmp_path / "requests.jsonl")
    assert error.value.line == before + 1
    assert expected in error.value.expected
    assert found in str(error.value)
    assert len(str(error.value)) < 1500


TWICE = PLAIN[:-1] + b', "note": ' + PLAIN + b"}"


@pytest.mark.parametrize("name", [name for name in BAD if name.startswith("no ")])
def test_a_line_that_lacks_a_field_is_named_beside_one_that_has_it_twice(name: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError) as error:
        read_bytes(tmp_path, TWICE + b"\n" + BAD[name][0])
    assert error.value.line == 2
    assert BAD[name][1] in error.value.expected


@pytest.mark.parametrize("other", [b'"topic" :', b'"\\u0074opic":'], ids=["a blank", "an escape"])
def test_a_key_that_is_there_twice_is_named_beside_one_in_another_form(other: bytes, tmp_path: Path) -> None:
    key = b'"topic":'
    assert PLAIN.count(key) == 1
    with pytest.raises(RequestError) as error:
        read_bytes(tmp_path, PLAIN.replace(key, other) + b"\n" + PLAIN.replace(key, b'"topic": "other", "topic":'))
    assert error.value.line == 2
    assert "'topic' is there twice" in str(error.value)


@pytest.mark.parametrize(
    "line",
    [
        PLAIN[:-1] + b', "x": 1, "x": 2}',
        PLAIN[:-1] + b', "x": {"type": 1, "type": 2}}',
        PLAIN.replace(b'"offset"', b'"x": 1, "x": 2, "offset"'),
    ],
)
def test_keys_that_are_not_read_may_be_there_twice_beside_a_bad_line_too(line: bytes) -> None:
    alone, bad = read_good_lines("x.jsonl", 1, line)
    beside, worse = read_good_lines("x.jsonl", 1, line + b"\n-")
    assert (len(alone), bad) == (1, [])
    assert beside.equals(alone)
    assert len(worse) == 1


GOOD = {
    "as it is": asked(),
    "no expression": asked(filter={"type": "TAG"}),
    "least numbers": asked(queueId=-(2**31), offset=-(2**63), maxMsgNums=-(2**31)),
    "greatest numbers": asked(queueId=2**31 - 1, offset=2**63 - 1, maxMsgNums=2**31 - 1, timestamp=2**63 - 1),
    "an unknown filter": asked(filter={"type": "CLASS", "expression": "x"}),
    "a registered one": asked(filter={"type": "SQL92", "expression": "a > 1", "registered": True}),
    "its fields in one of others": TWICE,
    "fields of others": PLAIN[:-2] + b', "x": [1, {"y": null}]}, "note": "n"}',
    "no time": asked(timestamp=None),
    "a pull that may be held": asked(sysFlag=3, suspendTimeoutMillis=15_000),
    "the greatest of its numbers": asked(sysFlag=2**31 - 1, suspendTimeoutMillis=2**63 - 1),
    "neither flag nor timeout": asked(sysFlag=None, suspendTimeoutMillis=None),
    "a recorded null": with_response(b"null"),
    "a recorded answer": with_response(b'{"maxOffset": 7, "messages": []}'),
    "a recorded answer of another kind": with_response(b"5"),
    "texts of all kinds": asked(group="\x00 \u2028 \x85 \U0001f680", topic='"\\/'),
    "surrogate pairs, escaped": PLAIN.replace(b'"T"', b'"\\ud83d\\ude80"'),
    "an escaped name": PLAIN.replace(b'"filter"', b'"\\u0066ilter"'),
    "blanks around it": b" \t" + PLAIN + b"  ",
    "a line of 1 MB": asked(group="g" * 1_000_000),
    "many messages": with_response(json.dumps({"maxOffset": 9, "messages": [{"n": n} for n in range(2000)]}).encode()),
}


@pytest.mark.parametrize("neighbour", [PLAIN, b" " + PLAIN], ids=["read at once", "read one by one"])
@pytest.mark.parametrize("line", GOOD.values(), ids=GOOD)
def test_a_good_line_is_read(line: bytes, neighbour: bytes, tmp_path: Path) -> None:
    _, row = read_bytes(tmp_path, neighbour + b"\n" + line + b"\n")
    written = json.loads(line)
    request, response = written["request"], written.get("response")
    assert row == {
        "seq": 2,
        "consumerGroup": request["group"],
        "topic": request["topic"],
        "queueId": request["queueId"],
        "queueOffset": request["offset"],
        "maxMsgNums": request["maxMsgNums"],
        "filterType": (request["filter"] or {}).get("type"),
        "expression": (request["filter"] or {}).get("expression"),
        "registered": (request["filter"] or {}).get("registered"),
        "timestamp": request.get("timestamp"),
        "sysFlag": request.get("sysFlag"),
        "suspendTimeoutMillis": request.get("suspendTimeoutMillis"),
        "recordedMaxOffset": response["maxOffset"] if isinstance(response, dict) else None,
        "line": line.decode(),
    }


ENDS = {
    "no line end at the end": (b"\n".join([HEADER, PLAIN, PLAIN]), [2, 3]),
    "a line end at the end": (b"\n".join([HEADER, PLAIN, PLAIN, b""]), [2, 3]),
    "CRLF": (b"\r\n".join([HEADER, PLAIN, PLAIN, b""]), [2, 3]),
    "blank lines": (b"\n".join([HEADER, b"", PLAIN, b"  \t", PLAIN, b"", b"", b""]), [3, 5]),
    "blank lines, CRLF": (b"\r\n".join([HEADER, b"", PLAIN, b"", PLAIN, b""]), [3, 5]),
    "a blank line first": (b"\n".join([b"", PLAIN]), [2]),
    "no header": (PLAIN, [1]),
    "a header only": (HEADER, []),
}


@pytest.mark.parametrize(("content", "numbers"), ENDS.values(), ids=ENDS)
def test_lines_keep_their_numbers(content: bytes, numbers: list[int], tmp_path: Path) -> None:
    assert [row["seq"] for row in read_bytes(tmp_path, content)] == numbers


LONG_VALUES = {
    "a line": b"\x1b[31m" + b"x" * 5000,
    "a text that is no object": b'"\xe2\x80\xae' + b"y" * 5000 + b'"',
    "a value": b'{"request": {"group": {"\\u001b[31m": "' + b"z" * 5000 + b'"}}}',
    "a key": b'{"' + b"k\x7f" * 2000 + b'": 1, "' + b"k\x7f" * 2000 + b'": 2}',
    "a number": b'{"request": {"group": ' + b"1" * 399 + b"}}",
}


@pytest.mark.parametrize("line", LONG_VALUES.values(), ids=LONG_VALUES)
def test_a_refused_line_is_shown_short_and_printable(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(line + b"\n" + PLAIN)
    with pytest.raises(RequestError) as refused:
        read_bytes(tmp_path, line)
    said = str(refused.value).removeprefix(f"{tmp_path}/")
    assert said.isprintable()
    assert len(said) < 450
    assert "line 1: expected " in said


def test_a_header_is_the_first_line_or_none(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match='line 2: expected a field "request" that is an object'):
        read_bytes(tmp_path, PLAIN + b"\n" + HEADER)


def test_two_objects_in_one_line_are_not_two_lines(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="line 1: expected a JSON object"):
        read_bytes(tmp_path, PLAIN + PLAIN + b"\n\n")


@given(st.lists(st.sampled_from([PLAIN, b"", b" " + PLAIN, PLAIN + b"\r", asked(offset=7)])), st.integers(1, 400))
def test_a_file_reads_the_same_in_pieces_of_any_size(lines: list[bytes], size: int) -> None:
    lines = [*lines, PLAIN]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(rf, "CHUNK_BYTES", size)
        rows = read_bytes(Path(folder), b"\n".join(lines))
    expected = [(number, json.loads(line)["request"]["offset"]) for number, line in enumerate(lines, 1) if line.strip()]
    assert [(row["seq"], row["queueOffset"]) for row in rows] == expected


def test_the_header_is_the_first_line_and_no_request(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b'{"kind": "trace", "config": {"brokerRole": "SLAVE"}}\n' + PLAIN)
    assert rf.scan_file(str(path)).header == {"kind": "trace", "config": {"brokerRole": "SLAVE"}}
    path.write_bytes(PLAIN)
    assert rf.scan_file(str(path)).header is None


MISSING = {
    "an empty file": (b"", "an empty file"),
    "blank lines": (b"\n \t\r\n\n", "only blank lines"),
    "no file": (None, "No such file"),
    "a folder": ("folder", "directory"),
}


def test_blank_lines_in_any_number_are_no_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rf, "CHUNK_BYTES", 7)
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b" \n" * 40)
    with pytest.raises(RequestError, match="found only blank lines"):
        rf.scan_file(str(path))
    path.write_bytes(b" \n" * 40 + PLAIN)
    assert rf.scan_file(str(path)).lines == 41


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "requests.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(RequestError, match="a pipe or a device, whose bytes can be read only once; write them to a file first"):
        rf.scan_file(str(pipe))
    with pytest.raises(RequestError, match="a pipe or a device"), open_requests(str(pipe)):
        pass


@pytest.mark.parametrize(("content", "found"), MISSING.values(), ids=MISSING)
def test_a_file_that_cannot_be_read_is_named(content: bytes | str | None, found: str, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    with pytest.raises(RequestError) as error:
        rf.scan_file(str(path))
    assert (error.value.path, error.value.line) == (str(path), 1)
    assert found in error.value.found


def test_a_file_without_line_ends_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rf, "CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr(rf, "LINE_BYTES_MAX", 1 << 14)
    path = tmp_path / "requests.jsonl"
    path.write_bytes(PLAIN + b"\n" + b" " * (1 << 16))
    with pytest.raises(RequestError, match="line 2: expected a line of at most 16384 bytes"):
        rf.scan_file(str(path))


def test_the_same_file_has_the_same_digest(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(PLAIN + b"\n" + PLAIN)
    assert rf.scan_file(str(path)).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


CHANGED = "expected a file that stays as it is while it is read, found one that changed; start again"


@pytest.mark.parametrize(
    "now",
    [asked(offset=1) + b"\n" + asked(offset=3), asked(offset=1) + b"\n", b"", asked(offset=1) + b"\n" + asked(offset=20) + b"\n"],
    ids=["another request", "a line less", "nothing", "a longer request"],
)
def test_a_file_that_changes_after_it_was_scanned_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: bytes) -> None:
    monkeypatch.setattr(rf, "CHUNK_BYTES", 200)
    path = tmp_path / "requests.jsonl"
    path.write_bytes(asked(offset=1) + b"\n" + asked(offset=2))
    file = rf.scan_file(str(path))
    path.write_bytes(now)
    with pytest.raises(RequestError, match=rf"requests.jsonl, line \d: {CHANGED}"):
        [*chain.from_iterable(read_chunk(file.path, chunk) for chunk in file.chunks)]
    with pytest.raises(RequestError, match=rf"requests.jsonl, line \d: {CHANGED}"):
        [*chain.from_iterable(read_scenarios(file.path, chunk) for chunk in file.chunks)]


def test_lines_that_come_after_the_scan_are_no_change(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(PLAIN + b"\n")
    file = rf.scan_file(str(path))
    path.write_bytes(PLAIN + b"\n" + PLAIN + b"\n")
    [chunk] = file.chunks
    [found] = read_chunk(file.path, chunk)
    assert (file.lines, len(found)) == (1, 1)


def test_a_header_that_changes_after_the_scan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(HEADER + b"\n" + PLAIN)
    file = rf.scan_lines(str(path))
    path.write_bytes(HEADER.replace(b"{}", b"[]") + b"\n" + PLAIN)
    with pytest.raises(RequestError, match=CHANGED):
        rf.first_line(file)


TAG_LINE = asked(filter={"type": "TAG", "expression": "a"})
OTHERS = {
    "no filter": (PLAIN, False),
    "a TAG": (TAG_LINE, False),
    "a TAG with blanks": (TAG_LINE.replace(b'"type": ', b'"type" \t :  '), False),
    "SQL92": (asked(filter={"type": "SQL92", "expression": "a > 1"}), True),
    "another word": (asked(filter={"type": "tag", "expression": "a"}), True),
    "none": (asked(filter={"type": "", "expression": "a"}), True),
    "escapes in the type": (TAG_LINE.replace(b'"TAG"', b'"\\u0053QL92"'), True),
    "escapes in the key": (TAG_LINE.replace(b'"type": "TAG"', b'"\\u0074ype": "SQL92"'), True),
}


MAXES = {
    "32": (PLAIN, False),
    "0": (asked(maxMsgNums=0), False),
    "a negative number": (asked(maxMsgNums=-5), False),
    "blanks": (PLAIN.replace(b'"maxMsgNums": 32', b'"maxMsgNums"  \t:  32   '), False),
    "before another field": (
        b'{"request": {"maxMsgNums":9,' + PLAIN.removeprefix(b'{"request": {').replace(b', "maxMsgNums": 32', b""),
        False,
    ),
    "100": (asked(maxMsgNums=100), True),
    "2147483647": (asked(maxMsgNums=2**31 - 1), True),
    "escapes in the key": (asked(maxMsgNums=900).replace(b"maxMsgNums", b"\\u006daxMsgNums"), True),
}


@pytest.mark.parametrize(("line", "found"), MAXES.values(), ids=MAXES)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_large_max_is_seen_before_the_file_is_read(line: bytes, found: bool, at: int, tmp_path: Path) -> None:
    lines = [TAG_LINE, PLAIN]
    lines.insert(at, line)
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"\n".join(lines))
    assert [row["maxMsgNums"] > 99 for row in read(path)].count(True) == found
    for size in (rf.CHUNK_BYTES, *range(33, 90)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rf, "CHUNK_BYTES", size)
            assert rf.scan_file(str(path)).has_large_max == found, size


@pytest.mark.parametrize(("line", "found"), OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_filters_that_are_no_tag_are_seen_before_the_file_is_read(line: bytes, found: bool, at: int, tmp_path: Path) -> None:
    lines = [TAG_LINE, PLAIN]
    lines.insert(at, line)
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"\n".join(lines))
    assert rf.scan_file(str(path)).has_other_filters == found
    for size in range(17, 60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rf, "CHUNK_BYTES", size)
            assert rf.scan_file(str(path)).has_other_filters == found, size


@pytest.mark.parametrize(
    ("header", "config"),
    [
        # a recorder names the version unless it is 4.9.3
        ({"loaded": True, "config": {"brokerId": 1}}, {"rulesVersion": "4.9.3", "brokerId": 1}),
        ({"consumeQueueFileMtimesMs": {}}, {"rulesVersion": "4.9.3"}),
        ({"loaded": True, "version": "5.5.0", "config": {}}, {"rulesVersion": "5.5.0"}),
        ({"version": "4.9.8"}, {"rulesVersion": "4.9.8"}),
        # a store that was not loaded answers null
        ({"loaded": False, "version": "5.5.0"}, {"rulesVersion": "5.5.0", "readable": False}),
        # people write headers too
        ({"config": {"brokerId": 1}}, {"brokerId": 1}),
        ({"config": {}}, {}),
        ({"config": 5, "version": "5.5.0"}, 5),
        ({}, None),
        (None, None),
    ],
)
def test_a_header_gives_settings_and_the_version_of_its_recorder(header: dict[str, object] | None, config: object) -> None:
    assert rf.header_config(header) == config
