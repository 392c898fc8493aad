"""A lake of a captured broker: its store and its traffic, taken into the lake by the commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runs.in_session import NotHeard, pullsim_in
from tests.truth.captured import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDERS: list[Path] = []


def captured_broker(spark: SparkSession, factory: pytest.TempPathFactory) -> Path:
    """The folder of the capture `json` with the broker's store, and a lake of both in its folder `lake`; made once a run of the tests.

    For tests that only read it.
    """
    if not _FOLDERS:
        folder = unpack("json", factory.mktemp("captured"), store=True)
        with pytest.MonkeyPatch.context() as patch:
            pullsim = pullsim_in(spark, patch, NotHeard())
            done = [
                pullsim("import", folder / "store", "--lake", folder / "lake", "--properties", folder / "broker.conf")[0],
                pullsim("capture", folder / "traffic.pcap", "--lake", folder / "lake")[0],
            ]
        assert done == [0, 0]
        _FOLDERS.append(folder)
    return _FOLDERS[0]
