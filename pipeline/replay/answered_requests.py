"""The lines of a request file with their answers: written to a file in the order of the lines, and compared with the recorded answers.

A task takes the answers to a range of lines, sorted by line, reads these lines from the file, and puts each answer into its line. So
the lines do not pass through Spark, and a task keeps one chunk of lines in memory.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.files.json_text import json_text
from pipeline.files.output_file import PART, OutputFile, join_parts, write_part
from pipeline.replay.answer_lines import response_json
from pipeline.requests.request_file import RequestFile
from pipeline.requests.request_lines import RequestError
from pipeline.requests.request_source import lines_of_chunk
from pipeline.schema.arrow_types import arrow_of
from udfs.pull.pull_rules import PullRules

_SHOWN_DIFFERENCES = 3
_OF_SOME_VERSIONS = ("messageQueueOffset", "filterMessageCount", "coldDataSum")
# kinds of lines for the comparison; a line without an answer has its error code as kind
_SAME, _DIFFER, _UNRECORDED = "same", "differ", "unrecorded"
# position of the row of an answer among the rows of its messages
_ANSWER = -1
_NO_MESSAGES = "[]"
# a line without blanks around it or before its last bracket; what makes `with_response` look closer
_PLAIN_LINE, _RESPONSE_OR_ESCAPE = r"(?s)^\{.*[^ \t\n\v\f\r]\}\n$", r'"response"|\\u'
_JSON = json.JSONDecoder()
_SPACE, _COLON, _COMMA = (re.compile(rf"[ \t\n\r]*{sign}[ \t\n\r]*") for sign in ("", ":", ",?"))
# number of the line, JSON, and error code of an answer
Answer = tuple[int, bytes, str | None]
_RESULT = (
    f"{PART}, answers BIGINT, errors MAP<STRING, BIGINT>, kinds MAP<STRING, BIGINT>, "
    "first ARRAY<STRUCT<number: BIGINT, recorded: STRING, ours: STRING, fields: ARRAY<STRING>>>"
)


class Difference(NamedTuple):
    """A line whose answers differ: its number, the recorded answer and ours as JSON, and the names of the fields that differ."""

    number: int
    recorded: str
    ours: str
    fields: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Result of comparing the simulator's answers ("ours") with the recorded answers.

    Attributes:
        compared: number of lines with both answers.
        differ: number of compared lines whose answers differ in any field.
        unanswered: number of lines without an answer of ours, by error code; they are not compared.
        unrecorded: number of lines without a recorded answer.
        first: the first lines that differ.
    """

    compared: int
    differ: int
    unanswered: dict[str, int]
    unrecorded: int
    first: list[Difference]

    def lines(self) -> list[str]:
        """The comparison as lines to print; the last line has the counts."""
        lines = []
        for number, recorded, ours, fields in self.first:
            lines += [f"line {number} differs in {', '.join(fields)}", f"  recorded: {recorded}", f"  ours:     {ours}"]
        if self.unrecorded:
            lines.append(f"{self.unrecorded} without a recorded answer")
        lines += [f"{count} not answered: {error}" for error, count in sorted(self.unanswered.items())]
        return [*lines, f"{self.compared} compared, {self.differ} differ"]


@dataclass(slots=True)
class _Counts:
    """What is counted while lines and answers are read: answers, errors, kinds of lines, and the first lines that differ."""

    answers: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    first: list[Difference] = field(default_factory=list)

    def comparison(self) -> Comparison:
        kinds = dict(self.kinds)
        differ, same, unrecorded = (kinds.pop(kind, 0) for kind in (_DIFFER, _SAME, _UNRECORDED))
        return Comparison(compared=differ + same, differ=differ, unanswered=kinds, unrecorded=unrecorded, first=self.first)


def write_and_compare(
    file: RequestFile, answers: DataFrame, fragments: DataFrame | None, out: OutputFile | None, *, with_comparison: bool, rules: PullRules
) -> tuple[dict[str | None, int], Comparison | None]:
    """Put answers into the lines of their requests: write the lines to a file, compare the answers with the recorded ones, or both.

    Args:
        file: the request file; `seq` of an answer is the number of its line.
        answers: rows of ANSWER_SCHEMA.
        fragments: their messages, as `message_fragments` gives them; None leaves messages out.
        out: file for the lines that have an answer, in their order; None for none.
        with_comparison: whether to compare.
        rules: of the broker that answered.

    Returns:
        The number of answers by error code (None: without an error), and the comparison; None without one.

    Raises:
        OutputError: driver and executors do not share the folder of `out`.
    """
    lines_a_task = max(-(-(file.lines + 1) // len(file.chunks)), 1)
    response = response_json(messages=None if fragments is None else F.lit(_NO_MESSAGES), rules=rules)
    ours = answers.select("seq", F.lit(_ANSWER).alias("position"), response.cast("BINARY").alias("text"), "error")
    if fragments is not None:
        ours = ours.unionAll(fragments.select("seq", "position", F.col("fragment").cast("BINARY"), F.lit(None).cast("STRING")))
    task = F.expr(f"CAST(seq DIV {lines_a_task} AS INT)")
    of_lines = ours.repartitionById(len(file.chunks), task).sortWithinPartitions("seq", "position")
    parts = None if out is None else out.parts
    found = of_lines.mapInArrow(partial(_of_batches, file, parts, with_comparison), _RESULT).collect()
    return _joined([row.asDict() for row in found], out, with_comparison=with_comparison)


def write_and_compare_here(
    file: RequestFile, answers: Iterable[Answer], out: OutputFile | None, *, with_comparison: bool
) -> tuple[dict[str | None, int], Comparison | None]:
    """As `write_and_compare`, for answers of the driver in the order of their lines."""
    rows = _of_task(file, answers, None if out is None else out.parts, compares=with_comparison).to_pylist()
    return _joined(rows, out, with_comparison=with_comparison)


def _joined(
    rows: list[dict[str, Any]], out: OutputFile | None, *, with_comparison: bool
) -> tuple[dict[str | None, int], Comparison | None]:
    """Join the parts of all tasks into `out`, and return the result of `write_and_compare`; `rows` are the tasks' rows of _RESULT."""
    if out is not None:
        join_parts(rows, out)
    total = _Counts()
    for row in sorted(rows, key=lambda row: int(row["part"])):
        total.answers += row["answers"]
        total.errors.update(dict(row["errors"]))
        total.kinds.update(dict(row["kinds"]))
        total.first += [Difference(*(difference[name] for name in Difference._fields)) for difference in row["first"]]
    del total.first[_SHOWN_DIFFERENCES:]
    without_error = total.answers - total.errors.total()
    errors: list[tuple[str | None, int]] = [*total.errors.items(), *([(None, without_error)] if without_error else [])]
    return dict(errors), total.comparison() if with_comparison else None


def _of_batches(file: RequestFile, parts: str | None, compares: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _of_task(file, _whole_answers(batches), parts, compares=compares)


def _of_task(file: RequestFile, answers: Iterable[Answer], parts: str | None, *, compares: bool) -> pa.RecordBatch:
    """Write and compare the lines of one task; gives one row of _RESULT."""
    counts = _Counts()
    texts = _answered(file, compares, counts, answers)
    part = {"part": 0, "name": "", "size": sum(0 for _ in texts)} if parts is None else write_part(parts, texts)
    first = [difference._asdict() for difference in counts.first]
    row = part | {"answers": counts.answers, "errors": list(counts.errors.items()), "kinds": list(counts.kinds.items()), "first": first}
    return pa.RecordBatch.from_pylist([row], schema=arrow_of(_RESULT))


def _answered(file: RequestFile, compares: bool, counts: _Counts, answers: Iterable[Answer]) -> Iterator[bytes]:
    """The lines with their answers; adds what is found to `counts`."""
    lines = _Lines(file)
    for seq, response, error in answers:
        line = lines.line(seq)
        counts.answers += 1
        if error is not None:
            counts.errors[error] += 1
        if compares:
            _compare(counts, seq, line, response)
        yield with_response(line, response)


def _whole_answers(batches: Iterator[pa.RecordBatch]) -> Iterator[Answer]:
    """Each answer with its messages, from answers that precede the fragments of their messages."""
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    for seq, of_line in groupby(rows, itemgetter(0)):
        (_, _, response, error), *messages = of_line
        yield seq, _with_messages(response, [text for _, _, text, _ in messages]), error


def _with_messages(response: bytes, fragments: list[bytes]) -> bytes:
    """The answer with its messages in place of an empty list, its last field."""
    return b"%s%s]}" % (response.removesuffix(b"]}"), b",".join(fragments)) if fragments else response


def lines_with_answers(file: RequestFile, seqs: pa.Array, texts: pa.Array) -> Iterator[bytes]:
    """Yield the lines with the numbers `seqs`, each with its answer as the last field, in pieces of one or more lines.

    Args:
        file: the request file.
        seqs: numbers of lines, in their order.
        texts: the JSON of the answers.

    Raises:
        RequestError: the file cannot be read, or was changed since the requests were read.
    """
    numbers = seqs.to_numpy()
    for chunk in file.chunks:
        first, _, raw = lines_of_chunk(file.path, chunk)
        lines = _split_lines(raw)
        start, end = np.searchsorted(numbers, [first, first + len(lines)]).tolist()
        answered = lines.take(pa.array(numbers[start:end] - first))
        yield from _with_responses(answered, texts.slice(start, end - start))
        numbers, texts = numbers[end:], texts.slice(end)
    if len(numbers):
        raise RequestError(file.path, int(numbers[0]), "the line that was read before", "a file that was changed meanwhile")


def _split_lines(raw: bytes) -> pa.Array:
    """The lines in the bytes of a chunk, with their ends."""
    whole = raw if raw.endswith(b"\n") or not raw else raw + b"\n"
    ends = np.flatnonzero(np.frombuffer(whole, np.uint8) == ord("\n")) + 1
    offsets = np.append(0, ends).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(whole)])


def _with_responses(lines: pa.Array, texts: pa.Array) -> Iterator[bytes]:
    """Yield the lines with their answers, as `with_response` makes them, in pieces of one or more lines."""
    if not len(lines):
        return
    plain = pc.and_not(pc.match_substring_regex(lines, _PLAIN_LINE), pc.match_substring_regex(lines, _RESPONSE_OR_ESCAPE))
    if not pc.all(plain).as_py():
        yield from (with_response(line, text.encode()) for line, text in zip(lines.to_pylist(), texts.to_pylist(), strict=True))
        return
    joined = pc.binary_join_element_wise(pc.binary_slice(lines, 0, -2), b',"response":', texts.cast(pa.binary()), b"}\n", b"")
    _, offsets, content = joined.buffers()
    yield content.slice(0, int(np.frombuffer(offsets, np.int32)[len(joined)])).to_pybytes()


class _Lines:
    """The lines of a request file by their numbers; keeps the chunk that was read last."""

    def __init__(self, file: RequestFile) -> None:
        self._path, self._chunks = file.path, file.chunks
        self._starts = [chunk.first_line for chunk in file.chunks]
        self._first, self._lines = 0, list[bytes]()

    def line(self, number: int) -> bytes:
        """The line with this number, without its end.

        Raises:
            RequestError: the file cannot be read, or was changed since the requests were read.
        """
        if not 0 <= number - self._first < len(self._lines):
            self._first, _, raw = lines_of_chunk(self._path, self._chunks[bisect_right(self._starts, number) - 1])
            self._lines = raw.removesuffix(b"\n").split(b"\n")
            if not 0 <= number - self._first < len(self._lines):
                raise RequestError(self._path, number, "the line that was read before", "a file that was changed meanwhile")
        return self._lines[number - self._first]


def with_response(line: bytes, response: bytes) -> bytes:
    """The line, with its end, with `response` (JSON) as its last field; all other bytes stay as they are."""
    content = line.strip()
    if b'"response"' in content or b"\\u" in content:
        content = _without_response(content.decode()).encode()
    return b'%s,"response":%s}\n' % (content[:-1].rstrip(), response)


def _without_response(line: str) -> str:
    """The text of a JSON object, without its field "response" if it has one."""
    ended, at = 1, _after(_SPACE, line, 1)
    while line[at] == '"':
        name, end = _JSON.raw_decode(line, at)
        _, end = _JSON.raw_decode(line, _after(_COLON, line, end))
        following = _after(_COMMA, line, end)
        if name == "response":
            return line[:ended] + line[end:] if line[following] == "}" else line[:at] + line[following:]
        ended, at = end, following
    return line


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    """The position after the match of `pattern` that begins at `at`; `at` if there is no match."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _compare(counts: _Counts, number: int, line: bytes, response: bytes) -> None:
    """Compare our answer with the recorded answer in its line."""
    recorded_line, ours = json.loads(line), json.loads(response)
    if "response" not in recorded_line:
        counts.kinds[_UNRECORDED] += 1
        return
    if ours is not None and "error" in ours:
        counts.kinds[ours["error"]] += 1
        return
    recorded = recorded_line["response"]
    fields = differing_fields(recorded, ours)
    counts.kinds[_DIFFER if fields else _SAME] += 1
    if fields and len(counts.first) < _SHOWN_DIFFERENCES:
        counts.first.append(Difference(number, json_text(recorded), response.decode(), fields))


def differing_fields(recorded: Any, ours: Any) -> list[str]:
    """Names of the fields in which two answers differ.

    Exceptions are compared by class only. Messages are compared only if our answer has them, and fields that some versions lack only if
    both answers have them.
    """
    if not isinstance(recorded, dict) or not isinstance(ours, dict):
        return [] if recorded == ours else ["response"]
    if "exception" in recorded or "exception" in ours:
        return [] if recorded.get("exception") == ours.get("exception") else ["exception"]
    left_out = {name for name in _OF_SOME_VERSIONS if name not in recorded or name not in ours}
    names = (recorded.keys() | ours.keys()) - left_out - (set() if "messages" in ours else {"messages"})
    missing = object()
    return sorted(name for name in names if recorded.get(name, missing) != ours.get(name, missing))
