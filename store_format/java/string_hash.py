"""String.hashCode of many texts that lie in a buffer as UTF-8.

Broker source (4.9.3): MessageExtBrokerInner.tagsString2tagsCode, which is java.lang.String.hashCode.
Rule: for each UTF-16 unit, hash = 31 * hash + unit, in an int that wraps.
Surprise: bytes that are no UTF-8 count as the replacement characters to which Java decodes them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes
from store_format.compiled import compiled
from store_format.java.numbers import to_int
from store_format.record.message import decode_text
from store_format.record.record_columns import Slices, are_utf8


def string_hash(text: str) -> int:
    """String.hashCode of one text, from -2**31 to 2**31 - 1."""
    code = 0
    for unit in np.frombuffer(text.encode("utf-16-be", "surrogatepass"), ">u2").tolist():
        code = (code * 31 + unit) & 0xFFFFFFFF
    return to_int(code)


@compiled
def hash_on(buffer, start, end, code):  # type: ignore[no-untyped-def]
    """The hash of a text: a beginning with the hash `code`, then the valid UTF-8 in `buffer[start:end]`.

    `code` and the result are from 0 to 2**32 - 1.
    """
    at = start
    while at < end:
        lead = np.int64(buffer[at])
        if lead < 0x80:
            point = lead
            at += 1
        elif lead < 0xE0:
            point = ((lead & 31) << 6) | (np.int64(buffer[at + 1]) & 63)
            at += 2
        elif lead < 0xF0:
            point = ((lead & 15) << 12) | ((np.int64(buffer[at + 1]) & 63) << 6) | (np.int64(buffer[at + 2]) & 63)
            at += 3
        else:
            point = ((lead & 7) << 18) | ((np.int64(buffer[at + 1]) & 63) << 12)
            point |= ((np.int64(buffer[at + 2]) & 63) << 6) | (np.int64(buffer[at + 3]) & 63)
            at += 4
        if point >= 0x10000:
            code = (code * 31 + 0xD7C0 + (point >> 10)) & 0xFFFFFFFF
            point = 0xDC00 | (point & 0x3FF)
        code = (code * 31 + point) & 0xFFFFFFFF
    return code


@compiled
def _hashes(buffer, starts, lengths, out):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        code = hash_on(buffer, starts[i], starts[i] + max(lengths[i], np.int64(0)), np.int64(0))
        out[i] = code - (np.int64(1) << 32) if code >= (np.int64(1) << 31) else code


def string_hashes(buffer: Bytes, texts: Slices) -> NDArray[np.int64]:
    """String.hashCode of each text, 0 for a missing one."""
    out = np.zeros(len(texts.starts), np.int64)
    plain = are_utf8(buffer, texts)
    lengths = np.where(plain, texts.lengths, 0)
    _hashes(buffer, texts.starts, lengths, out)
    for i in np.flatnonzero(~plain):
        start = int(texts.starts[i])
        out[i] = string_hash(decode_text(buffer[start : start + int(texts.lengths[i])].tobytes()))
    return out
