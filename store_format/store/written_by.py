"""Finds out from the files of a store which version of the broker ran last, if the files show it.

Broker source: ConsumerOffsetManager and DataVersion of 4.9.3, 4.9.8 and 5.5.0; TimerCheckpoint, TimerMetrics, ConsumerOrderInfoManager,
TransactionMetrics, CompactionStore and MessageRocksDBStorage of 5.5.0.
Rule: a broker writes consumerOffset.json every few seconds and at its shutdown, so the broker that ran last wrote this file. 5.x writes a
dataVersion into it, 4.9 never does.
If it is missing, files that only 5.x makes show a broker 5.x: a broker 4.9 that ran later would have written consumerOffset.json.
Surprise: beside consumerOffset.json no other file counts. Files of 5.x stay when a broker goes back to 4.9, topics.json is written only
when a topic changes, and a slave 4.9 of a master 5.x writes the master's delayOffset.json as it is (SlaveSynchronize.syncDelayOffset).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_format.broker_version import BrokerVersion
from store_format.config.fastjson import parse_json, plain
from store_format.errors import ConfigFileError
from store_format.store_paths import CONFIG

if TYPE_CHECKING:
    from store_format.files.files import FilePath  # with numba, which takes 0.3 s

CONSUMER_OFFSETS: Final = "consumerOffset.json"
_DATA_VERSION: Final = "dataVersion"
_BEGINS_WITH_VERSION: Final = re.compile(rb'\s*\{\s*"dataVersion"\s*:\s*\{')
# files and folders that 5.5.0 makes on default settings, and 4.9 never
FILES_OF_5: Final[tuple[FilePath, ...]] = (
    (CONFIG, "timercheck"),
    (CONFIG, "timermetrics"),
    (CONFIG, "transactionMetrics"),
    (CONFIG, "consumerOrderInfo.json"),
    ("timerlog",),
    ("timerwheel",),
    ("compaction",),
    ("rocksdbstore",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBy:
    """The version whose rules are nearest to those of the broker that ran last, and the evidence, a text for people."""

    version: BrokerVersion
    evidence: str


def written_by(consumer_offsets: bytes | None, has: Callable[[FilePath], bool]) -> WrittenBy | None:
    """The broker that ran last on a store, None if no file shows a broker 5.x.

    If there is a file that only 5.x makes, the evidence names that file, even if a broker 4.9 ran later.

    Args:
        consumer_offsets: the content of consumerOffset.json; None or empty if nothing is stored.
        has: whether there is a file or folder at a path below the store.
    """
    path = f"{CONFIG}/{CONSUMER_OFFSETS}"
    if consumer_offsets is not None and _has_data_version(consumer_offsets):
        return WrittenBy(version=BrokerVersion.V5_5_0, evidence=f"{path} has a {_DATA_VERSION}, which a broker 5.x writes")
    left = next((path for path in FILES_OF_5 if has(path)), None)
    if left is None:
        return None
    name = "/".join(left)
    if not consumer_offsets:
        return WrittenBy(version=BrokerVersion.V5_5_0, evidence=f"{name} is there, which a broker 5.x makes, and no offsets in {path}")
    evidence = f"{path} has no {_DATA_VERSION}. A broker 5.x made {name}; if it ran last, give --rules {BrokerVersion.V5_5_0.value}"
    return WrittenBy(version=BrokerVersion.V4_9_3, evidence=evidence)


def _has_data_version(text: bytes) -> bool:
    """Whether a JSON object has a member dataVersion; False if the text is no object.

    A broker's own text is not parsed: that takes seconds for the offsets of many groups. The broker writes members by name.
    """
    if _DATA_VERSION.encode() not in text:
        return False
    if _BEGINS_WITH_VERSION.match(text):
        return True
    try:
        found = plain(parse_json(text, ""))
    except ConfigFileError:
        return False
    return isinstance(found, dict) and _DATA_VERSION in found
