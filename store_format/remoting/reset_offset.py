"""Decodes the body of a RESET_CONSUMER_CLIENT_OFFSET, with which a broker makes a client set its group's offsets.

Broker source (4.9.3): Broker2Client.resetOffset, ResetOffsetBody, ResetOffsetBodyForC; fastjson writes them.
Surprise: the keys of ResetOffsetBody's map are objects, which is no JSON: `{{"brokerName":"b","queueId":1,"topic":"t"}:413}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

# a queue as a key, and its offset
_ENTRY = re.compile(r"(\{[^{}]*\}):(-?[0-9]{1,19})(?![0-9])")
# bits of the fields that are numbers
_NUMBERS = {"queueId": 32, "offset": 64}


def decode_reset_offset(body: bytes) -> dict[tuple[str, int], int]:
    """The offsets by (topic, queueId); queues that cannot be read are left out."""
    text = body.decode("utf-8", "replace")
    return {(one["topic"], one["queueId"]): one["offset"] for one in _queues(text) if _is_whole(one)}


def _queues(text: str) -> Iterator[dict[str, Any]]:
    for queue, offset in _ENTRY.findall(text):
        yield {**_object(queue), "offset": int(offset)}
    listed = _object(text).get("offsetTable")
    yield from (one for one in (listed if isinstance(listed, list) else []) if isinstance(one, dict))


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # the body may be any bytes
        return {}
    return found if isinstance(found, dict) else {}


def _is_whole(queue: dict[str, Any]) -> bool:
    return isinstance(queue.get("topic"), str) and all(
        type(number := queue.get(name)) is int and -(1 << bits - 1) <= number < 1 << bits - 1 for name, bits in _NUMBERS.items()
    )
