"""The version of the broker, found from a store's files: real stores of each version, and which source overrides the files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.commands.given_settings import GivenSettings
from pipeline.store.told_rules import told_rules
from store_format.broker_version import BrokerVersion
from store_format.errors import NotAStoreError
from tests.truth.golden import needs_golden
from tests.truth.golden5 import needs_golden5, store_of, stores_that_load

V3, V8, V5 = BrokerVersion.V4_9_3, BrokerVersion.V4_9_8, BrokerVersion.V5_5_0


@needs_golden5
def test_every_store_that_5_5_0_wrote_tells_it() -> None:
    told = {name: told_rules(str(store_of(name))) for name in stores_that_load()}
    live = told.pop("live")
    assert live is not None
    assert (live.version, "config/consumerOffset.json has a dataVersion" in live.evidence) == (V5, True)
    # written by the message store alone, without a broker that keeps offsets
    for name, found in told.items():
        assert found is not None
        assert (name, found.version, "which a broker 5.x makes" in found.evidence) == (name, V5, True)


@needs_golden
def test_no_store_that_4_9_3_wrote_tells_a_version(stores: Path) -> None:
    found = [path for path in stores.iterdir() if path.is_dir()]
    assert len(found) >= 40
    assert [path.name for path in found if told_rules(str(path)) is not None] == []


@needs_golden5
def test_a_store_that_went_back_to_4_9_has_the_rules_of_4_9(tmp_path: Path) -> None:
    store = Path(shutil.copytree(store_of("live"), tmp_path / "store"))
    (store / "config" / "consumerOffset.json").write_bytes(b'{\n\t"offsetTable":{}\n}')
    found = told_rules(str(store))
    assert found is not None
    assert (found.version, "config/timercheck" in found.evidence) == (V3, True)


@needs_golden5
def test_options_properties_and_headers_override_the_files(tmp_path: Path) -> None:
    store = str(store_of("live"))
    properties = tmp_path / "broker.conf"
    properties.write_text("brokerName=a\n")
    own = GivenSettings(properties=str(properties)).of_store(store)
    assert (own.version, own.told_version) == (
        V5,
        "the rules are those of broker 5.5.0: config/consumerOffset.json has a dataVersion, which a broker 5.x writes",
    )
    chosen = GivenSettings(rules="4.9.8").of_store(store)
    assert (chosen.version, chosen.told_version) == (V8, "the rules are those of broker 4.9.8: an option names it")
    header = GivenSettings().of_store(store, header={"rulesVersion": "4.9.3"}, header_where="f.jsonl, line 1")
    assert header.told_version == "the rules are those of broker 4.9.3: f.jsonl, line 1 names it"


def test_settings_that_only_a_later_version_has_tell_it(small_store: Path, tmp_path: Path) -> None:
    assert GivenSettings().of_store(str(small_store)).told_version.endswith("4.9.3: no option, file or header names another version")
    properties = tmp_path / "broker.conf"
    properties.write_text("maxFilterMessageSize=800\n")
    told = GivenSettings(properties=str(properties)).of_store(str(small_store))
    assert (told.version, told.told_version) == (V5, f"the rules are those of broker 5.5.0: {properties} has settings that 4.9.3 lacks")


def test_a_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="no such directory"):
        told_rules(str(tmp_path / "none"))
