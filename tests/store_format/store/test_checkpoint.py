"""The checkpoint file, compared with the broker's own, and with its rule for the time from which recovery starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.store.checkpoint import CHECKPOINT_LENGTH, StoreCheckpoint, decode_checkpoint, encode_checkpoint
from store_format.store_paths import ABORT_FILE, CHECKPOINT_FILE
from tests.makers.records import LONGS
from tests.truth.golden import names, needs_golden, recovery


def checkpoint(physic: int, logics: int, index: int) -> StoreCheckpoint:
    return StoreCheckpoint(physic_msg_timestamp=physic, logics_msg_timestamp=logics, index_msg_timestamp=index)


@needs_golden
@pytest.mark.parametrize("name", names("recover", "*.json"))
def test_every_checkpoint_reads_as_the_broker_reads_it(stores: Path, name: str) -> None:
    recorded = recovery(name)
    path = stores / recorded["store"] / CHECKPOINT_FILE
    raw = path.read_bytes() if path.exists() else None
    read = decode_checkpoint(raw)
    before = recorded["before"]["checkpoint"]
    if raw is not None:
        assert before == {
            "physicMsgTimestamp": read.physic_msg_timestamp,
            "logicsMsgTimestamp": read.logics_msg_timestamp,
            "indexMsgTimestamp": read.index_msg_timestamp,
        }
        assert encode_checkpoint(read, raw) == raw
    assert (path.parent / ABORT_FILE).exists() == recorded["before"]["abort"]


@needs_golden
@pytest.mark.parametrize("name", names("recover", "*.json"))
def test_recovery_starts_from_the_time_that_the_broker_computes(name: str) -> None:
    for state in (recovery(name)["afterLoad"], recovery(name).get("afterStart")):
        if state is None:
            continue
        held = state["checkpointInMemory"]
        read = checkpoint(held["physicMsgTimestamp"], held["logicsMsgTimestamp"], held["indexMsgTimestamp"])
        assert (read.min_timestamp, read.min_timestamp_index) == (held["minTimestamp"], held["minTimestampIndex"])


@pytest.mark.parametrize(
    ("physic", "logics", "index", "least", "least_index"),
    [
        (0, 0, 0, 0, 0),
        (3000, 9000, 9000, 0, 0),
        (3001, 9000, 9000, 1, 1),
        (9000, 3001, 0, 1, 0),
        (9000, 9000, 6001, 6000, 6000),
        (-5, 9000, 7, 0, 0),
        (-(2**63), 9000, 7, 2**63 - 3000, 7),  # long arithmetic wraps
    ],
)
def test_the_time_to_start_from_is_three_seconds_before_the_older_one(
    physic: int, logics: int, index: int, least: int, least_index: int
) -> None:
    read = checkpoint(physic, logics, index)
    assert (read.min_timestamp, read.min_timestamp_index) == (least, least_index)


@given(LONGS, LONGS, LONGS)
def test_checkpoints_go_round(physic: int, logics: int, index: int) -> None:
    written = checkpoint(physic, logics, index)
    raw = encode_checkpoint(written)
    assert len(raw) == CHECKPOINT_LENGTH
    assert decode_checkpoint(raw) == written


@given(st.binary(max_size=60))
def test_a_cut_file_reads_as_if_zeros_followed(raw: bytes) -> None:
    assert decode_checkpoint(raw) == decode_checkpoint(raw.ljust(CHECKPOINT_LENGTH, b"\0"))
    again = encode_checkpoint(decode_checkpoint(raw), raw)
    assert again == raw.ljust(CHECKPOINT_LENGTH, b"\0")


def test_a_missing_file_is_three_zeros() -> None:
    assert decode_checkpoint(None) == checkpoint(0, 0, 0)
