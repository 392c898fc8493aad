"""The compiled kernels that find frames in a stream and read their headers.

Broker source (4.9.3): RemotingCommand.encode. A plain header, which is read here, is JSON without blanks, without equal or unknown names,
with strings as ext values and without escapes in a pull's fields; or ROCKETMQ with right lengths.
Rule: a header is read to its last byte, or it is not plain; nothing is guessed.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import int32_at
from store_format.compiled import compiled
from store_format.record.record_columns import are_same
from store_format.remoting.command import LanguageCode
from store_format.remoting.headers import PullMessageRequestHeader, PullMessageResponseHeader

PULL_FIELDS: Final = tuple(field.name for header in (PullMessageRequestHeader, PullMessageResponseHeader) for field in fields(header))
_HEADER_FIELDS: Final = ("code", "flag", "opaque", "version", "language", "remark", "extFields", "serializeTypeCurrentRPC")
CODE, FLAG, OPAQUE, VERSION, LANGUAGE, _REMARK_FIELD, _EXT_FIELDS, _SERIALIZE_TYPE = range(len(_HEADER_FIELDS))
NUMBERS: Final = LANGUAGE + 1
_REMARK: Final = len(PULL_FIELDS)
_LANGUAGES: Final = len(LanguageCode)
_AT_TYPE: Final = 0x40  # "@": a header with an ext field @type is not plain
_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE, _MINUS, _BACKSLASH = 0x22, 0x3A, 0x2C, 0x7B, 0x7D, 0x2D, 0x5C
_ESCAPE_U: Final = 0x75
_SHORT_ESCAPE: Final = np.isin(np.arange(256), np.frombuffer(b'"\\/bfnrt', np.uint8))
_INT_DIGITS: Final = 10
_FIXED: Final = 17


def _table(names: tuple[str, ...]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of all names one after the other, and the position of each name."""
    return np.frombuffer("".join(names).encode(), np.uint8).copy(), np.cumsum([0, *map(len, names)])


_FIELD_NAMES, _FIELD_BOUNDS = _table(_HEADER_FIELDS)
_PULL_NAMES, _PULL_BOUNDS = _table(PULL_FIELDS)
_LANGUAGE_NAMES, _LANGUAGE_BOUNDS = _table(tuple(language.name for language in LanguageCode))


@compiled
def split_frames(buffer, limit, starts):  # type: ignore[no-untyped-def]
    """Write the start of each whole frame to `starts`, as many as fit.

    Returns their number, the start of the next frame, and that frame's length if it is above `limit`, else -1.
    """
    at, count = np.int64(0), 0
    while count < len(starts) and len(buffer) - at >= 4:
        length = np.int64(int32_at(buffer, at)) & 0xFFFFFFFF
        if length + 4 > limit:
            return count, at, length
        if at + 4 + length > len(buffer):
            break
        starts[count] = at
        count += 1
        at += 4 + length
    return count, at, -1


@compiled
def _name_at(buffer, start, length, names, bounds):  # type: ignore[no-untyped-def]
    """The index in `names` of the name at `start`, or -1."""
    for index in range(len(bounds) - 1):
        if are_same(buffer, start, length, names, bounds[index], bounds[index + 1] - bounds[index]):
            return index
    return -1


@compiled
def _string_end(buffer, at, end):  # type: ignore[no-untyped-def]
    """The position of the quote that ends a string, -1 if the string is not plain; `at` is the position after the opening quote."""
    while at < end:
        byte = buffer[at]
        if byte == _QUOTE:
            return at
        if byte < 0x20 or byte == _BACKSLASH:
            return -1
        at += 1
    return -1


@compiled
def _int_at(buffer, at, end):  # type: ignore[no-untyped-def]
    """The int at `at` and its end; the end is -1 if there is no int, or one that may not fit 32 bits."""
    negative = at < end and buffer[at] == _MINUS
    if negative:
        at += 1
    value, first = np.int64(0), at
    while at < end and 0x30 <= buffer[at] <= 0x39 and at - first < _INT_DIGITS:
        value = value * 10 + np.int64(buffer[at]) - 0x30
        at += 1
    if negative:
        value = -value
    if at == first or value < -(2**31) or value > 2**31 - 1:
        return value, -1
    return value, at


@compiled
def _escaped_string_end(buffer, at, end):  # type: ignore[no-untyped-def]
    """The position of the quote that ends an unused string, which may have JSON escapes, as properties of sent messages do."""
    while at < end:
        byte = buffer[at]
        if byte == _QUOTE:
            return at
        if byte < 0x20:
            return -1
        if byte == _BACKSLASH:
            at += 1
            if at + 4 >= end:
                return -1
            if buffer[at] == _ESCAPE_U:
                for digit in buffer[at + 1 : at + 5]:
                    if not (0x30 <= digit <= 0x39 or 0x41 <= digit <= 0x46 or 0x61 <= digit <= 0x66):
                        return -1
                at += 4
            elif not _SHORT_ESCAPE[buffer[at]]:
                return -1
        at += 1
    return -1


@compiled
def _json_map(buffer, start, at, end, spans):  # type: ignore[no-untyped-def]
    """Read the ext fields; returns the position of their end, or -1 if they are not plain."""
    if buffer[at] == _OPEN and at + 1 < end and buffer[at + 1] == _CLOSE:
        return at + 2
    opening = _OPEN
    while at < end - 1 and buffer[at] == opening:
        opening = _COMMA
        key_end = _string_end(buffer, at + 2, end) if buffer[at + 1] == _QUOTE else -1
        if key_end < 0 or key_end + 2 >= end or buffer[key_end + 1] != _COLON or buffer[key_end + 2] != _QUOTE:
            return -1
        if buffer[at + 2] == _AT_TYPE:
            return -1
        field = _name_at(buffer, at + 2, key_end - at - 2, _PULL_NAMES, _PULL_BOUNDS)
        close = _string_end(buffer, key_end + 3, end) if field >= 0 else _escaped_string_end(buffer, key_end + 3, end)
        if close < 0:
            return -1
        if field >= 0:
            spans[field, 0], spans[field, 1] = key_end + 3 - start, close - key_end - 3
        at = close + 1
    return at + 1 if opening == _COMMA and at < end and buffer[at] == _CLOSE else -1


@compiled
def _json_text(buffer, start, at, end, field, numbers, spans):  # type: ignore[no-untyped-def]
    """Read a language, remark or serialize type; returns the position of its end, or -1 if it is not plain."""
    close = _string_end(buffer, at + 1, end) if buffer[at] == _QUOTE else -1
    if close < 0:
        return -1
    if field == LANGUAGE:
        numbers[LANGUAGE] = _name_at(buffer, at + 1, close - at - 1, _LANGUAGE_NAMES, _LANGUAGE_BOUNDS)
        if numbers[LANGUAGE] < 0:
            return -1
    elif field == _REMARK_FIELD:
        spans[_REMARK, 0], spans[_REMARK, 1] = at + 1 - start, close - at - 1
    return close + 1


@compiled
def _json_header(buffer, start, at, end, numbers, spans):  # type: ignore[no-untyped-def]
    """Read the JSON header in [at, end); returns whether it is plain."""
    seen = 0
    opening = _OPEN
    while at < end - 1 and buffer[at] == opening:
        opening = _COMMA
        name_end = _string_end(buffer, at + 2, end) if buffer[at + 1] == _QUOTE else -1
        if name_end < 0 or name_end + 2 >= end or buffer[name_end + 1] != _COLON:
            return False
        field = _name_at(buffer, at + 2, name_end - at - 2, _FIELD_NAMES, _FIELD_BOUNDS)
        if field < 0 or seen >> field & 1:
            return False
        seen |= 1 << field
        at = name_end + 2
        if field < LANGUAGE:
            numbers[field], at = _int_at(buffer, at, end)
        elif field == _EXT_FIELDS:
            at = _json_map(buffer, start, at, end, spans)
        else:
            at = _json_text(buffer, start, at, end, field, numbers, spans)
        if at < 0:
            return False
    return at == end - 1 and buffer[at] == _CLOSE and (seen >> OPAQUE & 1) == 1


@compiled
def _rocketmq_map(buffer, start, at, end, spans):  # type: ignore[no-untyped-def]
    """Read the ext fields in [at, end); returns whether all lengths are right."""
    while at < end:
        if at + 2 > end:
            return False
        key_length = np.int64(buffer[at]) << 8 | np.int64(buffer[at + 1])
        key = at + 2
        if key_length > 0x7FFF or key + key_length + 4 > end:
            return False
        length = np.int64(int32_at(buffer, key + key_length))
        value = key + key_length + 4
        if length < 0 or value + length > end:
            return False
        field = _name_at(buffer, key, key_length, _PULL_NAMES, _PULL_BOUNDS)
        if field >= 0:
            spans[field, 0], spans[field, 1] = value - start, length
        at = value + length
    return True


@compiled
def _rocketmq_header(buffer, start, at, end, numbers, spans):  # type: ignore[no-untyped-def]
    """Read the ROCKETMQ header in [at, end); returns whether it is plain."""
    if end - at < _FIXED + 4:
        return False
    numbers[CODE] = np.int16(np.int64(buffer[at]) << 8 | np.int64(buffer[at + 1]))
    numbers[LANGUAGE] = buffer[at + 2] if buffer[at + 2] < _LANGUAGES else -1
    numbers[VERSION] = np.int16(np.int64(buffer[at + 3]) << 8 | np.int64(buffer[at + 4]))
    numbers[OPAQUE], numbers[FLAG] = int32_at(buffer, at + 5), int32_at(buffer, at + 9)
    remark = np.int64(int32_at(buffer, at + 13))
    at += _FIXED
    if remark > 0:
        spans[_REMARK, 0], spans[_REMARK, 1] = at - start, min(remark, end - at)
        at += remark
    if at + 4 > end:
        return False
    length = np.int64(int32_at(buffer, at))
    at += 4
    if length <= 0:
        return True
    return at + length <= end and _rocketmq_map(buffer, start, at, at + length, spans)


@compiled
def read_headers(buffer, starts, lengths, numbers, spans, bodies, plain):  # type: ignore[no-untyped-def]
    """Read the header of each frame: numbers by header field, spans (start in the frame, length) by pull field and remark, bodies."""
    for row in range(len(starts)):
        start, frame_end = starts[row], starts[row] + lengths[row]
        if lengths[row] < 8:
            continue
        word = np.int64(int32_at(buffer, start + 4)) & 0xFFFFFFFF
        kind, end = word >> 24, start + 8 + (word & 0xFFFFFF)
        if end > frame_end or kind > 1:
            continue
        bodies[row, 0], bodies[row, 1] = end, frame_end - end
        if kind == 0:
            plain[row] = _json_header(buffer, start, start + 8, end, numbers[row], spans[row])
        else:
            plain[row] = _rocketmq_header(buffer, start, start + 8, end, numbers[row], spans[row])
