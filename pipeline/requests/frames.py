"""Decode a file of RemotingCommand frames: copy it with every frame decoded.

A line is a JSON object with `frameHex`, the frame with its length field; other fields are copied unchanged. A field `decoded` is added: the
command, with the broker's names. If the broker's decoder throws, `decoded` is `{"error": the exception}`, and `error` has the reason and
the number of the byte.
The file is read line by line. The new file appears only when it is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from pipeline.files.store_files import local_path
from pipeline.files.whole_file import whole_file
from pipeline.requests.request_lines import RequestError
from store_format.errors import shown
from store_format.remoting.errors import FrameError
from store_format.remoting.frame import FRAME_MAX_LENGTH, decode_frame

# room for the longest frame in hexadecimal, and for its decoded body in a line that was decoded before
LINE_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class FramesDone:
    """The number of frames in a file, and the number of frames for which the broker's decoder throws."""

    frames: int
    refused: int


def run_frames(path: str, out: str) -> FramesDone:
    """Decode the frames of the file `path` into the file `out`.

    Raises:
        RequestError: the file does not exist or is empty, or a line is no JSON object with `frameHex`; nothing is written then.
    """
    target = local_path(out)
    if os.path.isdir(target):
        raise RequestError(out, 1, "a file", "a folder")
    try:
        with whole_file(target) as written:
            return _write(path, written)
    except OSError as error:
        raise RequestError(out, 1, "a file in a folder that can be written", error.strerror or str(error)) from error


def _write(path: str, out: BinaryIO) -> FramesDone:
    frames = refused = 0
    for line in _decoded_lines(path):
        frames += 1
        refused += "error" in line
        out.write(json.dumps(line).encode() + b"\n")
    if not frames:
        raise RequestError(path, 1, "at least one frame", "an empty file")
    return FramesDone(frames, refused)


def _decoded_lines(path: str) -> Iterator[dict[str, Any]]:
    try:
        with open(local_path(path), "rb") as file:
            for number, raw in _lines(path, file):
                yield _decoded(path, number, raw)
    except OSError as error:
        raise RequestError(path, 1, "a file of frames", error.strerror or str(error)) from error


def _lines(path: str, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its number; one line at a time is in memory."""
    number = 0
    while raw := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(raw) > LINE_BYTES_MAX:
            raise RequestError(path, number, f"a line of at most {LINE_BYTES_MAX} bytes", "a longer one")
        if raw.strip():
            yield number, raw


def frame_of_line(path: str, number: int, raw: bytes) -> tuple[dict[str, Any], bytes]:
    """The JSON object in a line, and the bytes of its frame.

    Raises:
        RequestError: the line is no JSON object with `frameHex`.
    """
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(path, number, "a JSON object", f"{shown(raw)} ({error})") from None
    if not isinstance(line, dict) or not isinstance(line.get("frameHex"), str):
        raise RequestError(path, number, 'a JSON object with a text "frameHex"', shown(raw))
    try:
        return line, bytes.fromhex(line["frameHex"])
    except ValueError as error:
        raise RequestError(path, number, 'hexadecimal digits in "frameHex"', str(error)) from None


def _decoded(path: str, number: int, raw: bytes) -> dict[str, Any]:
    line, frame = frame_of_line(path, number, raw)
    line.pop("error", None)
    try:
        command = decode_frame(frame[: FRAME_MAX_LENGTH + 1])
    except FrameError as error:
        return line | {"decoded": {"error": error.exception}, "error": str(error)}
    return line | {"decoded": command.decoded_form()}
