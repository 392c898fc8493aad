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
    ("offsets", "delays", "there", "version", "evidence"),
    [
        (OF_5, OF_5, {TIMER_WHEEL}, V5, "config/consumerOffset.json has a dataVersion"),
        (OF_5, None, set(), V5, "config/consumerOffset.json has a dataVersion"),
        (b'{"offsetTable":{}, "dataVersion":{}}', None, set(), V5, "config/consumerOffset.json has a dataVersion"),
        (b'{"offsetTable":{"dataVersion@g":{0:1}}}', None, set(), None, ""),
        (None, OF_5, set(), V5, "config/delayOffset.json has a dataVersion"),
        (b"no json", OF_5, set(), V5, "config/delayOffset.json has a dataVersion"),
        (None, None, {TIMER_WHEEL}, V5, "timerwheel is there"),
        (b"", b"[]", {("config", "timercheck")}, V5, "config/timercheck is there"),
        # a broker 4.9 ran after a broker 5.x
        (OF_4_9, OF_5, {TIMER_WHEEL}, V3, "a broker 4.9 wrote it after a broker 5.x made timerwheel"),
        (None, OF_4_9, {("rocksdbstore",)}, V3, "config/delayOffset.json has no dataVersion"),
        # 4.9.3 or 4.9.8: the files do not tell which
        (OF_4_9, OF_4_9, set(), None, ""),
        (OF_4_9, OF_5, set(), None, ""),
        (None, None, set(), None, ""),
        (None, None, {("commitlog",), ("lock",), ("config", "topics.json")}, None, ""),
    ],
)
def test_the_files_of_offsets_say_which_broker_ran_last(
    offsets: bytes | None, delays: bytes | None, there: set[FilePath], version: BrokerVersion | None, evidence: str
) -> None:
    found = written_by({"consumerOffset.json": offsets, "delayOffset.json": delays}, there.__contains__)
    assert (None if found is None else found.version) == version
    assert evidence in ("" if found is None else found.evidence)
