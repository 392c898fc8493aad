"""The rows of a small batch, which the driver answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa

from pipeline.stream.batch_rows import DriverRows
from pipeline.stream.request_stream import LINES_A_FILE
from pipeline.stream.stream_run import StreamRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUN = StreamRun(run_id="r", checkpoint="c", lake="l", broker="b", source="in", at="snapshot", settings={})


class Batch:
    """The rows of a batch, as Spark gives them."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def limit(self, _count: int) -> Batch:
        return self

    def toArrow(self) -> pa.Table:
        return self.rows


def test_requests_of_the_nine_thousandth_file_keep_their_lines_beside_a_bad_line() -> None:
    lines = [1, 2, 3, 2**32 + 1]
    columns = {
        "seq": pa.array([9000 * LINES_A_FILE + line for line in lines] + [None], pa.int64()),
        "topic": pa.array(["T"] * len(lines) + [None], pa.string()),
        "error": pa.array([None] * len(lines) + ["no request"], pa.string()),
        "frame": pa.nulls(len(lines) + 1),
        "sourceDigest": pa.array(["d" * 64] * (len(lines) + 1)),
    }
    found = DriverRows.of(RUN, cast("DataFrame", Batch(pa.table(columns))))
    assert found is not None
    assert found.rows["requestId"].to_pylist() == [*(f"{'d' * 16}-{line}" for line in lines), None]
