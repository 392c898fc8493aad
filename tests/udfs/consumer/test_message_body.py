"""Compressed bodies give back the original bytes, and nothing else, whatever the bytes are."""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from udfs.consumer.message_body import MissingCodecError, uncompress
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


TEXT = b"hello hello hello hello rocketmq 5.x body body body body"
# sysFlag and stream of TEXT, and of no bytes, from CompressorFactory of 5.5.0
STREAMS = {
    "lz4": (
        257,
        "04224d18607073240000006e68656c6c6f200600f602726f636b65746d7120352e7820626f647905005020626f647900000000",
        "04224d1860707300000000",
    ),
    "zstd": (
        513,
        "28b52ffd00586c0100640268656c6c6f20726f636b65746d7120352e7820626f647920626f647920626f647920626f64790100f14a11010000",
        "28b52ffd0058010000",
    ),
    "zlib": (769, "785ecb48cdc9c957c8c0208bf293b3534b720b154cf52a1492f2532ad108004a6a146a", "785e030000000001"),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_of_5_5_0_is_read_by_the_bits_of_its_flag(kind: str) -> None:
    flag, packed, of_nothing = STREAMS[kind]
    stream = bytes.fromhex(packed)
    assert uncompress(stream, sys_flag=flag) == TEXT
    assert uncompress(bytes.fromhex(of_nothing), sys_flag=flag) == b""
    assert uncompress(stream, len(TEXT), sys_flag=flag) == TEXT
    assert uncompress(stream, len(TEXT) - 1, sys_flag=flag) is None
    # the broker's client throws for a stream that ends early, and decodes no such message
    assert [uncompress(stream[:cut], sys_flag=flag) for cut in (1, len(stream) // 2, len(stream) - 1)] == [None, None, None]
    other = next(one for name, (one, _, _) in STREAMS.items() if name != kind)
    assert uncompress(stream, sys_flag=other) is None


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_a_type_that_5_5_0_does_not_know_is_none(kind: int) -> None:
    assert uncompress(zlib.compress(TEXT), sys_flag=1 | kind << 8) is None


def test_a_column_of_bodies_has_each_type() -> None:
    rows = [(bytes.fromhex(packed), flag) for flag, packed, _ in STREAMS.values()] + [(zlib.compress(TEXT), 1), (TEXT, 256)]
    found = uncompress_body(pd.Series([body for body, _ in rows], dtype=object), pd.Series([flag for _, flag in rows], dtype="Int32"))
    assert found.tolist() == [TEXT] * 5


def test_a_missing_codec_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyarrow.Codec", SimpleNamespace(is_available=lambda _: False))
    flag, packed, _ = STREAMS["zstd"]
    with pytest.raises(MissingCodecError, match="zstd: expected a pyarrow that reads it"):
        uncompress(bytes.fromhex(packed), sys_flag=flag)
