"""Frames and commands, good and bad, as tables of cases."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from store_format.remoting.command import LanguageCode, RemotingCommand, SerializeType
from tests.truth.places import DATA

HEADERS = DATA / "remoting" / "json_headers.jsonl"


INTS = st.integers(-(2**31), 2**31 - 1)


SHORTS = st.integers(-(2**15), 2**15 - 1)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


COMMANDS = st.builds(
    RemotingCommand,
    code=SHORTS,
    opaque=INTS,
    flag=INTS,
    version=SHORTS,
    language=st.sampled_from(LanguageCode),
    remark=st.none() | TEXTS.filter(bool),
    ext_fields=st.none() | st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=20),
    body=st.none() | st.binary(min_size=1, max_size=40),
    serialize_type=st.sampled_from(SerializeType),
)


def framed(header: bytes, kind: int = 0, body: bytes = b"") -> bytes:
    word = struct.pack(">I", kind << 24 | len(header))
    return struct.pack(">i", 4 + len(header) + len(body)) + word + header + body


GOOD = framed(b'{"code":38,"opaque":1}')


BAD = framed(b'{"code"')
