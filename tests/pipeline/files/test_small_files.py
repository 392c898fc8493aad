"""Files that are read as a whole: longer ones than any broker or person writes are refused before they are read."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from pipeline.commands.sql_statements import text_of
from pipeline.files.small_file import SMALL_BYTES_MAX, small_file
from pipeline.files.store_files import CONFIG_BYTES_MAX, StoreFiles
from pipeline.generate.workload import read_workload
from pipeline.generate.workload_fields import WorkloadError
from pipeline.report.compared import ReportFileError, read_report
from pipeline.rows.config_tables import config_rows
from pipeline.settings.settings import BrokerSettings, SettingsError
from pipeline.simulation.scenario import scenario_text
from pipeline.simulation.scenario_fields import ScenarioError
from store_format.errors import ConfigFileError


def of_length(path: Path, length: int) -> Path:
    """A file of `length` bytes that takes no room on the disk beyond its first bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(length)
    return path


def test_the_head_of_a_file_is_what_it_begins_with(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"abcdef")
    files = StoreFiles(str(tmp_path))
    assert [files.head(length, "checkpoint") for length in (0, 4, 6, 9)] == [b"", b"abcd", b"abcdef", b"abcdef"]
    assert files.head(4, "lock") is None


@pytest.mark.parametrize("name", ["consumerOffset.json", "topics.json.bak"])
def test_a_config_file_longer_than_any_broker_writes_is_refused(name: str, tmp_path: Path) -> None:
    path = of_length(tmp_path / "config" / name, CONFIG_BYTES_MAX + 1)
    with pytest.raises(ConfigFileError) as refused:
        config_rows(StoreFiles(str(tmp_path)), "b")
    assert str(refused.value) == (
        f"{path}: expected at most 67,108,864 bytes, found 67,108,865 bytes; is this the broker's file? Replace or remove it"
    )
    as_found = config_rows(StoreFiles(str(tmp_path)), "b", as_found=True)
    assert str(refused.value) in as_found.notes


def test_a_config_file_of_the_greatest_length_is_read(tmp_path: Path) -> None:
    of_length(tmp_path / "config" / "topics.json", CONFIG_BYTES_MAX)
    assert StoreFiles(str(tmp_path)).read_config("topics.json") == bytes(CONFIG_BYTES_MAX)
    assert StoreFiles(str(tmp_path)).read_config("topics.json.bak") is None


def test_a_file_of_settings_or_loads_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = of_length(tmp_path / "long", SMALL_BYTES_MAX + 1)
    found = re.escape("longer than 16,777,216 bytes")
    with pytest.raises(SettingsError, match=found):
        BrokerSettings.from_sources(properties=path)
    with pytest.raises(WorkloadError, match=found):
        read_workload(str(path))
    with pytest.raises(ScenarioError, match=found):
        scenario_text(str(path))
    assert small_file(of_length(tmp_path / "whole", SMALL_BYTES_MAX)) == bytes(SMALL_BYTES_MAX)


def test_a_device_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(SettingsError, match="longer than"):
        BrokerSettings.from_sources(properties="/dev/zero")
    with pytest.raises(click.UsageError, match="longer than"):
        text_of("/dev/zero")
    with pytest.raises(ReportFileError, match="longer than"):
        read_report("/dev/zero")
