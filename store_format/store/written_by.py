"""Tells by the files of a store which broker wrote them, as far as they show it.

Broker source: ConsumerOffsetManager, DelayOffsetSerializeWrapper and DataVersion of 4.9.3, 4.9.8 and 5.5.0; TimerCheckpoint, TimerMetrics,
ConsumerOrderInfoManager, TransactionMetrics, CompactionStore and MessageRocksDBStorage of 5.5.0.
Rule: a broker writes consumerOffset.json and delayOffset.json every few seconds and at its shutdown, so these files are of the broker that
ran last. 5.x writes a dataVersion into both, 4.9 into neither.
Surprise: other files of 5.x stay when a broker goes back to 4.9, and topics.json is written when a topic changes only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from store_format.broker_version import BrokerVersion
from store_format.config.fastjson import parse_json, plain
from store_format.errors import ConfigFileError
from store_format.files.files import FilePath
from store_format.store_paths import CONFIG

# written by the broker every few seconds
OFFSET_FILES: Final = ("consumerOffset.json", "delayOffset.json")
_DATA_VERSION: Final = "dataVersion"
_OFFSET_TABLE: Final = "offsetTable"
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
    """The version whose rules are nearest to those of the broker that ran last, and what shows it, for people."""

    version: BrokerVersion
    evidence: str


def written_by(offset_files: Mapping[str, bytes | None], has: Callable[[FilePath], bool]) -> WrittenBy | None:
    """The broker that ran last on a store, None where no file shows it or where the files show a broker 4.9 of an unknown release.

    Args:
        offset_files: the content of each of OFFSET_FILES; None where there is no file.
        has: whether there is a file or folder at a path below the store.
    """
    left = next((path for path in FILES_OF_5 if has(path)), None)
    for name in OFFSET_FILES:
        members = _members(offset_files[name])
        path = f"{CONFIG}/{name}"
        if _DATA_VERSION in members:
            return WrittenBy(version=BrokerVersion.V5_5_0, evidence=f"{path} has a {_DATA_VERSION}, which a broker 5.x writes")
        if _OFFSET_TABLE in members and left is not None:
            evidence = f"{path} has no {_DATA_VERSION}, so a broker 4.9 wrote it after a broker 5.x made {'/'.join(left)}"
            return WrittenBy(version=BrokerVersion.V4_9_3, evidence=evidence)
        if _OFFSET_TABLE in members:
            return None
    if left is None:
        return None
    return WrittenBy(version=BrokerVersion.V5_5_0, evidence=f"{'/'.join(left)} is there, which a broker 5.x makes")


def _members(text: bytes | None) -> frozenset[object]:
    """The names of the members of a JSON object; none where the text is no object.

    A broker's own text is not parsed: that takes seconds for the offsets of many groups. The broker writes members by name.
    """
    if text is None or _DATA_VERSION.encode() not in text:
        return frozenset({_OFFSET_TABLE} if _OFFSET_TABLE.encode() in (text or b"") else ())
    if _BEGINS_WITH_VERSION.match(text):
        return frozenset({_DATA_VERSION})
    try:
        found = plain(parse_json(text or b"", ""))
    except ConfigFileError:
        return frozenset()
    return frozenset(found) if isinstance(found, dict) else frozenset()
