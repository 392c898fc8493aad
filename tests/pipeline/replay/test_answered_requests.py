"""Answers are added to the lines of their requests: lines keep their other fields, and files of several chunks keep their order."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.replay.answered_requests import _compare, _Counts, lines_with_answers, with_response
from pipeline.requests import request_file
from pipeline.requests.request_file import scan_file
from pipeline.requests.request_lines import RequestError
from tests.runs.replaying import DEMO_TRACE, all_lines, demo_data, lake_of, read_lines, run, write_lines
from tests.runs.sampling import ALL, slow_proof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = b'{"status":"FOUND"}'
LINES = {
    "a request alone": '{"request": {"topic": "T"}}',
    "a carriage return": '{"request": {"topic": "T"}}\r',
    "a recorded answer": '{"request": {"topic": "T"}, "response": {"status": "NO_MATCHED_MESSAGE"}, "id": 7}',
    "a recorded answer under an escaped name": '{"request": {"topic": "T"}, "\\u0072esponse": null}',
    "other fields, one with that name inside": '{"id": {"response": 1}, "request": {"topic": "T", "response": 2}}',
    "no ASCII": '{"request": {"topic": "T"}, "note": "\u4e2d\u6587"}',
    "half of a surrogate pair": '{"request": {"topic": "T"}, "note": "\\ud800"}',
}


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        (b'{ "a" : 1e400 , "request":{"x": 1.50} }', b'{ "a" : 1e400 , "request":{"x": 1.50}'),
        (
            b'{"a": 1e400, "request":{}, "response" : {"x": [1, {}]}, "id": 12345678901234567.890}',
            b'{"a": 1e400, "request":{}, "id": 12345678901234567.890',
        ),
        (b'{"response": null ,"request": {"note": "\\ud800\\u00e9"}}', b'{"request": {"note": "\\ud800\\u00e9"}'),
        (
            b'{"request": {"response": "}"}, "id": "\\"response\\"" , "response": "a" }',
            b'{"request": {"response": "}"}, "id": "\\"response\\""',
        ),
        (b'{"request": {}, "resp\\u006fnse": 1.0, "\\u0061": "\xc3\xa9"}', b'{"request": {}, "\\u0061": "\xc3\xa9"'),
    ],
)
def test_all_bytes_but_those_of_the_response_are_copied(line: bytes, copied: bytes) -> None:
    assert with_response(line, OURS) == copied + b',"response":' + OURS + b"}\n"


PLAIN = st.sampled_from(['{"request":{}}', '{"request":{"topic":"T"},"note":"\u4e2d"}', '{"x":{"y":[1]}}'])
SPACED = [' {"request":{}}', '{"request":{}} ', '{"request":{} }', '{"request":{}}\r', '{"a":"}\\n"}']
ODD = st.sampled_from([*LINES.values(), *SPACED])


@given(st.lists(PLAIN | ODD, min_size=1, max_size=12), st.integers(1, 40), st.booleans(), st.booleans(), st.data())
def test_many_lines_at_once_get_what_each_would_get(
    lines: list[str], chunk_bytes: int, ended: bool, headed: bool, data: st.DataObject
) -> None:
    header = ['{"kind":"trace","config":{}}'] if headed else []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        path = Path(folder) / "requests.jsonl"
        path.write_bytes(("\n".join([*header, *lines]) + ("\n" if ended else "")).encode())
        patched.setattr(request_file, "_LEAST_CHUNK_BYTES", chunk_bytes)
        file = scan_file(str(path))
        chosen = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
        seqs = [number for number, one in enumerate(chosen, 1 + len(header)) if one]
        texts = [f'{{"status":"é{seq}"}}' for seq in seqs]
        found = b"".join(lines_with_answers(file, pa.array(seqs, pa.int64()), pa.array(texts, pa.string())))
    told = zip((line for line, one in zip(lines, chosen, strict=True) if one), texts, strict=True)
    assert found == b"".join(with_response(line.encode(), text.encode()) for line, text in told)


def test_a_file_that_was_cut_meanwhile_is_told(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "requests.jsonl", [{"request": {}}] * 3)
    file = scan_file(str(path))
    with pytest.raises(RequestError, match="line 5: expected the line that was read before, found a file that was changed meanwhile"):
        list(lines_with_answers(file, pa.array([1, 5]), pa.array(["1", "5"])))


def test_a_recorded_answer_with_half_of_a_surrogate_pair_is_compared_and_shown() -> None:
    counts = _Counts()
    _compare(counts, 7, b'{"request": {}, "response": {"status": "\\ud800"}}', OURS)
    [difference] = counts.comparison().first
    assert difference == (7, '{"status": "\\ud800"}', OURS.decode(), ["status"])


@pytest.mark.parametrize("kind", LINES)
def test_a_line_keeps_all_its_fields_but_the_response(kind: str) -> None:
    written = with_response(LINES[kind].encode(), OURS)
    assert written.endswith(b"}\n")
    assert written.count(b"\n") == 1
    assert b"\r" not in written
    assert json.loads(written) == json.loads(LINES[kind]) | {"response": json.loads(OURS)}


@slow_proof
def test_a_file_of_chunks_is_answered_in_order(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    demo = demo_data(tmp_path_factory)
    header, *recorded = all_lines(demo / DEMO_TRACE)
    asked = [line | {"note": f"{number} {'-' * 20_000}"} for number, line in enumerate(recorded[:200])]
    requests, out = tmp_path / "requests.jsonl", tmp_path / "out"
    # blank lines have numbers, but no answers
    requests.write_text("\n\n".join(json.dumps(line) for line in [header, *asked]), encoding="utf-8")
    assert len(scan_file(str(requests)).chunks) > 2
    done = run(lake_of(spark, demo / "cleaned", tmp_path_factory), requests, out=str(out), compare=True)
    assert done.comparison is not None
    assert (done.requests, done.comparison.compared, done.comparison.differ) == (200, 200, 0)
    assert [line["note"] for line in read_lines(out)] == [line["note"] for line in asked]


def test_a_message_that_no_table_has_is_named(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.main import judged
    from pipeline.replay import answer_texts, message_texts

    demo = demo_data(tmp_path_factory)
    asked = next(line for line in read_lines(demo / DEMO_TRACE) if line["response"].get("messages"))
    lost = asked["response"]["messages"][0]
    delivered = message_texts.delivered
    monkeypatch.setattr(message_texts, "delivered", lambda broker: delivered(broker).where(f"physicOffset <> {lost['physicOffset']}"))
    requests = write_lines(tmp_path / "requests.jsonl", [all_lines(demo / DEMO_TRACE)[0], asked])
    monkeypatch.setattr(answer_texts, "delivered_at", lambda *_: iter(()))
    for by_spark in (False, True) if ALL else (False,):
        with pytest.raises(Exception, match="expected a record") as error:
            run(lake_of(spark, demo / "cleaned", tmp_path_factory), requests, out=str(tmp_path / "out"), by_spark=by_spark)
        assert "LostMessageError" in repr(error.value)
        code, text = judged(error.value)
        assert code == 2
        assert f"a record of {lost['storeSize']} bytes at commit log offset {lost['physicOffset']}" in text
        assert not (tmp_path / "out").exists()
