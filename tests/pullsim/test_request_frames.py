"""Frames of pull requests, before Spark sees them: types and times that are taken, and what is refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pipeline.requests.request_lines import RequestError
from pullsim.request_frames import RequestFrameError, _as_rows_of_the_frame, _table

REQUEST = {"group": ["g", "g"], "topic": ["t", "t"], "queueId": [0, 1], "offset": [5, 6]}
TIMES = [dt.datetime(2024, 5, 1, 12, 0, 0, 123_999, dt.UTC), None]
MILLIS = [1_714_564_800_123, None]


@pytest.mark.parametrize(
    "given",
    [
        pl.DataFrame(REQUEST | {"timestamp": TIMES}),
        pl.DataFrame(REQUEST | {"timestamp": TIMES}).with_columns(pl.col("timestamp").dt.cast_time_unit("ns")),
        pd.DataFrame(REQUEST | {"timestamp": pd.Series(TIMES).dt.tz_convert("Asia/Tokyo")}),
        pd.DataFrame(REQUEST | {"timestamp": pd.Series(TIMES).dt.tz_localize(None)}).set_index(pd.Index([7, 9])),
        pd.DataFrame(REQUEST | {"timestamp": MILLIS}).astype({"topic": "category"}),  # doubles, because of the NULL
        pa.table(REQUEST | {"timestamp": MILLIS}),
    ],
)
def test_times_and_texts_of_each_form_are_those_of_a_request(given: Any) -> None:
    found = _table(given)
    assert found.to_pydict() == REQUEST | {"timestamp": MILLIS}
    assert found.schema.types == [pa.string(), pa.string(), *[pa.int64()] * 3]


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("queueId", [True, False], "column queueId: expected values of type int64, found bool"),
        ("queueId", TIMES, "column queueId: expected values of type int64, found timestamp"),
        ("offset", ["1", "2"], "column offset: expected values of type int64, found string"),
        ("offset", [1.5, 2.0], "column offset: expected values of type int64, found others"),
        ("offset", pa.array([2**63, 1], pa.uint64()), "column offset: expected values of type int64, found others"),
        ("group", [1, 2], "column group: expected values of type string, found int64"),
        ("timestamp", pa.array([10**16, 0], pa.timestamp("s")), "column timestamp: expected values of type int64, found others"),
        ("group", ["g", None], r"column group: expected a value in each row, found null in row 1 \(the first is 0\)"),
        ("offset", pa.nulls(2), "column offset: expected a value in each row, found null in row 0"),
        ("topic", pa.DictionaryArray.from_arrays(pa.nulls(2, pa.int8()), pa.nulls(0)), "column topic: expected"),
    ],
)
def test_values_of_other_types_are_refused(column: str, values: Any, told: str) -> None:
    with pytest.raises(RequestFrameError, match=told):
        _table(pa.table(REQUEST | {column: values}))


def test_a_frame_without_rows_is_refused_as_an_empty_file_is() -> None:
    with pytest.raises(RequestFrameError, match="expected at least one request, found a frame without rows"):
        _table(pd.DataFrame(REQUEST)[:0])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (pd.DataFrame(REQUEST | {"queueId": pd.Series([1, "x"], dtype=object)}), "found DataFrame .*column queueId"),
        (pd.DataFrame(REQUEST | {"topic": ["t", "\ud800"]}), "found DataFrame .*surrogates not allowed"),
        (pd.DataFrame(REQUEST | {"offset": pd.arrays.SparseArray(np.array([1, 2]))}), "found DataFrame .*[Ss]parse"),
        (pd.DataFrame([["g", "t", 0, 0, 1]], columns=[*REQUEST, "offset"]), r"found DataFrame \(Duplicate column names.*offset"),
        (
            pa.Table.from_arrays([*pa.table(REQUEST).columns, pa.array([1, 2])], [*REQUEST, "offset"]),
            "each column once, found offset 2 times",
        ),
        (7, r"expected a path, or a frame of pandas, Polars, Arrow or Spark, found int \("),
    ],
)
def test_what_arrow_does_not_take_for_a_table_is_refused_with_the_cause(given: Any, told: str) -> None:
    with pytest.raises(RequestFrameError, match=told):
        _table(given)


def test_seconds_are_taken() -> None:
    found = _table(pa.table(REQUEST | {"timestamp": pa.array([5, -5], pa.timestamp("s"))}))
    assert found["timestamp"].to_pylist() == [5000, -5000]


def test_an_error_of_a_line_names_no_file_that_is_gone() -> None:
    error = RequestError("lake/_requests-x/requests.jsonl", 3, 'a text in "group"', "null")
    in_worker = RuntimeError(f"An exception was thrown:\n  File x\nmodule.RequestError: {error}\npullsim: exit code 2\n")
    for raised in (error, in_worker):
        with pytest.raises(RequestFrameError) as told, _as_rows_of_the_frame("lake/_requests-x/requests.jsonl"):
            raise raised
        assert str(told.value) == 'requests, line 3: expected a text in "group", found null'
    with pytest.raises(RuntimeError, match="another"), _as_rows_of_the_frame("lake/_requests-x/requests.jsonl"):
        raise RuntimeError("another")
