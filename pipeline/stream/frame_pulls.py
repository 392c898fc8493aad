"""Lines of a stream's files that are frames of RemotingCommand: those of PULL_MESSAGE are pulls as captured ones are.

Broker source (4.9.3): NettyDecoder, PullMessageRequestHeader, PullMessageProcessor.
Rule: a frame says all that the client said, and nothing of when, or of what its group had told the broker before. So the broker's checks
come first (capture.pull_checks), a pull without a subscription of its own is one of a group that sent no heartbeat, and none is held.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.capture.exchanges import plain_text
from pipeline.capture.replay_captured import answered_captured
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.replay_run import ReplayOptions
from pipeline.requests.frames import frame_of_line
from pipeline.requests.request_lines import RequestError
from pipeline.schema import tables as t
from pipeline.schema.capture_tables import PULL_REQUEST
from pipeline.settings.settings import BrokerSettings
from store_format.remoting.errors import FrameError
from store_format.remoting.frame import FRAME_MAX_LENGTH, decode_frame
from store_format.remoting.headers import PullMessageRequestHeader, RequestCode

# what the header of a pull has and a request of a file has not
OF_FRAME: Final = {"commitOffset": "BIGINT", "subscription": "STRING", "subVersion": "BIGINT", "expressionType": "STRING"}
FRAME_TYPE: Final = f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in OF_FRAME.items())}>"
# columns of pull_response that a batch fills; the others name the run
ANSWERED: Final = tuple(name for name in t.PULL_RESPONSE.names if name not in {"brokerName", "runId"})


def is_frame(raw: bytes) -> bool:
    """Whether a line that is no request is meant as a frame."""
    return b'"frameHex"' in raw


def pull_of_line(path: str, number: int, raw: bytes) -> dict[str, Any]:
    """The columns of STREAM_SCHEMA that a line with a pull's frame fills.

    Raises:
        RequestError: it has no frame, the broker's decoder throws for it, or it is another command.
    """
    _, frame = frame_of_line(path, number, raw)
    try:
        command = decode_frame(frame[: FRAME_MAX_LENGTH + 1])
    except FrameError as error:
        raise RequestError(path, number, f"{error.expected} at byte {error.position} of the frame", error.found) from None
    if command.is_response or command.code != RequestCode.PULL_MESSAGE:
        kind = "an answer" if command.is_response else f"a request with code {command.code}"
        raise RequestError(path, number, f"a request of PULL_MESSAGE ({RequestCode.PULL_MESSAGE:d})", kind)
    fields = asdict(PullMessageRequestHeader.decode(command.ext_fields))
    fields |= {name: plain_text(value) for name, value in fields.items() if isinstance(value, str)}
    return {"seq": number} | fields | {"frame": {name: fields.pop(name) for name in OF_FRAME}}


def answered_frames(broker: OpenedBroker, rows: DataFrame, *, options: ReplayOptions, settings: BrokerSettings) -> DataFrame:
    """Answers, with the columns ANSWERED, of rows of STREAM_SCHEMA that have a `frame` and their `requestId`."""
    known = rows.select("*", "frame.*")
    lacking = {
        column.name: F.lit(None).cast(column.type) for column in PULL_REQUEST.columns if column.name not in known.columns
    }  # nothing was recorded, and nobody registered
    pulls = known.withColumns(lacking | {"held": F.lit(False)}).select("seq", *PULL_REQUEST.names)
    with answered_captured(broker, pulls, options=options, settings=settings) as answered:
        return answered.select(*ANSWERED).localCheckpoint()
