"""Pull requests in Parquet files, in both forms: the same requests as in lines of JSON; a row that is no request is named."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.requests import parquet_requests, request_file
from pipeline.requests.parquet_requests import scan_rows
from pipeline.requests.request_file import request_bytes, scan_file
from pipeline.requests.request_lines import RequestError, read_lines
from pipeline.requests.request_source import lines_of_chunk, read_chunk
from tests.runs.sampling import examples

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
FILTERS = st.none() | st.fixed_dictionaries(
    {"type": st.sampled_from(["TAG", "SQL92"]), "expression": st.none() | TEXTS, "registered": st.none() | st.booleans()}
)
REQUESTS = st.fixed_dictionaries(
    {"group": TEXTS, "topic": TEXTS, "queueId": INTS, "offset": LONGS, "maxMsgNums": INTS, "filter": FILTERS},
    optional={"timestamp": LONGS, "sysFlag": INTS, "suspendTimeoutMillis": LONGS},
)
NESTED = pa.schema(
    {
        "request": pa.struct(
            {
                "filter": pa.struct({"type": pa.string(), "expression": pa.string(), "registered": pa.bool_()}),
                **dict.fromkeys(("group", "topic"), pa.string()),
                **dict.fromkeys(("queueId", "offset", "maxMsgNums", "timestamp", "sysFlag", "suspendTimeoutMillis"), pa.int64()),
            }
        )
    }
)
REQUEST: dict[str, Any] = {"group": "g", "topic": "T", "queueId": 0, "offset": 0, "maxMsgNums": 32, "filter": None}
GOOD: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}


def of_lines(requests: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows that the same requests give in a file of lines."""
    return read_lines("f", 1, b"".join(json.dumps({"request": one}).encode() + b"\n" for one in requests))


def without_lines(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.drop_columns(["line"]).to_pylist()]


@given(requests=st.lists(REQUESTS, min_size=1, max_size=9), group=st.integers(1, 9), at_once=st.integers(1, 5), nested=st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_rows_are_the_requests_of_lines(
    tmp_path_factory: pytest.TempPathFactory, requests: list[dict[str, Any]], group: int, at_once: int, nested: bool
) -> None:
    path, expected = str(tmp_path_factory.mktemp("rows") / "pulls"), of_lines(requests)
    table = pa.Table.from_pylist([{"request": one} for one in requests], NESTED) if nested else pa.Table.from_batches([expected])
    pq.write_table(table, path, row_group_size=group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_requests, "ROWS_AT_ONCE", at_once)
        file = scan_file(path)
        assert (file.lines, file.header, request_bytes(path)) == (len(requests), None, 128 * len(requests))
        assert all(chunk.end - chunk.start <= at_once for chunk in file.chunks)
        assert without_lines([batch for chunk in file.chunks for batch in read_chunk(path, chunk)]) == without_lines([expected])
        lines = [lines_of_chunk(path, chunk) for chunk in file.chunks]
    again = [read_lines(path, first, raw) for first, _, raw in lines]
    assert without_lines(again) == without_lines([expected])
    assert file.has_other_filters == any((one["filter"] or {}).get("type") == "SQL92" for one in requests)
    assert file.has_large_max == any(one["maxMsgNums"] > 99 for one in requests)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (pa.Table.from_pylist([{"topic": "T"}]), "line 1: expected a column consumerGroup, found the columns topic"),
        (pa.Table.from_pylist([{"request": {"group": "g"}}]), "line 1: expected a column request.topic, found the columns request"),
        (pa.Table.from_pylist([GOOD | {"queueId": "0"}]), "line 1: expected a column queueId of type int32, found string"),
        (pa.Table.from_pylist([GOOD | {"queueOffset": 0.0}]), "line 1: expected a column queueOffset of type int64, found double"),
        (
            pa.Table.from_pylist([GOOD, GOOD | {"queueId": 2**31}]),
            "expected a column queueId of type int32, found Integer value 2147483648",
        ),
        (pa.Table.from_pylist([GOOD, GOOD | {"topic": None}]), "line 2: expected a value of topic, found NULL"),
        (
            pa.Table.from_pylist([GOOD | {"expression": "a"}]),
            "line 1: expected the type of the filter beside its expression, found NULL",
        ),
        (pa.Table.from_pylist([GOOD | {"subscription": "a"}]), "expected the columns of requests, found subscription, of captured pulls"),
        (pa.Table.from_pylist([{"request": REQUEST | {"filter": "a"}}]), "line 1: expected a struct request.filter, found string"),
        (pa.table([pa.array(["g"]), pa.array(["h"])], names=["topic", "topic"]), "expected columns of different names, found two called"),
        (pa.Table.from_pylist([], pa.schema([])), "line 1: expected at least one request, found an empty file"),
    ],
)
def test_what_is_no_request_is_named(table: pa.Table, text: str, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "pulls")
    with pytest.raises(RequestError, match=text):
        scan_file(str(tmp_path / "pulls"))


def test_a_text_that_is_no_utf_8_is_named(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([GOOD]).drop_columns(["topic"])
    odd = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    pq.write_table(rows.append_column("topic", odd), tmp_path / "pulls")
    with pytest.raises(RequestError, match="expected a column topic of type string, found Invalid UTF8"):
        scan_file(str(tmp_path / "pulls"))


def test_a_file_that_is_cut_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_batches([of_lines([REQUEST])]), tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:-4])
    for read in (scan_file, request_bytes):
        with pytest.raises(RequestError, match="cut, line 1: expected rows of a Parquet file, found Parquet magic bytes not found"):
            read(str(tmp_path / "cut"))
    # what lies in a file of lines that is called as a Parquet file is lines
    (tmp_path / "lines.parquet").write_bytes(json.dumps({"request": REQUEST}).encode())
    assert scan_file(str(tmp_path / "lines.parquet")).lines == 1


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """A memory pool that counts what Arrow takes from now on."""
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counted)
    yield counted
    pa.set_memory_pool(usual)


def long_topics(rows: int, length: int) -> pa.Table:
    """Requests whose topic is the same long text, as a dictionary of one value."""
    topics = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * length]))
    return pa.Table.from_pylist([GOOD] * rows).set_column(1, "topic", topics)


def nested(table: pa.Table) -> pa.Table:
    """The same requests as a column of structs."""
    names = {"consumerGroup": "group", "queueOffset": "offset"}
    values = [table[name].combine_chunks() for name in table.column_names]
    return pa.table({"request": pa.StructArray.from_arrays(values, [names.get(name, name) for name in table.column_names])})


@pytest.mark.parametrize("of", [long_topics, lambda rows, length: nested(long_topics(rows, length))], ids=["flat", "nested"])
def test_a_text_of_many_rows_is_never_in_memory_for_all_of_them(tmp_path: Path, pool: pa.MemoryPool, of: Any) -> None:
    path = str(tmp_path / "pulls")
    pq.write_table(of(4_000, 100_000), path, store_schema=False)
    assert os.path.getsize(path) < 200_000
    file = scan_file(path)
    assert (file.lines, request_bytes(path)) == (4_000, 100_001 * 4_000)
    for chunk in file.chunks:
        [found] = read_chunk(path, chunk)
        assert found["topic"].to_pylist() == ["x" * 100_000] * len(found)
        assert chunk.request_bytes == 100_001 * len(found)
    assert pool.max_memory() < 64 << 20


def test_a_request_with_longer_texts_than_a_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_requests, "LINE_BYTES_MAX", 1_000)
    rows = [GOOD | {"filterType": None}, GOOD | {"topic": "x" * 999}, GOOD | {"topic": "x" * 999, "filterType": "TAG"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "pulls")
    for read in (scan_file, request_bytes):
        with pytest.raises(RequestError, match="line 3: expected a request with texts of at most 1000 bytes, found 1003 bytes"):
            read(str(tmp_path / "pulls"))


def test_a_row_group_that_is_too_large_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_requests, "GROUP_BYTES_MAX", 2_000)
    rows = pa.Table.from_pylist([GOOD | {"other": "x" * 9_000}, GOOD | {"topic": "x" * 1_600}])
    pq.write_table(rows, tmp_path / "pulls", row_group_size=1)
    with pytest.raises(RequestError, match=r"line 2: expected row groups of at most 2,000 bytes, found one of [\d,]+; write it"):
        scan_file(str(tmp_path / "pulls"))


def test_a_column_of_another_type_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)
    pq.write_table(pa.Table.from_pylist([GOOD | {"topic": [[1]]}]), tmp_path / "pulls")
    with pytest.raises(RequestError, match="line 1: expected a column topic of type string, found list"):
        scan_file(str(tmp_path / "pulls"))


def test_a_file_that_takes_more_memory_than_there_is_may_be_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", full)
    pq.write_table(pa.Table.from_pylist([GOOD]), tmp_path / "pulls")
    with pytest.raises(MemoryError):
        scan_file(str(tmp_path / "pulls"))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_texts_of_each_type_are_read(tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.Table.from_pylist([GOOD, GOOD | {"topic": "é"}])
    pq.write_table(table.set_column(1, "topic", table["topic"].cast(kind)), tmp_path / "pulls")
    file = scan_file(str(tmp_path / "pulls"))
    [found] = read_chunk(file.path, file.chunks[0])
    assert (found["topic"].to_pylist(), file.chunks[0].text_bytes) == (["T", "é"], 5)


@pytest.mark.parametrize("seconds", [0, 7])
def test_a_file_that_changes_after_it_was_scanned_is_refused(tmp_path: Path, seconds: int) -> None:
    path = tmp_path / "pulls"
    pq.write_table(pa.Table.from_pylist([GOOD, GOOD | {"queueOffset": 1}]), path)
    file = scan_file(str(path))
    # as long, with other requests; or, where the clock stands still, with more requests
    pq.write_table(pa.Table.from_pylist([GOOD, GOOD | {"queueOffset": 7 if seconds else 2**60}, *[GOOD] * (0 if seconds else 9)]), path)
    before = file.chunks[0].mtime_ns
    assert before is not None
    os.utime(path, ns=(0, before + seconds * 10**9))
    for read in (read_chunk, lines_of_chunk):
        with pytest.raises(RequestError, match="pulls, line 1: expected a file that stays as it is while it is read, found one that"):
            [*read(file.path, file.chunks[0])]


def test_a_file_that_changes_while_it_is_scanned_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pulls"
    pq.write_table(pa.Table.from_pylist([GOOD]), path)

    def rewritten(*of: Any) -> Any:
        pq.write_table(pa.Table.from_pylist([GOOD, GOOD]), path)
        return scan_rows(*of)

    monkeypatch.setattr(request_file, "scan_rows", rewritten)
    with pytest.raises(RequestError, match="expected a file that stays as it is while it is read, found one that changed; start again"):
        scan_file(str(path))


@pytest.mark.parametrize(("former", "now"), [(b"topic", b"\xffopic"), (b"\x15\x04\x19", b"\x0e\x04\x19")], ids=["a name", "a type"])
def test_a_damaged_footer_is_named_in_words_that_can_be_printed(former: bytes, now: bytes, tmp_path: Path) -> None:
    path = tmp_path / "pulls.parquet"
    pq.write_table(pa.Table.from_pylist([GOOD]), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(former, now))
    with pytest.raises(RequestError, match="expected rows of a Parquet file, found") as caught:
        scan_file(str(path))
    assert str(caught.value).isprintable()


def test_a_filter_that_is_always_null_may_be_of_any_type(tmp_path: Path) -> None:
    """Spark reads such a field of JSON as text."""
    request = pa.Table.from_pylist([{"request": REQUEST | {"filter": "a"}}, {"request": REQUEST}]).slice(1)
    pq.write_table(request, tmp_path / "pulls")
    file = scan_file(str(tmp_path / "pulls"))
    assert without_lines([*read_chunk(file.path, file.chunks[0])]) == without_lines([of_lines([REQUEST])])
