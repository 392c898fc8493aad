"""The settings that differ between versions, against the classes of the real versions (BrokerConfig, MessageStoreConfig, by reflection)."""

from __future__ import annotations

import pytest

from pipeline.settings.settings import BrokerSettings
from pipeline.upgrade.changed_settings import changed_settings, new_settings
from store_format.broker_version import BrokerVersion

V3, V8, V5 = BrokerVersion
DEFAULTS = {
    "autoDeleteUnusedStats": (False, True),
    "registerBrokerTimeoutMills": (6000, 24000),
    "transactionCheckInterval": (60000, 30000),
}
VANISHED = {
    "commercialBigCount",
    "commercialEnable",
    "commercialTimerCount",
    "commercialTransCount",
    "filterServerNums",
    "haSlaveFallbehindMax",
    "maxDelayTime",
}


@pytest.mark.parametrize("earlier", [V3, V8])
def test_defaults_that_change_and_settings_that_vanish(earlier: BrokerVersion) -> None:
    found = changed_settings(BrokerSettings({}), earlier, V5)
    assert {one.name: (one.before, one.after) for one in found if one.kind == "default"} == DEFAULTS
    assert {one.name for one in found if one.kind == "vanished"} == VANISHED
    assert {one.name for one in found if one.matters} == DEFAULTS.keys()
    assert {one.source for one in found if one.name in DEFAULTS} == {"BrokerConfig"}


def test_4_9_8_changes_no_setting_of_4_9_3() -> None:
    assert changed_settings(BrokerSettings({}), V3, V8) == []
    assert new_settings(V3, V8) == 2  # configBlackList, storePathDLedgerCommitLog


def test_a_setting_matters_where_this_broker_gives_it_or_takes_the_default() -> None:
    given = BrokerSettings({"transactionCheckInterval": 60000, "haSlaveFallbehindMax": 1024, "slaveReadEnable": False})
    found = changed_settings(given, V3, V5)
    matter = {(one.name, one.kind) for one in found if one.matters}
    assert matter == {
        ("autoDeleteUnusedStats", "default"),
        ("registerBrokerTimeoutMills", "default"),
        ("haSlaveFallbehindMax", "vanished"),
        ("haSlaveFallbehindMax", "meaning"),
    }
    assert [one.given for one in found if one.name == "transactionCheckInterval"] == [60000]


@pytest.mark.parametrize(
    ("given", "matters"),
    [
        ({}, False),
        ({"slaveReadEnable": False}, False),
        ({"brokerRole": "SLAVE"}, True),
        ({"brokerRole": "SLAVE", "slaveReadEnable": True}, False),
    ],
)
def test_a_slave_that_may_not_be_read_refuses_pulls_after_the_upgrade(given: dict[str, str | bool], matters: bool) -> None:
    found = changed_settings(BrokerSettings(given), V3, V5)
    assert [one.matters for one in found if one.name == "slaveReadEnable"] == [matters]
