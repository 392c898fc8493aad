"""Compressed bodies: what went in comes out, and nothing else, whatever the bytes are."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from udfs.consumer.message_body import uncompress
from udfs.sql_functions import uncompress_body

if TYPE_CHECKING:
    from collections.abc import Callable

BOMB = zlib.compress(bytes(1 << 20), 9)


@given(st.binary(max_size=5000), st.integers(0, 9))
def test_a_body_comes_out_as_it_went_in(body: bytes, level: int) -> None:
    assert uncompress(zlib.compress(body, level)) == body


@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_body_that_was_cut_is_none(body: bytes, data: st.DataObject) -> None:
    packed = zlib.compress(body)
    assert uncompress(packed[: data.draw(st.integers(0, len(packed) - 1))]) is None


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    found = uncompress(body)
    assert found is None or found == zlib.decompressobj().decompress(body)


@pytest.mark.parametrize(("limit", "made"), [((1 << 20) - 1, None), (1 << 20, bytes(1 << 20))])
def test_what_is_too_large_is_refused(limit: int, made: bytes | None) -> None:
    assert len(BOMB) < 2000
    assert uncompress(BOMB, limit) == made


def test_a_column_of_bodies_is_uncompressed_where_its_flag_says_so() -> None:
    packed: Callable[[bytes], bytes] = zlib.compress
    bodies, flags = [packed(b"a"), packed(b"b"), b"\x00", None, b"c"], [1, 0, 17, 1, None]
    found = uncompress_body(pd.Series(bodies, dtype=object), pd.Series(flags, dtype="Int32"))
    assert found.tolist() == [b"a", packed(b"b"), None, None, None]
