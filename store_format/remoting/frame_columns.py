"""Decodes many frames at once into columns, fast enough for captures of gigabytes.

Broker source (4.9.3): RemotingCommand.decode, for headers as the broker and its clients write them.
Rule: a compiled kernel reads the headers of the usual form; `decode_header` reads every other one. The columns have the same values as
`decode_header` for each frame.
Texts are byte ranges of the buffer: no header and no body is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes
from store_format.compiled import compiled
from store_format.record.message import decode_text
from store_format.record.record_columns import Slices
from store_format.remoting.command import RemotingCommand
from store_format.remoting.errors import FrameError
from store_format.remoting.frame import FRAME_MAX_LENGTH, LENGTH_FIELD, decode_header, too_long
from store_format.remoting.frame_kernel import CODE, FLAG, LANGUAGE, NUMBERS, OPAQUE, PULL_FIELDS, VERSION, read_headers, split_frames
from store_format.remoting.headers import java_number

NO_OPAQUE: Final = -(2**63)  # a JSON header without opaque; the receiver assigns one
NO_LANGUAGE: Final = -1
MAX_FRAMES: Final = 1 << 16  # frames in one FrameColumns: the columns of a small frame take more memory than the frame

_REMARK: Final = len(PULL_FIELDS)
_DIGITS_MAX: Final = 19


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """Whole frames at the beginning of a buffer, a row each.

    Attributes:
        starts, lengths: position and bytes of each frame, its length field included.
        code, flag, opaque, version, language: as in the header; see NO_OPAQUE and NO_LANGUAGE. 0 in the rows in `errors`.
        body: byte range of each body; its length is 0 without a body.
        errors: by row, the error with which the broker's decoder refuses the frame; positions count from the start of the frame.
        consumed: position of the first frame that is not in the rows.
        stopped_by: the error if the next frame's length is above the broker's limit, so that no frame can follow.
    """

    buffer: Bytes
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    code: NDArray[np.int64]
    flag: NDArray[np.int64]
    opaque: NDArray[np.int64]
    version: NDArray[np.int64]
    language: NDArray[np.int64]
    body: Slices
    errors: dict[int, FrameError]
    consumed: int
    stopped_by: FrameError | None
    _spans: NDArray[np.int32]
    _careful: dict[int, RemotingCommand]

    def text(self, row: int, field: str) -> str | None:
        """The value of `field` in a row, None if it is null or absent; `field` is one of PULL_FIELDS (ext fields) or "remark"."""
        if command := self._careful.get(row):
            return command.remark if field == "remark" else (command.ext_fields or {}).get(field)
        start, length = self._spans[row, _place(field)].tolist()
        if length < 0:
            return None
        begin = int(self.starts[row]) + start
        return decode_text(self.buffer[begin : begin + length].tobytes())

    def slices(self, field: str) -> Slices:
        """The byte ranges of a field's raw values; the length is negative for null and in all `careful_rows`."""
        spans = self._spans[:, _place(field)].astype(np.int64)
        return Slices(self.starts + spans[:, 0], spans[:, 1])

    def careful_rows(self) -> list[int]:
        """The rows whose header is not of the broker's form; only `text` returns their fields."""
        return sorted(self._careful)

    def numbers(self, field: str, bits: int = 64) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """A field's values as Long.parseLong (or Integer.parseInt for 32 bits) reads them, and for each row whether it is a number."""
        values, state = _numbers(self.buffer, self.starts, self._spans[:, _place(field)])
        known = state > 0
        for row in [*np.flatnonzero(state < 0).tolist(), *self._careful]:
            number = java_number(self.text(row, field), bits)
            known[row] = number is not None
            values[row] = number or 0
        known &= (values >= -(1 << bits - 1)) & (values <= (1 << bits - 1) - 1)
        return np.where(known, values, 0), known


def _place(field: str) -> int:
    return _REMARK if field == "remark" else PULL_FIELDS.index(field)


def frame_columns(
    buffer: Bytes, *, max_frames: int = MAX_FRAMES, frame_max_length: int = FRAME_MAX_LENGTH, bad_in_a_row: int | None = None
) -> FrameColumns:
    """The whole frames at the beginning of `buffer`, at most `max_frames`; the next frames begin at `buffer[columns.consumed:]`.

    A frame that the broker refuses is a row in `errors`, and the frames after it are read too. A refused frame takes longer than a good
    one, so after `bad_in_a_row` refused frames in a row no further row is read carefully; the rows after them must not be used.
    """
    starts, consumed, too_great = _split(buffer, max_frames, frame_max_length)
    count = len(starts)
    lengths = np.diff(starts, append=consumed)
    numbers = np.zeros((count, NUMBERS), np.int64)
    spans = np.full((count, len(PULL_FIELDS) + 1, 2), -1, np.int32)
    bodies = np.zeros((count, 2), np.int64)
    plain = np.zeros(count, np.bool_)
    read_headers(buffer, starts, lengths, numbers, spans, bodies, plain)
    columns = FrameColumns(
        buffer=buffer,
        starts=starts,
        lengths=lengths,
        code=numbers[:, CODE],
        flag=numbers[:, FLAG],
        opaque=numbers[:, OPAQUE],
        version=numbers[:, VERSION],
        language=numbers[:, LANGUAGE],
        body=Slices(bodies[:, 0], bodies[:, 1]),
        errors={},
        consumed=consumed,
        stopped_by=too_long(too_great).moved(consumed) if too_great >= 0 else None,
        _spans=spans,
        _careful={},
    )
    run = 0
    for row in np.flatnonzero(~plain).tolist():
        _read_carefully(columns, row)
        run = 0 if row not in columns.errors else run + 1 if row - 1 in columns.errors else 1
        if run == bad_in_a_row:
            break
    return columns


def frame_starts(buffer: Bytes) -> NDArray[np.int64]:
    """The starts of the whole frames at the beginning of `buffer`, at most MAX_FRAMES, and of the next frame; no header is read."""
    starts, consumed, _ = _split(buffer, MAX_FRAMES, FRAME_MAX_LENGTH)
    return np.append(starts, consumed)


def _split(buffer: Bytes, max_frames: int, frame_max_length: int) -> tuple[NDArray[np.int64], int, int]:
    """The starts of whole frames, the end of the last one, and the next frame's length if it is above the limit, else a negative number."""
    starts = np.empty(min(max_frames, len(buffer) // LENGTH_FIELD), np.int64)
    count, consumed, too_great = split_frames(buffer, frame_max_length, starts)
    return starts[:count].copy(), int(consumed), int(too_great)


def stream_columns(stream: Bytes, *, max_frames: int = MAX_FRAMES) -> Iterator[FrameColumns]:
    """The whole frames of a stream, part by part; positions in a part count from the start of its `buffer`, a view of the stream."""
    while (columns := frame_columns(stream, max_frames=max_frames)).consumed:
        yield columns
        stream = stream[columns.consumed :]


def _read_carefully(columns: FrameColumns, row: int) -> None:
    start, length = int(columns.starts[row]), int(columns.lengths[row])
    columns._spans[row] = -1
    for column in (columns.code, columns.flag, columns.opaque, columns.version, columns.language, columns.body.lengths):
        column[row] = 0
    content = columns.buffer[start + LENGTH_FIELD : start + length].data
    try:
        command, body = decode_header(content)
    except FrameError as error:
        columns.errors[row] = error
        return
    columns._careful[row] = command
    columns.code[row], columns.flag[row], columns.version[row] = command.code, command.flag, command.version
    columns.opaque[row] = NO_OPAQUE if command.opaque is None else command.opaque
    columns.language[row] = NO_LANGUAGE if command.language is None else command.language
    columns.body.starts[row], columns.body.lengths[row] = start + LENGTH_FIELD + body, len(content) - body


@compiled
def _numbers(buffer, starts, spans):  # type: ignore[no-untyped-def]
    """The values, and a state for each: 1 for a number, 0 for null or no number, -1 for one that this function cannot decide."""
    values = np.zeros(len(starts), np.int64)
    state = np.zeros(len(starts), np.int8)
    for row in range(len(starts)):
        at, length = starts[row] + spans[row, 0], spans[row, 1]
        if length <= 0:
            continue
        end = at + length
        first = buffer[at]
        if first == 0x2D or first == 0x2B:
            at += 1
        if end - at >= _DIGITS_MAX:
            state[row] = -1
            continue
        value, good = np.int64(0), at < end
        while at < end:
            digit = np.int64(buffer[at]) - 0x30
            if digit < 0 or digit > 9:
                good = False
                state[row] = -1 if buffer[at] >= 0x80 else state[row]
            value = value * 10 + digit
            at += 1
        if good:
            state[row] = 1
            values[row] = -value if first == 0x2D else value
    return values, state
