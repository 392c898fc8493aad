"""Settings are read as the 4.9.3 broker reads them, and refused if the broker would silently do something else.

What the real broker does with a text was found by starting it with a broker.conf (BrokerStartup.createBrokerController)
and reading its configuration objects. The trace headers and broker.conf files are golden data.
"""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import FrozenInstanceError, asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

import javaproperties
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.settings.resources import conf_text
from pipeline.settings.settings import BrokerSettings, PullSettings, SettingsError, load_catalogue
from tests.truth.places import GOLDEN, PROJECT

needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the shared golden data is not here")

PULL_CAPS: dict[str, Any] = {
    "brokerRole": "ASYNC_MASTER",
    "offsetCheckInSlave": False,
    "accessMessageInMemoryMaxRatio": 40,
    "maxTransferBytesOnMessageInMemory": 262144,
    "maxTransferCountOnMessageInMemory": 32,
    "maxTransferBytesOnMessageInDisk": 65536,
    "maxTransferCountOnMessageInDisk": 8,
    "diskFallRecorded": True,
    "totalPhysicalMemorySize": 8589934592,
    "readable": True,
    "filterSupportRetry": False,
    "enableConsumeQueueExt": False,
    "maxErrorRateOfBloomFilter": 20,
    "expectConsumerNumUseFilter": 32,
    "enableLmq": False,
    "enableMultiDispatch": False,
    "maxLmqConsumeQueueNum": 20000,
    "brokerId": 0,
    "slaveReadEnable": False,
    "maxFilterMessageSize": 16000,
    "travelCqFileNumWhenGetMessage": 1,
    "maxTotalMsgSize": 134217728,
    "rulesVersion": "4.9.3",
}
INT_NAMES = sorted(name for name, setting in load_catalogue().items() if setting.type == "int")


def conf(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "broker.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("latin-1"))
    return path


def golden_headers() -> list[Any]:
    paths = sorted(GOLDEN.glob("store/traces/*.jsonl")) + sorted(GOLDEN.glob("store/lookup/*.jsonl"))
    return [pytest.param(path, id=f"{path.parent.name}/{path.stem}") for path in paths]


def header_config(path: Path) -> dict[str, Any]:
    with path.open(encoding="utf-8") as lines:
        config: dict[str, Any] = json.loads(next(lines))["config"]
    return config


def capture_conf(capture: str) -> bytes:
    with tarfile.open(GOLDEN / "capture" / f"{capture}.tar.xz", "r|xz") as archive:
        for member in archive:
            if member.name == f"{capture}/broker.conf":
                content = archive.extractfile(member)
                assert content is not None
                return content.read()
    pytest.fail(f"{capture} has no broker.conf")


# --- the catalogue and the defaults


@pytest.mark.parametrize(
    ("name", "kind", "default"),
    [
        ("mappedFileSizeCommitLog", "int", 1073741824),
        ("mappedFileSizeConsumeQueue", "int", 6000000),
        ("mappedFileSizeConsumeQueueExt", "int", 50331648),
        ("maxHashSlotNum", "int", 5000000),
        ("maxIndexNum", "int", 20000000),
        ("flushDiskType", "enum", "ASYNC_FLUSH"),
        ("flushDelayOffsetInterval", "long", 10000),
        ("messageDelayLevel", "String", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"),
        ("haMasterAddress", "String", None),
        ("brokerClusterName", "String", "DefaultCluster"),
        ("brokerId", "long", 0),
        ("consumerFallbehindThreshold", "long", 17179869184),
        ("maxErrorRateOfBloomFilter", "int", 20),
        ("rocketmqHome", "String", None),
        # BrokerStartup sets it, the class says 8888
        ("listenPort", "int", 10911),
        # BrokerStartup.properties2SystemEnv reads it, no class has a setter for it
        ("rmqAddressServerDomain", "String", "jmenv.tbsite.net"),
        # the field is called isEnableBatchPush; the name comes from the setter
        ("enableBatchPush", "boolean", False),
        # the lower-case d is that of setdLegerGroup
        ("dLegerGroup", "String", None),
        ("useTLS", "boolean", False),
    ],
)
def test_a_name_has_the_type_and_the_default_of_the_brokers_class(name: str, kind: str, default: object) -> None:
    setting = load_catalogue()[name]
    assert (setting.type, setting.default) == (kind, default)
    assert BrokerSettings.from_sources().value(name) == default
    assert BrokerSettings.from_sources().explicit(name) is None


def test_a_field_without_a_setter_is_no_setting() -> None:
    assert "isEnableBatchPush" not in load_catalogue()


def test_every_default_is_of_its_own_type() -> None:
    for setting in load_catalogue().values():
        assert setting.type in {"int", "long", "boolean", "String", "enum"}
        if setting.default is not None:
            assert setting.checked(setting.default, "here") == setting.default


def test_what_depends_on_the_machine_has_no_default() -> None:
    entries = {n: e for section in json.loads(conf_text("broker-defaults.json")).values() for n, e in section.items()}
    dependent = {name for name, entry in entries.items() if entry.get("machineDependent")}
    assert {"brokerName", "brokerIP1", "brokerIP2", "storePathRootDir", "pullMessageThreadPoolNums"} <= dependent
    assert all(entries[name]["default"] is None for name in dependent)


def test_a_name_in_two_sections_means_the_same_in_both() -> None:
    seen: dict[str, object] = {}
    for section in json.loads(conf_text("broker-defaults.json")).values():
        for name, entry in section.items():
            assert seen.setdefault(name, entry) == entry, name


def test_our_own_names_are_documented_and_apart() -> None:
    own = json.loads(conf_text("broker-defaults.json"))["pullsim"]
    assert own.keys() == {"totalPhysicalMemorySize", "readable"}
    assert all(entry["doc"] for entry in own.values())


def test_the_pull_settings_of_no_source_at_all_are_those_of_a_fresh_broker() -> None:
    assert list(asdict(BrokerSettings.from_sources().pull_settings()).values()) == list(PULL_CAPS.values())


@needs_golden
def test_the_defaults_are_those_of_a_trace_that_set_only_file_sizes() -> None:
    set_by_the_trace = {
        "bitMapLengthConsumeQueueExt",
        "bloom",
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "maxHashSlotNum",
        "maxIndexNum",
        "maxMessageSize",
    }
    config = header_config(GOLDEN / "store/traces/basic-default.jsonl")
    defaults = BrokerSettings.from_sources()
    assert {name: defaults.value(name) for name in config.keys() - set_by_the_trace} == {
        name: value for name, value in config.items() if name not in set_by_the_trace
    }
    assert defaults.value("expectConsumerNumUseFilter") == config["bloom"]["expectConsumers"]
    assert defaults.value("maxErrorRateOfBloomFilter") == config["bloom"]["errorRate"]


# --- pull settings


def test_pull_settings_take_every_field_from_the_setting_of_its_name() -> None:
    other: dict[str, Any] = {
        name: not value if isinstance(value, bool) else "SYNC_MASTER" if isinstance(value, str) else value + 1
        for name, value in PULL_CAPS.items()
    } | {"rulesVersion": "5.5.0"}
    pull = BrokerSettings.from_sources(header=other).pull_settings()
    snake = {re.sub(r"(?=[A-Z])", "_", name).lower(): value for name, value in other.items()}
    assert asdict(pull) == snake


def test_pull_settings_are_typed_frozen_and_slotted() -> None:
    pull = BrokerSettings.from_sources().pull_settings()
    hints = get_type_hints(PullSettings)
    assert all(type(getattr(pull, field.name)) is hints[field.name] for field in fields(pull))
    assert not hasattr(pull, "__dict__")
    with pytest.raises(FrozenInstanceError):
        pull.broker_id = 1  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(pull)) == pull  # noqa: S301 - they go to Spark's workers


def test_every_field_of_the_pull_settings_says_what_it_is() -> None:
    assert PullSettings.__doc__
    assert all(f"{field.name}: " in PullSettings.__doc__ for field in fields(PullSettings))


# --- the header of a trace


@needs_golden
@pytest.mark.parametrize("path", golden_headers())
def test_every_name_of_every_golden_header_is_accepted_with_its_value(path: Path) -> None:
    config = header_config(path)
    settings = BrokerSettings.from_sources(header=config)
    bloom = config.pop("bloom")
    assert {name: settings.explicit(name) for name in config} == config
    assert settings.explicit("maxErrorRateOfBloomFilter") == bloom["errorRate"]
    assert settings.explicit("expectConsumerNumUseFilter") == bloom["expectConsumers"]
    assert len(settings.given) == len(config) + 2


@pytest.mark.parametrize(
    ("config", "name", "expected", "found"),
    [
        ({"maxIndexNum": "20"}, "maxIndexNum", "an int from", "'20'"),
        ({"maxIndexNum": 20.0}, "maxIndexNum", "an int from", "20.0"),
        ({"maxIndexNum": True}, "maxIndexNum", "an int from", "True"),
        ({"maxIndexNum": None}, "maxIndexNum", "an int from", "None"),
        ({"maxIndexNum": 2**31}, "maxIndexNum", "an int from", "2147483648"),
        ({"brokerId": 2**63}, "brokerId", "a long from", "9223372036854775808"),
        ({"readable": 1}, "readable", "true or false", "1"),
        ({"readable": "true"}, "readable", "true or false", "'true'"),
        ({"deleteWhen": 4}, "deleteWhen", "a text", "4"),
        ({"brokerRole": "MASTER"}, "brokerRole", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE", "'MASTER'"),
        ({"brokerRole": 0}, "brokerRole", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE", "0"),
        ({"bloom": 3}, "bloom", "an object of integers", "3"),
        ({"bloom": {"k": "3"}}, "bloom", "an object of integers", "{'k': '3'}"),
        ({"bloom": {"q": 3}}, "'q'", "one of errorRate, expectConsumers, k, m", "unknown"),
        ({"\ufeff" * 1000: 1}, repr("\ufeff" * 1000)[:161] + "...'", "a setting that broker 4.9.3 knows", "unknown"),
        ([], "config", "an object of settings", "[]"),
    ],
)
def test_a_header_value_of_another_type_is_refused(config: object, name: str, expected: str, found: str) -> None:
    with pytest.raises(SettingsError) as caught:
        BrokerSettings.from_sources(header=config, header_where="x.jsonl, line 1")
    assert caught.value.where.startswith("x.jsonl, line 1")
    assert (caught.value.name, caught.value.found) == (name, found)
    assert caught.value.expected.startswith(expected)


# --- broker.conf


@needs_golden
@pytest.mark.parametrize(
    ("capture", "expected"),
    [
        ("json", {"brokerName": "broker-a", "storePathRootDir": "store", "mappedFileSizeCommitLog": 1048576}),
        ("lossy", {"brokerClusterName": "oracleCluster", "enablePropertyFilter": True, "maxHashSlotNum": 5000}),
        (
            "rocketmq",
            {"maxTransferBytesOnMessageInMemory": 49152, "messageDelayLevel": "1s 2s 4s 6s 8s 10s 12s 15s 20s 30s 1m"},
        ),
    ],
)
def test_the_broker_conf_of_a_capture_is_accepted(capture: str, expected: dict[str, Any], tmp_path: Path) -> None:
    text = capture_conf(capture)
    settings = BrokerSettings.from_sources(properties=conf(tmp_path, text))
    assert {name: settings.explicit(name) for name in expected} == expected
    assert settings.as_dict().keys() == javaproperties.loads(text.decode("latin-1")).keys()


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("maxTransferCountOnMessageInDisk=+5", "maxTransferCountOnMessageInDisk", 5),
        ("maxTransferCountOnMessageInDisk=-5", "maxTransferCountOnMessageInDisk", -5),
        ("maxTransferCountOnMessageInDisk=0008", "maxTransferCountOnMessageInDisk", 8),
        ("diskFallRecorded=TRUE", "diskFallRecorded", True),
        ("diskFallRecorded=False", "diskFallRecorded", False),
        ("brokerName=  a b  ", "brokerName", "a b  "),
        ("brokerName", "brokerName", ""),
        ("mappedFileSizeConsumeQueue=6001", "mappedFileSizeConsumeQueue", 6020),
        ("brokerName : b\\u00e9\\\n   c", "brokerName", "béc"),
        ("brokerName=a\nbrokerName=b", "brokerName", "b"),
        ("listenPort 9000", "listenPort", 9000),
        ("namesrvAddr=n0\\:9876;n1\\:9876", "namesrvAddr", "n0:9876;n1:9876"),
        ("rmqAddressServerSubGroup=x", "rmqAddressServerSubGroup", "x"),
        ("totalPhysicalMemorySize=1500001", "totalPhysicalMemorySize", 1500001),
    ],
)
def test_a_line_of_broker_conf_means_what_it_means_to_the_broker(line: str, name: str, value: object, tmp_path: Path) -> None:
    settings = BrokerSettings.from_sources(properties=conf(tmp_path, f"# a comment\n\n{line}\n"))
    assert settings.as_dict() == {name: value}
    assert type(settings.value(name)) is type(value)


@pytest.mark.parametrize(
    ("line", "name", "found"),
    [
        # the broker keeps the default of each of these, silently
        ("maxTransferCountOnMessageInMemory=20 ", "maxTransferCountOnMessageInMemory", "'20 '"),
        ("maxTransferCountOnMessageInDisk=1_0", "maxTransferCountOnMessageInDisk", "'1_0'"),
        ("maxTransferCountOnMessageInDisk=", "maxTransferCountOnMessageInDisk", "''"),
        ("maxTransferCountOnMessageInDisk=2147483648", "maxTransferCountOnMessageInDisk", "2147483648"),
        ("maxTransferCountOnMessageInDisk=8L", "maxTransferCountOnMessageInDisk", "'8L'"),
        ("maxTransferCountOnMessageInDisk=0x8", "maxTransferCountOnMessageInDisk", "'0x8'"),
        ("maxTransferCountOnMessageInDisk=1024*1024", "maxTransferCountOnMessageInDisk", "'1024*1024'"),
        ("brokerId=-9223372036854775809", "brokerId", "-9223372036854775809"),
        ("brokerRole=SLAVE ", "brokerRole", "'SLAVE '"),
        ("brokerRole=slave", "brokerRole", "'slave'"),
        ("flushDiskType=SYNC", "flushDiskType", "'SYNC'"),
        # the broker takes each of these for false
        ("diskFallRecorded=true ", "diskFallRecorded", "'true '"),
        ("diskFallRecorded=yes", "diskFallRecorded", "'yes'"),
        ("diskFallRecorded=1", "diskFallRecorded", "'1'"),
        ("diskFallRecorded=", "diskFallRecorded", "''"),
    ],
)
def test_a_value_that_the_broker_would_not_take_as_written_is_refused(line: str, name: str, found: str, tmp_path: Path) -> None:
    path = conf(tmp_path, f"brokerName=a\\\n  b\r\n! a comment\r\n{line}\n")
    with pytest.raises(SettingsError) as caught:
        BrokerSettings.from_sources(properties=path)
    error = caught.value
    assert (error.where, error.name, error.found) == (f"{path}, line 4", name, found)
    assert ("trim" in error.hint) == found.endswith(" '")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("maxTranferCountOnMessageInMemory", "maxTransferCountOnMessageInMemory"),
        ("MAPPEDFILESIZECOMMITLOG", "mappedFileSizeCommitLog"),
        ("mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),
        ("brokerrole", "brokerRole"),
        ("isEnableBatchPush", "enableBatchPush"),
        ("DLegerGroup", "dLegerGroup"),
        ("autoCreateTopic", "autoCreateTopicEnable"),
        ("brokerName ", "brokerName"),
    ],
)
def test_an_unknown_name_ends_with_the_nearest_known_one(name: str, nearest: str, tmp_path: Path) -> None:
    path = conf(tmp_path, "deleteWhen=04\n" + javaproperties.dumps({name: "1"}, timestamp=False))
    for where, sources in (
        (f"{path}, line 2", {"properties": path}),
        (f"--set {name}=1", {"options": [f"{name}=1"]}),
        ("the config of the header", {"header": {name: 1}}),
    ):
        with pytest.raises(SettingsError) as caught:
            BrokerSettings.from_sources(**sources)
        assert (caught.value.where, caught.value.name) == (where, repr(name))
        assert caught.value.hint == f"the nearest known name is {nearest}"


def test_a_name_like_nothing_known_still_gets_a_suggestion() -> None:
    for name in ("", "§§§"):
        with pytest.raises(SettingsError, match=r"the nearest known name is [a-zA-Z0-9]+"):
            BrokerSettings.from_sources(options=[f"{name}=1"])


def test_an_error_is_a_full_sentence_and_survives_pickling(tmp_path: Path) -> None:
    path = conf(tmp_path, "maxIndexNum=many")
    with pytest.raises(ValueError, match="maxIndexNum") as caught:
        BrokerSettings.from_sources(properties=path)
    expected = "an int from -2147483648 to 2147483647"
    assert str(caught.value) == f"{path}, line 1: maxIndexNum must be {expected}, but is 'many'."
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301


def test_a_properties_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.conf: .* must be readable, but is No such file or directory\."):
        BrokerSettings.from_sources(properties=tmp_path / "absent.conf")
    with pytest.raises(SettingsError, match="Is a directory"):
        BrokerSettings.from_sources(properties=tmp_path)


def test_a_broken_escape_is_shown_in_a_form_that_can_be_printed(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        BrokerSettings.from_sources(properties=conf(tmp_path, b"brokerName=\\u68\0\x1b\n"))
    assert str(caught.value).isprintable()


def test_a_broken_escape_which_ends_the_broker_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"line 2: an escape must be .* but is \\u00zz"):
        BrokerSettings.from_sources(properties=conf(tmp_path, "brokerName=a\nbrokerClusterName=\\u00zz\n"))


@given(
    st.dictionaries(
        st.sampled_from(["brokerName", "regionId", "deleteWhen", "dLegerPeers", "msgTraceTopicName"]),
        st.text(st.characters(exclude_categories=["Cs"])),
    )
)
def test_any_text_in_a_properties_file_arrives_unchanged(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str]) -> None:
    path = conf(tmp_path_factory.mktemp("conf"), javaproperties.dumps(texts, timestamp=False))
    assert BrokerSettings.from_sources(properties=path).as_dict() == texts


# --- what a start makes of broker.conf


@pytest.mark.parametrize(
    ("text", "ratio", "broker_id"),
    [
        ("brokerRole=SLAVE\nbrokerId=1", 40, 1),
        ("brokerRole=SLAVE\nbrokerId=1\naccessMessageInMemoryMaxRatio=60", 60, 1),
        ("brokerId=3", 40, 0),
        ("brokerRole=SYNC_MASTER\nbrokerId=3", 40, 0),
    ],
)
def test_a_slave_keeps_its_memory_ratio_and_a_master_gets_id_zero(text: str, ratio: int, broker_id: int, tmp_path: Path) -> None:
    pull = BrokerSettings.from_sources(properties=conf(tmp_path, text)).pull_settings()
    assert (pull.access_message_in_memory_max_ratio, pull.broker_id) == (ratio, broker_id)


def test_a_header_or_an_option_says_the_broker_id_as_it_is(tmp_path: Path) -> None:
    assert BrokerSettings.from_sources(header={"brokerId": 1}).value("brokerId") == 1
    assert BrokerSettings.from_sources(options=["brokerId=1"]).value("brokerId") == 1
    path = conf(tmp_path, "brokerId=3")
    assert BrokerSettings.from_sources(properties=path, options=["brokerId=2"]).value("brokerId") == 2
    assert BrokerSettings.from_sources(properties=path, options=["brokerRole=SLAVE"]).value("brokerId") == 3


# --- options and order


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("brokerRole=SLAVE", "brokerRole", "SLAVE"),
        ("totalPhysicalMemorySize=1500001", "totalPhysicalMemorySize", 1500001),
        ("readable=false", "readable", False),
        ("dLegerPeers=n0=a;n1=b", "dLegerPeers", "n0=a;n1=b"),
        ("brokerName=\\u0041 ", "brokerName", "\\u0041 "),
    ],
)
def test_an_option_is_taken_literally_after_its_first_equals_sign(option: str, name: str, value: object) -> None:
    assert BrokerSettings.from_sources(options=[option]).as_dict() == {name: value}


@pytest.mark.parametrize("option", ["brokerRole", "", "brokerRole:SLAVE"])
def test_an_option_without_an_equals_sign_is_refused(option: str) -> None:
    with pytest.raises(SettingsError) as caught:
        BrokerSettings.from_sources(options=[option])
    assert (caught.value.where, caught.value.expected) == (f"--set {option}", "name=value")


def test_a_later_source_wins_and_the_others_stay(tmp_path: Path) -> None:
    settings = BrokerSettings.from_sources(
        header={"maxIndexNum": 1, "maxHashSlotNum": 1, "maxMsgsNumBatch": 1},
        properties=conf(tmp_path, "maxIndexNum=2\nmaxHashSlotNum=2\nbrokerName=b"),
        options=["maxIndexNum=3", "maxIndexNum=4"],
    )
    assert settings.as_dict() == {"brokerName": "b", "maxHashSlotNum": 2, "maxIndexNum": 4, "maxMsgsNumBatch": 1}
    assert list(settings.as_dict()) == sorted(settings.as_dict())
    assert (settings.explicit("maxIndexNum"), settings.broker_name) == (4, "b")


def test_what_no_source_gave_is_not_explicit() -> None:
    settings = BrokerSettings.from_sources(options=["mappedFileSizeCommitLog=65536"])
    assert settings.explicit("mappedFileSizeCommitLog") == 65536
    assert settings.explicit("mappedFileSizeConsumeQueue") is None
    assert settings.broker_name is None
    assert BrokerSettings.from_sources().as_dict() == {}


def test_asking_for_a_name_that_is_none_is_a_mistake_in_the_program() -> None:
    with pytest.raises(KeyError):
        BrokerSettings.from_sources().value("mapedFileSizeCommitLog")
    with pytest.raises(KeyError):
        BrokerSettings.from_sources().explicit("mapedFileSizeCommitLog")


@given(st.sampled_from(INT_NAMES), st.integers(-(2**33), 2**33))
@example("mappedFileSizeConsumeQueue", 41)
@example("mappedFileSizeConsumeQueue", -41)
def test_an_integer_is_accepted_exactly_in_the_32_bit_range(name: str, number: int) -> None:
    fits = -(2**31) <= number < 2**31 - 20  # the consume queue's size may round up by 19
    if fits:
        value = BrokerSettings.from_sources(options=[f"{name}={number}"]).value(name)
        assert value == (-(-number // 20) * 20 if name == "mappedFileSizeConsumeQueue" else number)
    elif not -(2**31) <= number < 2**31:
        with pytest.raises(SettingsError):
            BrokerSettings.from_sources(options=[f"{name}={number}"])


@pytest.mark.parametrize(("given_bytes", "answered"), [(7, 20), (12345, 12360), (-3, 0), (6000, 6000)])
def test_a_consume_queue_file_has_whole_entries(given_bytes: int, answered: int) -> None:
    settings = BrokerSettings.from_sources(options=[f"mappedFileSizeConsumeQueue={given_bytes}"])
    assert settings.explicit("mappedFileSizeConsumeQueue") == answered


def test_what_was_given_can_be_recorded_and_read_back(tmp_path: Path) -> None:
    settings = BrokerSettings.from_sources(
        header={"readable": False, "bloom": {"errorRate": 10, "expectConsumers": 64, "k": 4, "m": 312}},
        properties=conf(tmp_path, "brokerRole=SLAVE\nbrokerId=1\nmappedFileSizeConsumeQueue=6001\n"),
        options=["messageDelayLevel=1s 2s"],
    )
    recorded = json.loads(json.dumps(settings.as_dict()))
    assert BrokerSettings.from_sources(header=recorded) == settings


# --- where the catalogue comes from


def test_a_configuration_file_is_found_by_its_name() -> None:
    assert conf_text("broker-defaults.json") == (PROJECT / "conf/broker-defaults.json").read_text(encoding="utf-8")
    with pytest.raises(FileNotFoundError):
        conf_text("absent.json")


def test_the_settings_work_from_inside_a_zip(tmp_path: Path) -> None:
    archive = tmp_path / "pullsim.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("__init__", "files/__init__", "files/small_file", "settings/__init__", "settings/resources", "settings/settings"):
            packed.write(PROJECT / "pipeline" / f"{name}.py", f"pipeline/{name}.py")
        for path in (PROJECT / "conf").iterdir():
            packed.write(path, f"pipeline/conf/{path.name}")
    program = (
        "import pipeline.settings.resources as r, pipeline.settings.settings as s;"
        "print(r.__file__, r.conf_text('broker-defaults.json'), s.BrokerSettings.from_sources().pull_settings().broker_role)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(archive) in done.stdout
    assert (PROJECT / "conf/broker-defaults.json").read_text(encoding="utf-8") in done.stdout
    assert done.stdout.endswith("ASYNC_MASTER\n")
