"""What must hold for any bytes of captures, request files and expressions: the targets of fuzzing that read no store."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pipeline.capture.capture_job import _schema
from pipeline.capture.connection import Connection
from pipeline.capture.packets import Bad, Packet, read_packets
from pipeline.capture.segments import PackedSegments, any_segment, pack_segments, plain_segment
from pipeline.requests.parquet_requests import as_lines, rows_of, scan_rows
from pipeline.requests.request_file import header_config, header_if_any
from pipeline.requests.request_lines import read_good_lines
from pipeline.schema.arrow_types import arrow_of
from pipeline.settings.settings import BrokerSettings
from store_format.remoting.command import RemotingCommand
from store_format.remoting.frame import encode_frame
from tests.makers.captured_connections import answer, pull
from tests.makers.captures import ACK, ETHERNET, FIN, IPV6_LINK, RAW, START, SYN, Sent, block, enhanced, interface, option, pcap, section
from tests.runs.fuzz_files import place
from udfs.filters.sql92 import Compiled, EvaluationError, compile_expression
from udfs.filters.sql92_columns import Texts
from udfs.filters.tags import SubscriptionParseError, parse_subscription, tag_matches

# captures -----------------------------------------------------------------------------------------------------------------------------


@cache
def _packets(kind: int) -> list[tuple[int, bytes]]:
    """A connection from its SYN to its FIN: a pull in two segments, its answer, an offset that is stored, and a heartbeat."""
    asked = pull(5, commitOffset="3") + pull(6, code=15)
    group = {"groupName": "g", "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}
    heard = encode_frame(RemotingCommand(code=34, opaque=7, body=json.dumps({"clientID": "c", "consumerDataSet": [group]}).encode()))
    sent = [
        Sent(True, 99, flags=SYN),
        Sent(False, 499, flags=SYN | ACK, ack=100),
        Sent(True, 100, asked[:40], ack=500),
        Sent(True, 140, asked[40:], ack=500),
        Sent(False, 500, answer(5, b"x" * 30), ack=100 + len(asked)),
        Sent(True, 100 + len(asked), heard, ack=700),
        Sent(True, 100 + len(asked) + len(heard), flags=FIN | ACK, ack=700),
    ]
    return [(START + 1000 * number, one.packet(kind)) for number, one in enumerate(sent)]


@cache
def pcap_seeds() -> list[bytes]:
    """Captures of both byte orders, resolutions and of some link layers."""
    packets = _packets(ETHERNET)
    modified = b"\xa1\xb2\xcd\x34" + pcap(packets, order=">")[4:]
    other = [pcap(_packets(kind), kind=kind) for kind in (RAW, IPV6_LINK)]
    return [pcap(packets), pcap(packets, order=">", nano=True), pcap(packets, snaplen=90), modified, *other, pcap([])]


@cache
def pcapng_seeds() -> list[bytes]:
    """Captures with interfaces of several clocks, blocks of each kind, and two sections."""
    found = []
    for order in ("<", ">"):
        nanos = option(9, b"\x09", order) + option(14, bytes(8), order) + option(0, b"", order)
        blocks = [enhanced(number % 2, micros, packet, order) for number, (micros, packet) in enumerate(_packets(ETHERNET))]
        simple = block(3, bytes(4) + _packets(ETHERNET)[2][1], order)
        found.append(b"".join([section(order), interface(order=order), interface(ETHERNET, nanos, order), *blocks, simple]))
    return [*found, found[0] + found[1]]


def use_capture(raw: bytes) -> None:
    """Check that packets are numbered, parts lie in the file, both readers of segments agree, and each row fits into its table."""
    packets = list(read_packets(io.BytesIO(raw), "x.pcap"))
    good = [one for one in packets if isinstance(one, Packet)]
    assert [one.number for one in good] == list(range(len(good)))
    assert all(0 <= one.position <= len(raw) for one in packets)
    names: dict[tuple[bytes, int], str] = {}
    for one in good:
        plain = plain_segment(one, names)
        assert plain is None or plain == any_segment(one, names)
    rows = list(_rows(packets))
    assert not rows or pa.RecordBatch.from_pylist(rows, schema=_row_schema()).num_rows == len(rows)


@cache
def _row_schema() -> pa.Schema:
    return arrow_of(_schema())


def _rows(packets: Iterable[Packet | Bad]) -> Iterator[Mapping[str, object]]:
    packed = sorted(
        (one for one in pack_segments(packets) if isinstance(one, PackedSegments)), key=lambda one: (one.connection, one.number)
    )
    connections: dict[tuple[str, str], Connection] = {}
    for one in packed:
        connection = connections.setdefault(one.connection, Connection(one.connection, "d" * 64))
        yield from ({"kind": kind, kind: row} for kind, row in connection.feed(one))
    for connection in connections.values():
        yield from ({"kind": kind, kind: row} for kind, row in connection.end())


# request files ------------------------------------------------------------------------------------------------------------------------

REQUEST_WORDS = (
    *(b'"%s":' % name for name in (b"request", b"response", b"filter", b"group", b"topic", b"queueId", b"offset", b"maxMsgNums")),
    *(b'"%s":' % name for name in (b"timestamp", b"sysFlag", b"suspendTimeoutMillis", b"maxOffset", b"kind", b"config", b"version")),
    *(
        b"null",
        b"true",
        b"1e3",
        b"1.0",
        b"-0",
        b"NaN",
        b"Infinity",
        b"\\ud83d",
        b"\\u0074",
        b"\n",
        b"\r\n",
        b"\xef\xbb\xbf",
        b"{}",
        b"[[[[",
    ),
    *(b"9223372036854775807", b"9223372036854775808", b"2147483648", b'{"type":"TAG"}', b'{"type":"SQL92","expression":"a = 1"}'),
)


@cache
def request_seeds() -> list[bytes]:
    """Files with and without a header, with filters of both types and with recorded answers."""
    request = {"group": "g", "topic": "T", "queueId": 0, "offset": 0, "maxMsgNums": 32, "filter": None}
    chosen = {
        "filter": {"type": "SQL92", "expression": "a > 1", "registered": True},
        "timestamp": 5,
        "sysFlag": 2,
        "suspendTimeoutMillis": 9,
    }
    lines = [
        {"kind": "trace", "version": "5.5.0", "loaded": True, "config": {"maxTransferCountOnMessageInMemory": 32}},
        {"request": request},
        {"request": request | chosen, "response": {"maxOffset": 7}},
        {"request": request | {"filter": {"type": "TAG", "expression": "TagA || \u6807"}}},
    ]
    texts = [json.dumps(line, ensure_ascii=False).encode() for line in lines]
    return [b"\n".join(texts), b"\n".join(texts[1:]) + b"\n", b"\r\n".join(texts[1:2] * 3), texts[2].replace(b" ", b"")]


def use_requests(raw: bytes) -> None:
    """Check that lines read one by one equal lines read at once, and that each line is a request, a bad line or blank."""
    header = header_if_any("x.jsonl", raw.split(b"\n", 1)[0])
    if header is not None:
        BrokerSettings.from_sources(header=header_config(header), header_where="x.jsonl, line 1")
    lines = raw.split(b"\n")
    found, bad = read_good_lines("x.jsonl", 1, raw)
    assert {one.raw for one in bad} <= set(lines)
    assert len(found) + len(bad) == sum(1 for line in lines if line.strip())
    for one in bad:
        assert str(one.error).isprintable(), str(one.error)
        assert len(str(one.error)) < 1500
        assert raw[one.position : one.position + len(one.raw)] == one.raw
    # a bad line at the end makes each line be parsed alone
    one_by_one, worse = read_good_lines("x.jsonl", 1, raw + b"\n-")
    assert len(worse) == len(bad) + 1
    assert one_by_one.equals(found)


@cache
def parquet_seeds() -> list[bytes]:
    """Files of requests as columns and nested, of several row groups, pages, encodings and compressions."""
    rows = pa.Table.from_batches([read_good_lines("x.jsonl", 1, request_seeds()[1])[0]]).drop_columns(["seq", "line"])
    nested = [json.loads(line) for line in request_seeds()[1].splitlines()]
    tables = [rows, pa.concat_tables([rows] * 50), pa.Table.from_pylist(nested), rows.slice(0, 0)]
    ways: list[dict[str, Any]] = [
        {"row_group_size": 2, "compression": "none"},
        {"compression": "zstd", "use_dictionary": False, "data_page_size": 200},
        {"data_page_version": "2.0", "compression": "snappy", "write_page_checksum": True},
    ]
    return [_parquet(table, way) for table in tables for way in ways]


def _parquet(table: pa.Table, way: dict[str, Any]) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, **way)
    raw: bytes = buffer.getvalue().to_pybytes()
    return raw


def use_parquet(raw: bytes) -> None:
    """Check that the rows of a file are refused, or are the same requests as their rows written as lines."""
    path = str(place("x.parquet"))
    Path(path).write_bytes(raw)
    local = pafs.LocalFileSystem()
    for rows in scan_rows(local, path, path)[0]:
        requests = rows_of(local, path, path, rows)
        assert requests.num_rows == rows.end - rows.start
        found, bad = read_good_lines(path, rows.first, as_lines(requests))
        assert found.num_rows + len(bad) == requests.num_rows
        if not bad:
            assert found.drop_columns("line").equals(requests.drop_columns("line"))


# filters of subscriptions -------------------------------------------------------------------------------------------------------------

SQL_WORDS = (
    *(
        b"NOT ",
        b" AND ",
        b" OR ",
        b" BETWEEN ",
        b" IN ",
        b"TRUE",
        b"FALSE",
        b"NULL",
        b" IS ",
        b" CONTAINS ",
        b" STARTSWITH ",
        b" ENDSWITH ",
    ),
    *(b"(", b")", b"=", b"<>", b"<=", b">", b",", b"-", b"+", b"'", b"''", b"/*", b"*/", b"--", b"\n", b"a", b"b", b"missing", b"\xff"),
    *(b"0", b"1", b"5L", b"1.5e3", b".5", b"1e400", b"2147483648", b"9223372036854775808", b"0x10", b"\xf0\x9f\x9a\x80", b"\xed\xa0\x80"),
)
_MESSAGES: tuple[dict[str, str], ...] = (
    {},
    {"a": "1", "b": "x"},
    {"a": "1.5e3", "b": "1"},
    {"a": "true", "b": "true"},
    {"a": "-9223372036854775808", "b": "9223372036854775808"},
    {"a": "NaN", "b": "0x1p3"},
    {"a": "", "b": "\U0001f680\u6807"},
)


def sql92_seeds() -> list[bytes]:
    return [
        b"a > 1 AND b = 'x'",
        b"NOT (a BETWEEN 1 AND 5L) OR b IN ('x', 'it''s', '') OR c IS NOT NULL",
        b"-(a > 1) = TRUE AND a <> .5e1 /* c */ --c\n OR a <= b",
        b"a NOT CONTAINS 'x' AND b STARTSWITH '1' OR b ENDSWITH '\xe6\xa0\x87'",
        b"((((a = 1))))" + b" OR a = 2" * 30,
    ]


def use_sql92(raw: bytes) -> None:
    """Check that an expression compiles or says why not, and that messages get the same result together as one by one."""
    text = _text(raw)
    columns = {name: Texts.of([message.get(name) for message in _MESSAGES]) for name in ("a", "b")}
    for text_operators in (False, True):
        compiled = compile_expression.__wrapped__(text, text_operators=text_operators)
        if not isinstance(compiled, Compiled):
            assert str(compiled)
            continue
        codes = compiled.matches_many(columns, len(_MESSAGES)).tolist()
        assert codes == [_code(compiled, message) for message in _MESSAGES]


def _text(raw: bytes) -> str:
    """The text of bytes; halves of surrogate pairs, which JSON can escape, are kept."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _code(compiled: Compiled, message: dict[str, str]) -> int:
    try:
        value = compiled.evaluate(message)
    except EvaluationError:
        return -2
    return -1 if value is None else int(value)


def use_subscription(raw: bytes) -> None:
    """Check that a TAG subscription is parsed or refused, and that its own tags match it."""
    text = raw.decode("utf-8", "replace")
    try:
        codes = parse_subscription(text)
    except SubscriptionParseError:
        if text.replace("||", ""):
            raise
        return
    assert tag_matches(codes, None)
    assert codes is None or all(tag_matches(codes, code) for code in codes)
