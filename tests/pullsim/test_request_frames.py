"""Frames of pull requests, before Spark sees them: types and times that are taken, and what is refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pullsim.request_frames import RequestFrameError, _table

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
    ],
)
def test_values_of_other_types_are_refused(column: str, values: Any, told: str) -> None:
    with pytest.raises(RequestFrameError, match=told):
        _table(pa.table(REQUEST | {column: values}))


def test_a_frame_without_rows_is_refused_as_an_empty_file_is() -> None:
    with pytest.raises(RequestFrameError, match="expected at least one request, found a frame without rows"):
        _table(pd.DataFrame(REQUEST)[:0])
