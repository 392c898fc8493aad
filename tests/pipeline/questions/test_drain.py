"""Chains of pulls followed through queue files, without Spark: the numbers of pulls, counted by hand, and chains that get stuck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.questions.drain import DONE, OPEN, STUCK, drained_rows
from tests.makers.made_store import Record, make_store
from tests.models.without_spark import Row, Tables, blocks_of, rows_of, tables_of

# entries 0 to 1999 stand in the first file, the others in the second one; every seventh has TagA
ENTRIES, A_FILE = 2100, 2000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    records = (Record(tag="TagA" if number % 7 == 0 else "TagB", body=b"") for number in range(ENTRIES))
    return tables_of(make_store(tmp_path_factory.mktemp("made") / "s", records, log_file=1 << 20, queue_file=A_FILE * 20).path)


def followed(tables: Tables, offset: int, end: int, expression: str | None = None, *, at_a_time: int = 32, **config: Any) -> Row:
    """One chain through the file that it starts in."""
    wanted = None if expression is None else {"type": "TAG", "expression": expression}
    request = {"group": "g", "topic": "T", "queueId": 0, "offset": offset, "maxMsgNums": at_a_time, "filter": wanted}
    [(answering, blocks)] = blocks_of(tables, [{"request": request | {"end": end}}], config, whole_files=True)
    [row] = rows_of(drained_rows(answering, iter(blocks)))
    return row


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        # a batch of 32 at a time: 62 of them and one of 16, where the file ends
        ((0, ENTRIES), (OPEN, 2000, 63, 63, 2000)),
        ((2000, ENTRIES), (DONE, 2100, 4, 4, 100)),
        # the last message that is wanted ends it, though a batch reaches beyond
        ((0, 33), (DONE, 64, 2, 2, 64)),
        # 286 messages of TagA in the first file; after the last batch of 30 the rest of the file is looked through
        ((0, ENTRIES, "TagA"), (OPEN, 2000, 9, 9, 286)),
        # nothing matches: 800 entries a pull
        ((0, ENTRIES, "TagC"), (OPEN, 2000, 3, 0, 0)),
        # back to the queue's first offset, then out of no file into the first
        ((-5, 10), (OPEN, 0, 1, 0, 0)),
        # at its end the queue gives no more
        ((ENTRIES, ENTRIES + 1), (STUCK, ENTRIES, 1, 0, 0)),
    ],
)
def test_a_chain_takes_the_pulls_that_can_be_counted_by_hand(chain: tuple[Any, ...], expected: tuple[int, ...], tables: Tables) -> None:
    row = followed(tables, *chain)
    assert (row["state"], row["nextOffset"], row["pulls"], row["found"], row["messages"]) == expected
    assert (row["bytes"] > 0, row["fromDisk"]) == (row["messages"] > 0, 0)


def test_caps_of_disk_make_more_pulls(tables: Tables) -> None:
    row = followed(tables, 0, ENTRIES, totalPhysicalMemorySize=0)
    assert (row["state"], row["pulls"], row["fromDisk"], row["messages"]) == (OPEN, 250, 250, 2000)


@pytest.mark.parametrize(("at_a_time", "expression", "config"), [(-1, None, {}), (32, "||", {}), (32, None, {"readable": False})])
def test_a_chain_that_gets_no_answer_is_stuck(at_a_time: int, expression: str | None, config: Row, tables: Tables, tmp_path: Path) -> None:
    row = followed(tables, 5, 10, expression, at_a_time=at_a_time, **config)
    assert (row["state"], row["nextOffset"], row["messages"]) == (STUCK, 5, 0)


def test_a_slave_that_keeps_offsets_is_stuck_below_the_queue(tables: Tables) -> None:
    assert followed(tables, -5, 10, brokerRole="SLAVE")["state"] == STUCK
