"""Lines of request files that are frames of RemotingCommand: a PULL_MESSAGE frame is answered like a captured pull.

Broker source (4.9.3): NettyDecoder, PullMessageRequestHeader, PullMessageProcessor.
Rule: a frame has all that the client sent, but neither the time nor the earlier heartbeats of its group. So the broker's checks come first
(capture.pull_checks), a pull without its own subscription belongs to a group without heartbeats, and no pull is held.

Tasks read the lines, so this module imports no package that executors may lack. `frame_answers` answers the pulls.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from pipeline.capture.exchanges import plain_text
from pipeline.requests.frames import frame_of_line
from pipeline.requests.request_lines import RequestError
from store_format.remoting.errors import FrameError
from store_format.remoting.frame import FRAME_MAX_LENGTH, decode_frame
from store_format.remoting.headers import PULL_CODES, PullMessageRequestHeader, RequestCode

# fields of a pull's header that a request in a file does not have
OF_FRAME: Final = {"commitOffset": "BIGINT", "subscription": "STRING", "subVersion": "BIGINT", "expressionType": "STRING"}
FRAME_TYPE: Final = f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in OF_FRAME.items())}>"


def is_frame(raw: bytes) -> bool:
    """Whether a line that is no request is probably a frame."""
    return b'"frameHex"' in raw


def pull_of_line(path: str, number: int, raw: bytes) -> dict[str, Any]:
    """Values of the columns of STREAM_SCHEMA for a line with the frame of a pull.

    Args:
        path: path of the file, for the error message.
        number: number of the line.
        raw: the line.

    Raises:
        RequestError: the line has no frame, the broker's decoder throws for the frame, or the frame is another command.
    """
    _, frame = frame_of_line(path, number, raw)
    try:
        command = decode_frame(frame[: FRAME_MAX_LENGTH + 1])
    except FrameError as error:
        raise RequestError(path, number, f"{error.expected} at byte {error.position} of the frame", error.found) from None
    if command.is_response or command.code not in PULL_CODES:
        kind = "an answer" if command.is_response else f"a request with code {command.code}"
        raise RequestError(path, number, f"a request of PULL_MESSAGE ({RequestCode.PULL_MESSAGE:d})", kind)
    fields = asdict(PullMessageRequestHeader.decode(command.ext_fields))
    fields |= {name: plain_text(value) for name, value in fields.items() if isinstance(value, str)}
    return {"seq": number} | fields | {"frame": {name: fields.pop(name) for name in OF_FRAME}}
