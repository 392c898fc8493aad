"""Which broker ran last on a store: config files as 4.9.3, 4.9.8 and 5.5.0 write them, and files that only 5.5.0 makes."""

from __future__ import annotations

import pytest

from store_format.broker_version import BrokerVersion
from store_format.files.files import FilePath
from store_format.store.written_by import written_by

OF_4_9 = b'{\n\t"offsetTable":{\n\t\t"t@g":{0:1\n\t\t}\n\t}\n}'
OF_5 = b'{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":1\n\t},\n\t"offsetTable":{}\n}'
TIMER_WHEEL: FilePath = ("timerwheel",)
V3, V5 = BrokerVersion.V4_9_3, BrokerVersion.V5_5_0


@pytest.mark.parametrize(
    ("offsets", "there", "version", "evidence"),
    [
        (OF_5, {TIMER_WHEEL}, V5, "config/consumerOffset.json has a dataVersion"),
        (OF_5, set(), V5, "config/consumerOffset.json has a dataVersion"),
        (b'{"offsetTable":{}, "dataVersion":{}}', set(), V5, "config/consumerOffset.json has a dataVersion"),
        (b'{"offsetTable":{"dataVersion@g":{0:1}}}', set(), None, ""),
        # a broker 4.9 ran after a broker 5.x, or none ran
        (OF_4_9, {TIMER_WHEEL}, V3, "config/consumerOffset.json has no dataVersion. A broker 5.x made timerwheel"),
        (b"[]", {("config", "timercheck")}, V3, "A broker 5.x made config/timercheck"),
        (b"dataVersion", {("rocksdbstore",)}, V3, "config/consumerOffset.json has no dataVersion. A broker 5.x made rocksdbstore"),
        # a broker 4.9 that ran after it would have stored offsets
        (None, {TIMER_WHEEL}, V5, "timerwheel is there, which a broker 5.x makes, and no offsets in config/consumerOffset.json"),
        (b"", {TIMER_WHEEL}, V5, "timerwheel is there"),
        # 4.9.3 or 4.9.8: the file is the same for both
        (OF_4_9, set(), None, ""),
        (None, set(), None, ""),
        # a slave 4.9 has the delayOffset.json of its master 5.x
        (None, {("commitlog",), ("lock",), ("config", "topics.json"), ("config", "delayOffset.json")}, None, ""),
    ],
)
def test_the_file_of_offsets_says_which_broker_ran_last(
    offsets: bytes | None, there: set[FilePath], version: BrokerVersion | None, evidence: str
) -> None:
    found = written_by(offsets, there.__contains__)
    assert (None if found is None else found.version) == version
    assert evidence in ("" if found is None else found.evidence)
