"""The last row of a broker is found in the files that may have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.lake.lake import Lake
from pipeline.lake.last_row import last_row
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import tables as t
from store_format.errors import StoreError
from tests.makers.plain_lakes import plain_lake

COLUMNS = ("physicOffset", "storeSize")
# of each broker the rows' physicOffset and storeSize; that of `b` is not the greatest of all
ROWS = {"a": [(7, 1), (900, 2), (40, 3)], "b": [(500, 4), (30, 5)]}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    rows = [
        {"brokerName": broker, "topic": "t", "queueId": at, "physicOffset": offset, "storeSize": size}
        for broker, found in ROWS.items()
        for at, (offset, size) in enumerate(found)
    ]
    return Lake(None, str(plain_lake(tmp_path / "lake", {t.COMMIT_LOG.name: rows})))


@pytest.mark.parametrize(("broker", "last"), [("a", (900, 2)), ("b", (500, 4)), ("c", None)])
def test_it_is_the_greatest_of_the_broker(lake: Lake, broker: str, last: tuple[int, int] | None) -> None:
    assert last_row(OpenedBroker(lake, broker), t.COMMIT_LOG, COLUMNS) == last


def test_a_table_that_was_never_written_has_none(lake: Lake) -> None:
    assert last_row(OpenedBroker(lake, "a"), t.CONSUME_QUEUE_SEGMENT, ("segment",)) is None


def test_a_damaged_file_is_named(lake: Lake) -> None:
    for file in Path(lake.path(t.COMMIT_LOG.name)).rglob("*.parquet"):
        file.write_bytes(b"no parquet")
    with pytest.raises(StoreError, match="expected a Parquet file of the table"):
        last_row(OpenedBroker(lake, "a"), t.COMMIT_LOG, COLUMNS)
